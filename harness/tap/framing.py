"""Division of a byte stream into Kafka frames. Every byte is returned once and in order.

The division never fails: bytes that cannot be a frame are returned unchanged, as a piece of another kind.
"""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import NamedTuple

MOST_BYTES = 100 * 1024 * 1024
"""Maximum size of a frame that is read as a whole. It is the default limit of a broker for a request
(socket.request.max.bytes); responses are smaller.
"""

_LENGTH = struct.Struct(">i")
_REQUEST_HEAD = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")
_TLS_HANDSHAKE = 0x16


class Kind(StrEnum):
    """The kind of a piece of a byte stream."""

    FRAME = "frame"  # a complete frame: a length and that number of bytes
    OVERSIZED = "oversized"  # the start of a frame that is too long to be buffered
    REST = "rest"  # a later part of an oversized frame
    BLIND = "blind"  # bytes of a stream whose frame boundaries are unknown


class Piece(NamedTuple):
    """Consecutive bytes of a stream, and the kind of this piece."""

    kind: Kind
    data: bytes


class Head(NamedTuple):
    """The fields at the start of every request."""

    key: int
    version: int
    correlation: int
    client_id: str


class MalformedError(ValueError):
    """Error for a frame that can be neither a request nor a response."""


class Framer:
    """Framer of one direction of a connection. It splits the bytes into frames and other pieces."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._buffer = bytearray()
        self._oversized_left = 0
        self._begun = False
        self.blind: str | None = None

    @property
    def buffered(self) -> int:
        """Number of bytes that were pushed but not yet returned in a piece."""
        return len(self._buffer)

    def push(self, data: bytes) -> None:
        self._buffer += data

    def rest_from(self, start: int) -> bytes:
        """Return the buffered bytes from the position `start` on, without removing them."""
        return bytes(memoryview(self._buffer)[start:])

    def drain(self) -> bytes:
        """Remove and return all buffered bytes."""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def next(self) -> Piece | None:
        """Remove and return the next piece. Return None if the piece needs more bytes."""
        if self._buffer and not self._begun:
            self._begun = True
            if self._buffer[0] == _TLS_HANDSHAKE:
                self.blind = "tls"
        if self._buffer and self.blind:
            return Piece(Kind.BLIND, self.drain())
        if self._buffer and self._oversized_left:
            return Piece(Kind.REST, self._take_oversized())
        return self._next_frame() if len(self._buffer) >= _LENGTH.size else None

    def _next_frame(self) -> Piece | None:
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length < 0:
            self.blind = f"a frame of {length} bytes"
            return Piece(Kind.BLIND, self.drain())
        size = _LENGTH.size + length
        if length > self._most:
            self._oversized_left = size
            return Piece(Kind.OVERSIZED, self._take_oversized())
        if len(self._buffer) < size:
            return None
        return Piece(Kind.FRAME, self._take(size))

    def go_blind(self, why: str) -> None:
        """Stop the division into frames: return all later bytes as BLIND pieces."""
        self.blind = self.blind or why

    def _take_oversized(self) -> bytes:
        data = self._take(min(self._oversized_left, len(self._buffer)))
        self._oversized_left -= len(data)
        return data

    def _take(self, size: int) -> bytes:
        data = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        return data


def request_head(frame: bytes) -> Head:
    """Read the head of a request. Its four fields have the same position in every version."""
    try:
        key, version, correlation, length = _REQUEST_HEAD.unpack_from(frame, _LENGTH.size)
    except struct.error as error:
        raise MalformedError(
            f"a request of {len(frame) - _LENGTH.size} bytes is too short for its head"
        ) from error
    begin = _LENGTH.size + _REQUEST_HEAD.size
    name = frame[begin : begin + max(length, 0)]
    if len(name) < length or length < -1:
        raise MalformedError(f"a client id of {length} bytes in a request of {len(frame) - _LENGTH.size}")
    return Head(key, version, correlation, name.decode(errors="replace"))


def correlation_of(frame: bytes) -> int:
    """Read the correlation id of a response."""
    try:
        return int(_CORRELATION.unpack_from(frame, _LENGTH.size)[0])
    except struct.error as error:
        raise MalformedError(
            f"a response of {len(frame) - _LENGTH.size} bytes has no correlation id"
        ) from error
