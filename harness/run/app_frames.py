"""What the frame log of a run shows about the application under test: its group, time limits and topics.

The limits are those that the application itself sends to the brokers, so nothing has to be guessed. The log
also contains the frames of the harness's own clients, which are left out by their client ids.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Final

import msgspec

from harness.base.partition_id import PartitionId
from harness.tap.frame_lines import Connection, Frame, Line

MOST_PENDING: Final = 10_000
"""Most unanswered requests that are remembered."""


class AppConnection(msgspec.Struct):
    """A connection of the application through the wire tap, and the names that its requests contained."""

    address: str
    client_ids: set[str] = set()
    members: set[str] = set()
    transactional_ids: set[str] = set()
    fetched_at: int = 0
    """Monotonic time of the latest Fetch request, in nanoseconds; 0 if there was none."""

    @property
    def port(self) -> int:
        """Port of the connection on the side of the application."""
        return int(self.address.rpartition(":")[2])


class WrittenTopic(msgspec.Struct):
    """How the application wrote a topic: batches in transactions, and batches outside of transactions."""

    inside: int = 0
    outside: int = 0
    acks: set[int] = set()


class Observed(msgspec.Struct):
    """Everything that was learned about the application so far. Times are in milliseconds."""

    connections: dict[int, AppConnection] = {}
    session_timeouts: dict[str, int] = {}
    """Session time-out of each member of a group, by its client id."""
    rebalance_timeouts: dict[str, int] = {}
    transaction_timeouts: dict[str, int] = {}
    """Transaction time-out by transactional id."""
    longest_transaction_ms: float = 0.0
    request_timeout_ms: int = 0
    """Longest request time-out of a producer; 0 if none was seen."""
    groups: set[str] = set()
    fetched: dict[PartitionId, int] = {}
    """The connection that asked for each partition last. Later requests of a fetch session do not name it."""
    isolations: dict[str, set[str]] = {}
    """Isolation levels with which each topic was fetched."""
    written: dict[str, WrittenTopic] = {}
    producer_ids: set[int] = set()
    client_ids: set[str] = set()
    positions_inside: int = 0
    """Number of requests that committed positions as part of a transaction (TxnOffsetCommit)."""
    positions_outside: int = 0
    """Number of requests that committed positions apart from transactions (OffsetCommit)."""
    end_versions: set[int] = set()
    aborts_sent: dict[str, int] = {}
    """Number of requests to abort (EndTxn) by transactional id."""
    undecoded: set[str] = set()
    """Apis of frames that could not be decoded, such as those of a newer client."""

    def fetched_since(self, monotonic_ns: int) -> set[PartitionId]:
        """Return the partitions whose connection has sent a Fetch request after this time."""
        active = {conn for conn, each in self.connections.items() if each.fetched_at > monotonic_ns}
        return {place for place, conn in self.fetched.items() if conn in active}


class AppFrames:
    """Reader of a frame log that is still written. Each call of `read` continues where the last one ended."""

    def __init__(
        self, path: Path, own_clients: Callable[[], Collection[str]], flush: Callable[[], None]
    ) -> None:
        self._path = path
        self._own_clients = own_clients
        self._flush = flush
        self._offset = 0
        self._began: dict[str, int] = {}
        self._asked: dict[tuple[int, int], Frame] = {}
        self._decoder = msgspec.json.Decoder(Line)
        self.observed = Observed()

    def read(self) -> Observed:
        """Read the lines that were added since the last call, and return what is known now."""
        self._flush()
        own = set(self._own_clients())
        for line in self._new_lines():
            if isinstance(line, Connection):
                self.observed.connections[line.conn] = AppConnection(line.client)
            elif isinstance(line, Frame) and line.client_id not in own:
                self._frame(line)
            elif isinstance(line, Frame):
                self.observed.connections.pop(line.conn, None)
        return self.observed

    def connections_from(self, ports: Collection[int]) -> list[AppConnection]:
        """Return the latest connection from each of these local ports."""
        latest = {connection.port: connection for connection in self.observed.connections.values()}
        return [latest[port] for port in ports if port in latest]

    def _new_lines(self) -> Iterator[Connection | Frame]:
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for raw in file:
                if not raw.endswith(b"\n"):
                    return  # the tap has not written the rest of this line yet
                self._offset += len(raw)
                line = self._decoder.decode(raw)
                if isinstance(line, Connection | Frame):
                    yield line

    def _frame(self, frame: Frame) -> None:
        seen = self.observed
        connection = seen.connections.get(frame.conn)
        if frame.client_id:
            seen.client_ids.add(frame.client_id)
        if frame.undecoded:
            seen.undecoded.add(frame.api)
        if frame.side == "request":
            seen.positions_inside += frame.api == "TxnOffsetCommit"
            seen.positions_outside += frame.api == "OffsetCommit"
        if connection is None or frame.facts is None:
            return
        facts = frame.facts
        if frame.client_id:
            connection.client_ids.add(frame.client_id)
        if facts.member and not facts.error:
            connection.members.add(facts.member)
        if frame.side == "response":
            request = self._asked.pop((frame.conn, frame.correlation), None)
            self._response(frame, request)
            return
        if facts.transactional_id:
            connection.transactional_ids.add(facts.transactional_id)
        if facts.group:
            seen.groups.add(facts.group)
        if len(self._asked) < MOST_PENDING and frame.api in ("InitProducerId", "EndTxn"):
            self._asked[frame.conn, frame.correlation] = frame
        self._request(frame)

    def _request(self, frame: Frame) -> None:
        seen, facts = self.observed, frame.facts
        assert facts is not None
        if frame.api == "JoinGroup":
            seen.session_timeouts[frame.client_id] = facts.session_timeout_ms or 0
            seen.rebalance_timeouts[frame.client_id] = facts.rebalance_timeout_ms or 0
        elif frame.api == "InitProducerId" and facts.transactional_id:
            seen.transaction_timeouts[facts.transactional_id] = facts.transaction_timeout_ms or 0
        elif frame.api == "EndTxn":
            seen.end_versions.add(frame.version)
            if facts.committed is False and (ident := facts.transactional_id):
                seen.aborts_sent[ident] = seen.aborts_sent.get(ident, 0) + 1
        elif frame.api == "Fetch":
            seen.connections[frame.conn].fetched_at = frame.mono
            for place in facts.partitions:
                seen.fetched[place.topic, place.partition] = frame.conn
                seen.isolations.setdefault(place.topic, set()).add(facts.isolation or "")
        elif frame.api == "Produce":
            seen.request_timeout_ms = max(seen.request_timeout_ms, facts.request_timeout_ms or 0)
            for batch in facts.batches:
                if batch.producer_id >= 0:
                    seen.producer_ids.add(batch.producer_id)  # it may be older than the frame log
                written = seen.written.setdefault(batch.topic, WrittenTopic())
                written.inside += batch.transactional
                written.outside += not batch.transactional
                written.acks.add(-1 if facts.acks is None else facts.acks)
        in_transaction = frame.api in ("Produce", "AddPartitionsToTxn", "AddOffsetsToTxn")
        if in_transaction and facts.transactional_id:
            self._began.setdefault(facts.transactional_id, frame.mono)

    def _response(self, frame: Frame, request: Frame | None) -> None:
        if request is None or request.facts is None or frame.facts is None:
            return
        if frame.facts.producer_id is not None:
            self.observed.producer_ids.add(frame.facts.producer_id)
        if request.api == "EndTxn" and not frame.facts.error:
            began = self._began.pop(request.facts.transactional_id or "", None)
            if began is not None:
                took = (frame.mono - began) / 1e6
                self.observed.longest_transaction_ms = max(self.observed.longest_transaction_ms, took)
