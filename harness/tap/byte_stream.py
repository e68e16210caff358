"""One direction of a connection: what comes in goes out, except for what a fault takes or keeps.

While no rule is armed bytes are forwarded as they are read and looked at afterwards. While one is armed a
frame is forwarded only when it is whole: somebody may want it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from harness.tap.frame_lines import ByteAccount, Side
from harness.tap.framing import Framer, Piece
from harness.tap.nonblocking_socket import MOST_QUEUED, Wire


class Rest(NamedTuple):
    """What a stream leaves in the tap when it ends within a frame."""

    unsent: bytes
    frame: int
    """The bytes of the frame that came, those included that went out before it was whole."""


class Handler(Protocol):
    """Who looks at the pieces of a flow and decides what becomes of them."""

    def must_look_first(self) -> bool:
        """Whether frames must be whole before they go on."""
        ...

    def piece(self, flow: ByteStream, piece: Piece, sent: int) -> None:
        """Deal with a piece, of which so many bytes are on their way already."""
        ...

    def ended(self, flow: ByteStream) -> None:
        """The source has ended, and nothing of it is kept."""
        ...


class ByteStream:
    """Bytes from a source to a target."""

    def __init__(self, side: Side, source: Wire, target: Wire, handler: Handler) -> None:
        self.side: Side = side
        self.source = source
        self.target = target
        self.framer = Framer()
        self.taken = 0
        self.silenced = False
        self._handler = handler
        self._ahead = 0  # bytes at the head of the framer's buffer that went out before they were a piece
        self._kept = b""
        self._over = False
        source.on_data = self._feed
        source.on_end = self.run
        target.on_drained = self._press

    @property
    def keeps(self) -> bool:
        """Whether a frame is kept back, and everything behind it."""
        return bool(self._kept)

    @property
    def over(self) -> bool:
        """Whether the end of the source has been passed on."""
        return self._over

    def forward(self, data: bytes) -> None:
        """Send these bytes on."""
        self.target.send(data)

    def take(self, data: bytes) -> None:
        """Let a fault have these bytes."""
        self.taken += len(data)

    def keep(self, frame: bytes) -> None:
        """Keep a frame back; whatever is behind it waits."""
        self._kept = frame

    def go_on(self, *, deliver: bool) -> None:
        """Send the frame that was kept, or let it be lost, and go on with what is behind it."""
        frame, self._kept = self._kept, b""
        if deliver:
            self.forward(frame)
        else:
            self.take(frame)
        self.run()

    def silence(self) -> None:
        """From here on a fault takes everything."""
        self.silenced = True
        self._take_rest()

    def run(self) -> None:
        """Deal with every piece that is whole and not behind a frame that is kept."""
        while not self._kept and not self.silenced and (piece := self.framer.next()) is not None:
            sent = min(self._ahead, len(piece.data))
            self._ahead -= sent
            self._handler.piece(self, piece, sent)
        if self.silenced:
            self._take_rest()
        elif not self._kept and not self._handler.must_look_first():
            self._send_ahead()
        self._press()
        if self.source.ended and not self._kept and not self._over:
            self._over = True
            self._handler.ended(self)

    def rest(self) -> Rest:
        """Take out what is left of the stream after its end; its first bytes may have gone out before."""
        data, ahead = self.framer.drain(), self._ahead
        self._ahead = 0
        return Rest(data[ahead:], len(data))

    def leave(self, *, by_fault: bool) -> int:
        """Give up what is inside; return how much of it nobody took."""
        lost = len(self._kept) + len(self.rest().unsent)
        self._kept = b""
        if by_fault:
            self.taken += lost
            return 0
        return lost

    def account(self) -> ByteAccount:
        """The bytes so far."""
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

    def _press(self) -> None:
        """Hold the source back while the target is slow, or while much waits behind a frame that is kept."""
        waiting = self.framer.buffered if self._kept else 0
        self.source.read(wanted=self.target.queued < MOST_QUEUED and waiting < MOST_QUEUED)
