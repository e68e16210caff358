"""A blocking connection to one broker, with a finite time-out.

The harness sends requests while it injects faults. A client library would retry, refresh its metadata and
hide errors. Here every call goes to one given broker. The call returns the broker's answer within the
time-out, or raises an error.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, Final

from harness.base.closing import Closing
from harness.kafka.security import PLAINTEXT, Security

CLIENT_ID = "eos-harness"
_API_VERSIONS_KEY = 18
# The largest frame to accept: the default of the broker's socket.request.max.bytes. Answers are smaller.
_MAX_FRAME = 100 * 1024 * 1024


_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")
"""First bytes of a TLS alert and of a TLS handshake record."""


class NotKafkaError(OSError):
    """An error for bytes that are not a Kafka frame, because the peer uses another protocol."""

    def __init__(self, start: bytes) -> None:
        size = int.from_bytes(start, "big", signed=True)
        if start == b"HTTP":
            text = "it answers HTTP, not Kafka"
        elif start[:2] in _TLS_RECORDS:
            text = "it expects TLS"
        elif start.isascii() and start.decode().isprintable():
            text = f"it answers text that begins with {start.decode()!r}, not Kafka"
        else:
            text = f"it is not Kafka: a frame of {size} bytes"
        super().__init__(text)


class RawConnection(Closing):
    """A TCP connection for length-prefixed Kafka frames. A `with` statement closes the connection."""

    def __init__(self, host: str, port: int, timeout: float, security: Security = PLAINTEXT) -> None:
        self._correlation_id = 0
        self._socket = socket.create_connection((host, port), timeout=timeout)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = security.wrap(self._socket, host)
            security.log_in(self)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Close the connection. A second call has no effect."""
        self._socket.close()

    def fileno(self) -> int:
        """Return the file descriptor of the socket, so that `select` accepts this connection."""
        return self._socket.fileno()

    def call(self, request: Any) -> Any:
        """Send a request, an object of kafka-python's protocol classes; return the decoded answer."""
        from kafka.protocol.api_header import ResponseClassRegistry

        self._correlation_id += 1
        request.with_header(correlation_id=self._correlation_id, client_id=CLIENT_ID)
        self._socket.sendall(request.encode(header=True, framed=True))
        response_class = ResponseClassRegistry.get_response_class(request.header)
        answer = response_class.decode(self.read_frame(), version=request.API_VERSION, header=True)
        if answer.header.correlation_id != self._correlation_id:
            received = answer.header.correlation_id
            raise OSError(f"the answer has correlation id {received}, the request {self._correlation_id}")
        return answer

    def send_api_versions(self, client_id: str = CLIENT_ID) -> None:
        """Send an ApiVersions request, which every broker answers. Do not wait for the answer."""
        self._correlation_id += 1
        name = client_id.encode()
        body = struct.pack(f">hhih{len(name)}s", _API_VERSIONS_KEY, 0, self._correlation_id, len(name), name)
        self._socket.sendall(struct.pack(">i", len(body)) + body)

    def read_frame(self) -> bytes:
        """Return the next frame without length prefix; raise EOFError if the peer closed the connection."""
        start = self._read_exactly(4)
        (size,) = struct.unpack(">i", start)
        if not 0 < size <= _MAX_FRAME:
            raise NotKafkaError(start)
        return self._read_exactly(size)

    def read_some(self, most: int = 65536) -> bytes:
        """Return up to `most` bytes from a single socket read; empty if the peer closed the connection."""
        return self._socket.recv(most)

    def _read_exactly(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(count - len(parts))
            if not part:
                raise EOFError(f"the peer closed after {len(parts)} of {count} bytes")
            parts += part
        return bytes(parts)


def answers(host: str, port: int, timeout: float = 1.0, security: Security = PLAINTEXT) -> bool:
    """Return whether a broker answers an ApiVersions request at this address within `timeout` seconds."""
    try:
        with RawConnection(host, port, timeout, security) as connection:
            connection.send_api_versions()
            return bool(connection.read_frame())
    except (OSError, EOFError):
        return False
