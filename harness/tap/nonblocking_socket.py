"""A non-blocking socket in the event loop, with exact counts of the bytes read and written."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable

_READ_BYTES = 256 * 1024
MOST_QUEUED = 1024 * 1024
"""Number of queued bytes above which the tap stops reading from the peer that sends them."""


class NonblockingSocket:
    """A socket with callbacks for data, for the end of the stream, and for an empty queue."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = loop
        self._sock = sock
        self._queue: deque[memoryview] = deque()
        self._reading = False
        self._finish = False
        self.on_data: Callable[[bytes], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self.on_drained: Callable[[], None] | None = None
        self.received = 0
        self.sent = 0
        self.queued = 0
        self.undelivered = 0
        self.ended = False
        """True once no more bytes can be read."""
        self.broken = False
        """True once no more bytes can be written."""
        self.closed = False

    def set_reading(self, *, on: bool) -> None:
        """Start or stop reading. While reading is stopped, TCP flow control slows the peer down."""
        if self.closed or self.ended or on is self._reading:
            return
        self._reading = on
        if on:
            self._loop.add_reader(self._sock, self._readable)
        else:
            self._loop.remove_reader(self._sock)

    def send(self, data: bytes) -> None:
        """Queue bytes for writing; count them as undelivered if the socket is broken or closed."""
        if not data:
            return
        if self.broken or self.closed:
            self.undelivered += len(data)
            return
        view = memoryview(data)
        if not self._queue:
            view = view[self._write(view) :]
            if not view or self.broken:
                self.undelivered += len(view)
                return
            self._loop.add_writer(self._sock, self._writable)
        self._queue.append(view)
        self.queued += len(view)

    def finish(self) -> None:
        """Shut down the writing side once all queued bytes are written."""
        self._finish = True
        if not self._queue and not self.broken and not self.closed:
            self._shutdown()

    def close(self) -> None:
        """Close the socket, and count the queued bytes as undelivered."""
        if self.closed:
            return
        self.set_reading(on=False)
        self._drop_queue()
        self.closed = self.ended = self.broken = True
        self._loop.remove_writer(self._sock)
        self._sock.close()

    def _readable(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""  # a reset by the peer counts as the end of the stream
        if data:
            self.received += len(data)
            assert self.on_data is not None
            self.on_data(data)
            return
        self.set_reading(on=False)
        self.ended = True
        assert self.on_end is not None
        self.on_end()

    def _writable(self) -> None:
        while self._queue and not self.broken:
            view = self._queue[0]
            taken = self._write(view)
            self.queued -= taken
            if taken < len(view):
                if not self.broken:
                    self._queue[0] = view[taken:]
                    return
                self._queue[0] = view[taken:]
                break
            self._queue.popleft()
        self._loop.remove_writer(self._sock)
        if self.broken:
            self._drop_queue()
        elif self._finish:
            self._shutdown()
        if self.on_drained:
            self.on_drained()

    def _write(self, view: memoryview) -> int:
        try:
            taken = self._sock.send(view)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.broken = True
            return 0
        self.sent += taken
        return taken

    def _drop_queue(self) -> None:
        self.undelivered += self.queued
        self.queued = 0
        self._queue.clear()

    def _shutdown(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.broken = True  # the peer has already closed the connection
