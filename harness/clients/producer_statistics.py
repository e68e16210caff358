"""Reader of librdkafka's statistics: the producer id, and whether a request was sent twice.

librdkafka silently retries a request when the connection broke or no answer came. For the end of a
transaction this is dangerous. The first copy of the EndTxn may still be in transit, and the coordinator
applies it to whichever transaction is open when it arrives. Three signals are used to detect a retry:

    counters    more EndTxn requests than commits and aborts: there was a retry
                (the same for TxnOffsetCommit requests and calls that send offsets)
    errors      the connection to the transaction coordinator broke: there may have been a retry
    duration    the call returned before a retry was possible: there was no retry
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from confluent_kafka import KafkaError

from harness.clients.progress import ClientProgress
from harness.evidence.history import HistoryWriter

COORDINATOR: Final = "TxnCoordinator"
WATCHED: Final = ("EndTxn", "TxnOffsetCommit")
# Pseudo-partition for records whose partition is not yet known; librdkafka counts these records again later.
UNASSIGNED: Final = "-1"


class _Broker(msgspec.Struct):
    disconnects: int = 0
    txretries: int = 0
    req_timeouts: int = 0
    req: dict[str, int] = {}


class _Eos(msgspec.Struct):
    producer_id: int = -1
    producer_epoch: int = -1


class _Partition(msgspec.Struct):
    msgs: int = 0
    txmsgs: int = 0


class _Topic(msgspec.Struct):
    partitions: dict[str, _Partition] = {}


class _Statistics(msgspec.Struct):
    brokers: dict[str, _Broker] = {}
    topics: dict[str, _Topic] = {}
    eos: _Eos = msgspec.field(default_factory=_Eos)


class RequestTotals:
    """Counters of a client's requests, over all producers that it has had."""

    def __init__(self, progress: ClientProgress) -> None:
        self._progress = progress
        self._now = (0, 0, 0)
        self._before = (0, 0, 0)

    def renew(self) -> None:
        """Expect the reports of a new producer, whose counters begin at 0."""
        self._before, self._now = self._sum(), (0, 0, 0)

    def add(self, statistics: _Statistics) -> None:
        """Take over the counters of a report."""
        brokers = statistics.brokers.values()
        self._now = (
            sum(broker.txretries for broker in brokers),
            sum(broker.req_timeouts for broker in brokers),
            sum(broker.disconnects for broker in brokers),
        )
        progress = self._progress
        progress.request_retries, progress.request_timeouts, progress.broken_connections = self._sum()

    def _sum(self) -> tuple[int, int, int]:
        before, now = self._before, self._now
        return before[0] + now[0], before[1] + now[1], before[2] + now[2]


class IdentityLog:
    """Writer of a producer's id and epoch to the history, whenever the statistics show a change."""

    def __init__(self, number: int, history: HistoryWriter, progress: ClientProgress) -> None:
        self._number = number
        self._history = history
        self.totals = RequestTotals(progress)
        self.seen: tuple[int, int] | None = None
        self.reports = 0
        self.resent = 0

    def on_statistics(self, text: str) -> None:
        """Read producer id, epoch and number of repeated transmissions; usable as the library's callback."""
        statistics = msgspec.json.decode(text, type=_Statistics)
        self.note(statistics.eos)
        self.totals.add(statistics)
        self.reports += 1
        # `txmsgs` counts transmissions of records, and `msgs` counts records. The difference is therefore the
        # number of repeated transmissions. A record that is still queued counts in `msgs` only, so each
        # queued record makes the difference one too small.
        counted = [
            partition.txmsgs - partition.msgs
            for topic in statistics.topics.values()
            for name, partition in topic.partitions.items()
            if name != UNASSIGNED
        ]
        self.resent = max(self.resent, sum(counted))

    def note(self, eos: _Eos) -> None:
        """Record the producer id and epoch in the history if one of them has changed."""
        identity = (eos.producer_id, eos.producer_epoch)
        if eos.producer_id >= 0 and identity != self.seen:
            self.seen = identity
            op = self._history.invoke("identity", producer=self._number)
            self._history.ok(op, pid=eos.producer_id, epoch=eos.producer_epoch)


class RequestCounter:
    """Comparison of a transactional producer's requests with its calls, to find repeated requests."""

    def __init__(self, identity: IdentityLog) -> None:
        self._identity = identity
        self._asked = dict.fromkeys(WATCHED, 0)
        self._sent = dict.fromkeys(WATCHED, 0)
        self._broken = 0
        self._reports = 0
        self.resent_ends = 0
        self.doubt = ""

    def ask(self, request: str) -> None:
        """Count one more call, for which one request of this kind is expected."""
        self._asked[request] += 1

    def on_statistics(self, text: str) -> None:
        """Compare the requests in statistics with the calls made; usable as the library's callback."""
        statistics = msgspec.json.decode(text, type=_Statistics)
        self._reports += 1
        self._identity.note(statistics.eos)
        self._identity.totals.add(statistics)
        for name in WATCHED:
            sent = sum(broker.req.get(name, 0) for broker in statistics.brokers.values())
            if sent < self._sent[name]:
                self.doubt = self.doubt or f"the count of {name} requests went back"
            if sent > self._asked[name]:
                self.doubt = f"{name} was sent {sent} times for {self._asked[name]} calls"
            self._sent[name] = sent
        self.resent_ends = max(self.resent_ends, self._sent["EndTxn"] - self._asked["EndTxn"])
        coordinator = statistics.brokers.get(COORDINATOR)
        if coordinator is not None and coordinator.disconnects > self._broken:
            self._broken = coordinator.disconnects
            self.doubt = self.doubt or "the connection to the transaction coordinator broke"

    def on_error(self, error: KafkaError) -> None:
        """Handle an error that the library reports outside of any call.

        If the error names the transaction coordinator, set `doubt`.
        """
        if COORDINATOR in (error.str() or ""):
            self.doubt = self.doubt or f"the transaction coordinator: {error.name()}"

    def fresh(self, serve: Callable[[float], None], wait: Callable[[Callable[[], bool]], bool]) -> None:
        """Wait for statistics that were produced after this call. If none arrive, set `doubt`.

        Older statistics in the queue are read first. If the counters do not include the last EndTxn yet, the
        client waits for the next statistics.
        """
        serve(0)
        before = self._reports

        def fresh_statistics() -> bool:
            return self._reports > before and self._sent["EndTxn"] >= self._asked["EndTxn"]

        if not wait(fresh_statistics) and not self.doubt:
            self.doubt = "no statistics came after the end"
