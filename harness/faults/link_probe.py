"""Measurements on a link from clients to a broker: round trips, rates, pieces of an answer, cut connections.

A measurement that needs a request sends ApiVersions. Only `loses_answer` sends a request that its caller
chooses.
"""

from __future__ import annotations

import select
import time
from dataclasses import dataclass
from typing import Any

from harness.kafka.connection import RawConnection
from harness.kafka.security import PLAINTEXT, Security

QUICK_S = 0.6  # seconds; loopback answers take milliseconds, so a peer that takes longer counts as silent


@dataclass(frozen=True)
class Link:
    """The link from clients to a broker, which leads through a Toxiproxy proxy.

    `host` and `port` are the address of that proxy.
    """

    proxy: str
    broker: int
    host: str
    port: int
    security: Security = PLAINTEXT

    def connect(self, timeout: float = 5.0) -> RawConnection:
        """Open a connection over this link."""
        return RawConnection(self.host, self.port, timeout, self.security)

    def round_trips_ms(self, count: int, timeout: float = 10.0) -> list[float]:
        """Return the round-trip times in milliseconds of `count` requests over one new connection."""
        with self.connect(timeout) as connection:
            return [round_trip_ms(connection) for _ in range(count)]

    def refuses(self) -> bool:
        """Return whether a new connection is refused, or is closed before an answer arrives."""
        try:
            with self.connect(2.0) as connection:
                connection.send_api_versions()
                connection.read_frame()
        except (ConnectionError, EOFError):
            return True
        return False

    def answers(self, timeout: float) -> bool:
        """Return whether a request over a new connection is answered within the time limit."""
        try:
            self.round_trips_ms(1, timeout)
        except (OSError, EOFError):
            return False
        return True

    def loses_answer(self, request: Any) -> bool:
        """Send a request over a new connection.

        Return whether the connection is closed before the answer arrives.
        """
        try:
            with self.connect() as connection:
                connection.call(request)
        except (ConnectionError, EOFError):
            return True
        return False

    def bytes_per_second(self, total: int) -> float:
        """Return the rate at which answers arrive, in bytes per second.

        All requests are sent first. Their answers together have about `total` bytes.
        """
        with self.connect(60.0) as connection:
            connection.send_api_versions()
            answer = len(connection.read_frame()) + 4
            count = max(2, total // answer)
            start = time.monotonic()
            for _ in range(count):
                connection.send_api_versions()
            for _ in range(count):
                connection.read_frame()
            return count * answer / (time.monotonic() - start)

    def reads_for_one_answer(self) -> int:
        """Return the number of pieces in which one answer arrives. Each piece is one read from the socket."""
        with self.connect(10.0) as connection:
            connection.send_api_versions()
            data = connection.read_some()
            size = 4 + int.from_bytes(data[:4], "big") if len(data) >= 4 else None
            reads = 1
            while size is None or len(data) < size:
                data += connection.read_some()
                size = 4 + int.from_bytes(data[:4], "big") if len(data) >= 4 else None
                reads += 1
            return reads


def round_trip_ms(connection: RawConnection) -> float:
    """Send one request and read its answer. Return the time that this took, in milliseconds."""
    start = time.monotonic()
    connection.send_api_versions()
    connection.read_frame()
    return (time.monotonic() - start) * 1000


def silent_for(connection: RawConnection, seconds: float) -> bool:
    """Return whether the connection delivers no data and stays open for this number of seconds."""
    readable, _, _ = select.select([connection], [], [], seconds)
    return not readable


def is_cut(connection: RawConnection, within: float) -> bool:
    """Return whether the peer closes or resets this connection within this number of seconds."""
    if silent_for(connection, within):
        return False
    try:
        return connection.read_some() == b""
    except ConnectionError:
        return True
