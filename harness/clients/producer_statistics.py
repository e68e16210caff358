"""Reads the client library's statistics: which producer id it has, and whether a request was sent twice.

librdkafka sends a request again without a word when its connection broke or its answer did not come. For
the end of a transaction that is dangerous: the first copy may still be on its way, and the coordinator
applies it to whatever transaction it finds open when it arrives. Three things tell:

    counters    more requests to end a transaction than ends were asked for (the same for offsets)
    errors      the connection to the transaction coordinator broke
    duration    a call that returned before a retry could have begun needs no statistics
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from confluent_kafka import KafkaError

from harness.evidence.history import HistoryWriter

COORDINATOR: Final = "TxnCoordinator"
WATCHED: Final = ("EndTxn", "TxnOffsetCommit")
# Where records wait until the topic's partitions are known; they are counted again where they are then put.
UNASSIGNED: Final = "-1"


class _Broker(msgspec.Struct):
    disconnects: int = 0
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


class IdentityLog:
    """Writes a producer's id and epoch into the history whenever the statistics show another."""

    def __init__(self, number: int, history: HistoryWriter) -> None:
        self._number = number
        self._history = history
        self.seen: tuple[int, int] | None = None
        self.reports = 0
        self.resent = 0

    def on_statistics(self, text: str) -> None:
        """Take the statistics as the client library hands them out."""
        statistics = msgspec.json.decode(text, type=_Statistics)
        self.note(statistics.eos)
        self.reports += 1
        # More were sent than there are: the rest were sent again. What waits to be sent hides as many.
        counted = [
            partition.txmsgs - partition.msgs
            for topic in statistics.topics.values()
            for name, partition in topic.partitions.items()
            if name != UNASSIGNED
        ]
        self.resent = max(self.resent, sum(counted))

    def note(self, eos: _Eos) -> None:
        """Compare with what was seen last."""
        identity = (eos.producer_id, eos.producer_epoch)
        if eos.producer_id >= 0 and identity != self.seen:
            self.seen = identity
            op = self._history.invoke("identity", producer=self._number)
            self._history.ok(op, pid=eos.producer_id, epoch=eos.producer_epoch)


class RequestCounter:
    """Counts the requests of one transactional producer against what it was asked to do."""

    def __init__(self, identity: IdentityLog) -> None:
        self._identity = identity
        self._asked = dict.fromkeys(WATCHED, 0)
        self._sent = dict.fromkeys(WATCHED, 0)
        self._broken = 0
        self._reports = 0
        self.resent_ends = 0
        self.doubt = ""

    def ask(self, request: str) -> None:
        """Expect one more of this request."""
        self._asked[request] += 1

    def on_statistics(self, text: str) -> None:
        """Take the statistics as the client library hands them out."""
        statistics = msgspec.json.decode(text, type=_Statistics)
        self._reports += 1
        self._identity.note(statistics.eos)
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
        """Take an error that the client library reports by itself."""
        if COORDINATOR in (error.str() or ""):
            self.doubt = self.doubt or f"the transaction coordinator: {error.name()}"

    def fresh(self, serve: Callable[[float], None], wait: Callable[[Callable[[], bool]], bool]) -> None:
        """Wait for statistics that were made after this call; without any, there is doubt.

        What lies in the queue already is older, and is taken first. An end that the counters do not show
        yet was not counted when they were read: the next ones have it.
        """
        serve(0)
        before = self._reports

        def told() -> bool:
            return self._reports > before and self._sent["EndTxn"] >= self._asked["EndTxn"]

        if not wait(told) and not self.doubt:
            self.doubt = "no statistics came after the end"
