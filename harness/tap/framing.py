"""Cuts a stream of bytes into Kafka's frames; every byte that goes in comes out, once and in order.

Whatever the bytes are, cutting never fails: what cannot be a frame is passed on as it came, and named.
"""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import NamedTuple

MOST_BYTES = 100 * 1024 * 1024
"""A broker's own limit for a request (socket.request.max.bytes), and more than any answer that it gives."""

_LENGTH = struct.Struct(">i")
_REQUEST_HEAD = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")
_TLS_HANDSHAKE = 0x16


class Kind(StrEnum):
    """What a piece of the stream is."""

    FRAME = "frame"  # a length and as many bytes
    OVERSIZED = "oversized"  # the begin of a frame that is too long to be kept
    REST = "rest"  # more of an oversized frame
    BLIND = "blind"  # from here on nobody knows where frames begin


class Piece(NamedTuple):
    """Some bytes of the stream, and what they are."""

    kind: Kind
    data: bytes


class Head(NamedTuple):
    """What every request begins with."""

    key: int
    version: int
    correlation: int
    client_id: str


class MalformedError(ValueError):
    """A frame's bytes cannot be what its place in the stream says."""


class Framer:
    """Cuts one direction of one connection."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._buffer = bytearray()
        self._oversized_left = 0
        self._begun = False
        self.blind: str | None = None

    @property
    def buffered(self) -> int:
        """The bytes that went in and are in no piece yet."""
        return len(self._buffer)

    def push(self, data: bytes) -> None:
        """Put in what was read."""
        self._buffer += data

    def rest_from(self, start: int) -> bytes:
        """The buffered bytes from this position on; they stay."""
        return bytes(memoryview(self._buffer)[start:])

    def drain(self) -> bytes:
        """Take out what is buffered, whole frame or not."""
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    def next(self) -> Piece | None:
        """The next piece, None while more bytes are needed."""
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
        """Stop looking for frames: the bytes pass as they come."""
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
    """Read the head of a request; its four fields stand at the same place in every version."""
    try:
        key, version, correlation, length = _REQUEST_HEAD.unpack_from(frame, _LENGTH.size)
    except struct.error as error:
        raise MalformedError(
            f"a request of {len(frame) - _LENGTH.size} bytes has no room for its head"
        ) from error
    begin = _LENGTH.size + _REQUEST_HEAD.size
    name = frame[begin : begin + max(length, 0)]
    if len(name) < length or length < -1:
        raise MalformedError(f"a client id of {length} bytes in a request of {len(frame) - _LENGTH.size}")
    return Head(key, version, correlation, name.decode(errors="replace"))


def correlation_of(frame: bytes) -> int:
    """Read which request a response answers."""
    try:
        return int(_CORRELATION.unpack_from(frame, _LENGTH.size)[0])
    except struct.error as error:
        raise MalformedError(f"a response of {len(frame) - _LENGTH.size} bytes answers nobody") from error
