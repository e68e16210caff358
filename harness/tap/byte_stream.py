"""One direction of a connection: it forwards all bytes except those that a fault drops or holds back.

While no rule is armed, bytes are forwarded as soon as they are read, and are split into frames afterwards.
While a rule is armed, a frame is forwarded only when it is complete, because the rule may act on it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from harness.tap.frame_lines import ByteAccount, Side
from harness.tap.framing import Framer, Piece
from harness.tap.nonblocking_socket import MOST_QUEUED, NonblockingSocket


class Rest(NamedTuple):
    """The bytes that remain in the tap when a stream ends in the middle of a frame."""

    unsent: bytes
    frame: int
    """Number of bytes of the incomplete frame, including those that were forwarded early."""


class Handler(Protocol):
    """Object that decides what happens to each piece of a stream."""

    def must_look_first(self) -> bool:
        """Return whether a frame must be complete before any of its bytes are forwarded."""
        ...

    def piece(self, stream: ByteStream, piece: Piece, sent: int) -> None:
        """Handle a piece of the stream. The first `sent` bytes of the piece were already forwarded."""
        ...

    def ended(self, stream: ByteStream) -> None:
        """Handle the end of the stream, after which the source sends no more bytes.

        This method is called only while no frame is kept back.
        """
        ...


class ByteStream:
    """The bytes from one socket to another, split into pieces. A handler decides what to do with each."""

    def __init__(
        self, side: Side, source: NonblockingSocket, target: NonblockingSocket, handler: Handler
    ) -> None:
        self.side: Side = side
        self.source = source
        self.target = target
        self.framer = Framer()
        self.taken = 0
        self.silenced = False
        self._handler = handler
        self._ahead = 0  # number of bytes at the start of the framer's buffer that were already forwarded
        self._kept = b""
        self._over = False
        source.on_data = self._feed
        source.on_end = self.run
        target.on_drained = self._limit_reading

    @property
    def keeps(self) -> bool:
        """Whether a frame is kept back. All bytes after that frame are then kept back too."""
        return bool(self._kept)

    @property
    def over(self) -> bool:
        """Whether the source has ended and `Handler.ended` was called for this stream."""
        return self._over

    def forward(self, data: bytes) -> None:
        self.target.send(data)

    def take(self, data: bytes) -> None:
        """Count bytes that are dropped because of a fault, in the counter `taken`. They are not forwarded."""
        self.taken += len(data)

    def keep(self, frame: bytes) -> None:
        """Keep back a frame and all bytes after it, until `resume` is called or the connection is closed."""
        self._kept = frame

    def resume(self, *, deliver: bool) -> None:
        """Forward or drop the frame that was kept back, then continue with the bytes after it."""
        frame, self._kept = self._kept, b""
        if deliver:
            self.forward(frame)
        else:
            self.take(frame)
        self.run()

    def silence(self) -> None:
        """Drop all bytes from now on instead of forwarding them."""
        self.silenced = True
        self._take_rest()

    def run(self) -> None:
        """Pass every complete piece to the handler, until a frame is kept back."""
        while not self._kept and not self.silenced and (piece := self.framer.next()) is not None:
            sent = min(self._ahead, len(piece.data))
            self._ahead -= sent
            self._handler.piece(self, piece, sent)
        if self.silenced:
            self._take_rest()
        elif not self._kept and not self._handler.must_look_first():
            self._send_ahead()
        self._limit_reading()
        if self.source.ended and not self._kept and not self._over:
            self._over = True
            self._handler.ended(self)

    def rest(self) -> Rest:
        """Remove and return the bytes that are still in the framer's buffer."""
        data, ahead = self.framer.drain(), self._ahead
        self._ahead = 0
        return Rest(data[ahead:], len(data))

    def discard_rest(self, *, by_fault: bool) -> int:
        """Drop the bytes that are still in the tap, and return their number.

        If `by_fault` is true, count these bytes as dropped by a fault, and return 0.
        """
        lost = len(self._kept) + len(self.rest().unsent)
        self._kept = b""
        if by_fault:
            self.taken += lost
            return 0
        return lost

    def account(self) -> ByteAccount:
        return ByteAccount(
            received=self.source.received,
            sent=self.target.sent,
            taken=self.taken,
            undelivered=self.target.undelivered,
        )

    def _feed(self, data: bytes) -> None:
        if self.silenced:
            self.taken += len(data)
            return
        through = (
            not self._kept and self._ahead == self.framer.buffered and not self._handler.must_look_first()
        )
        self.framer.push(data)
        if through:
            self.forward(data)
            self._ahead += len(data)
        self.run()

    def _send_ahead(self) -> None:
        if self._ahead < self.framer.buffered:
            self.forward(self.framer.rest_from(self._ahead))
            self._ahead = self.framer.buffered

    def _take_rest(self) -> None:
        self.take(self.rest().unsent)

    def _limit_reading(self) -> None:
        """Pause reading while too many bytes wait to be written, or wait behind a frame that is kept back."""
        waiting = self.framer.buffered if self._kept else 0
        self.source.set_reading(on=self.target.queued < MOST_QUEUED and waiting < MOST_QUEUED)
