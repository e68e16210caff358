"""Client bugs that a scenario plants on purpose, to show that the checkers notice them.

A workload names its bug with the key `planted_bug`. The client process then replaces some functions of the
client's modules before it creates the client. So the clients themselves contain no code for bugs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

Patch = tuple[Any, str, Any]
"""A replacement: the module or class, the name of its attribute, and the new value."""
Occasion = Callable[[], bool]


class Reported:
    """Stand-in for a delivered record whose offset the client library does not know."""

    def offset(self) -> None:
        return None


class PlantedBug(NamedTuple):
    """A client bug: the kinds of clients that can have it, what the client does, and the replacements."""

    kinds: tuple[str, ...]
    does: str
    patches: Callable[[], list[Patch]]


def plant(name: str) -> None:
    """Give every client of this process a bug."""
    for owner, attribute, value in BUGS[name].patches():
        setattr(owner, attribute, value)


def occasions(first: int, period: int) -> Occasion:
    """Return a function that returns True in its call number `first`, and then once per `period` calls."""
    calls = itertools.count(1)

    def is_due() -> bool:
        call = next(calls)
        return call >= first and (call - first) % period == 0

    return is_due


# Bugs of the history: the client records something else than it does


def _rewrites_sent(fs: Sequence[str], change: Callable[[list[Any]], list[Any]]) -> list[Patch]:
    """Replace the intervals that the history lists for one of these operations, now and then."""
    from harness.evidence.history import HistoryWriter

    invoke, due = HistoryWriter.invoke, occasions(5, 20)

    def wrong_invoke(self: HistoryWriter, f: str, *, sent: Iterable[Any] = (), **fields: Any) -> int:
        intervals = list(sent)
        if f in fs and intervals and due():
            intervals = change(intervals)
        return invoke(self, f, sent=intervals, **fields)

    return [(HistoryWriter, "invoke", wrong_invoke)]


def _wrong_sequence() -> list[Patch]:
    return _rewrites_sent(
        ("send", "commit"), lambda sent: [(lane, first + 1, last + 1) for lane, first, last in sent]
    )


def _unrecorded_send() -> list[Patch]:
    def without_last(sent: list[Any]) -> list[Any]:
        *others, (lane, first, last) = sent
        return [*others, (lane, first, last - 1)] if last > first else others

    return _rewrites_sent(("send", "commit"), without_last)


# Bugs of the producer


def _producers(methods: Callable[[type[Any]], dict[str, Any]]) -> list[Patch]:
    """Replace the client library's producer by a subclass with these methods."""
    from harness.clients import idempotent, producer_lifecycle

    return [
        (module, "Producer", type("Producer", (module.Producer,), methods(module.Producer)))
        for module in (idempotent, producer_lifecycle)
    ]


def _forgotten_send() -> list[Patch]:
    due = occasions(100, 500)

    def methods(base: type[Any]) -> dict[str, Any]:
        def produce(self: Any, topic: str, value: bytes, *args: Any, **fields: Any) -> None:
            if not due():
                base.produce(self, topic, value, *args, **fields)
            elif on_delivery := fields.get("on_delivery"):
                on_delivery(None, Reported())

        return {"produce": produce}

    return _producers(methods)


def _double_send() -> list[Patch]:
    due = occasions(100, 500)

    def methods(base: type[Any]) -> dict[str, Any]:
        def produce(self: Any, topic: str, value: bytes, *args: Any, **fields: Any) -> None:
            base.produce(self, topic, value, *args, **fields)
            if due():
                base.produce(self, topic, value, *args, partition=fields["partition"])

        return {"produce": produce}

    return _producers(methods)


def _ok_without_waiting() -> list[Patch]:
    from harness.clients.idempotent import BurstProducer

    send, due = BurstProducer.send, occasions(5, 10)

    def impatient_send(self: BurstProducer, lane: int, values: list[bytes]) -> None:
        send(self, lane, values)
        if due():
            burst = self.open[-1]
            for _ in range(burst.waiting):
                burst.delivered(None, Reported())  # type: ignore[arg-type]
            # The records fail after the client has reported them as delivered.
            self._producer.purge(in_queue=True, in_flight=False, blocking=False)

    return [(BurstProducer, "send", impatient_send)]


def _commit_that_aborts() -> list[Patch]:
    due = occasions(5, 20)

    def methods(base: type[Any]) -> dict[str, Any]:
        def commit_transaction(self: Any, *args: Any) -> None:
            (base.abort_transaction if due() else base.commit_transaction)(self, *args)

        return {"commit_transaction": commit_transaction}

    return _producers(methods)


def _abort_that_commits() -> list[Patch]:
    due = occasions(2, 3)

    def methods(base: type[Any]) -> dict[str, Any]:
        def abort_transaction(self: Any, *args: Any) -> None:
            (base.commit_transaction if due() else base.abort_transaction)(self, *args)

        return {"abort_transaction": abort_transaction}

    return _producers(methods)


# Bugs of a pipeline worker


def _transforms(change: Callable[[list[Any]], list[Any]]) -> list[Patch]:
    """Replace the inputs that a pipeline worker processes, now and then."""
    from harness.clients.pipeline import PipelineClient

    transform, due = PipelineClient._transform, occasions(3, 10)

    def wrong_transform(self: PipelineClient, records: list[Any], outcome: str) -> None:
        transform(self, change(records) if due() else records, outcome)

    return [(PipelineClient, "_transform", wrong_transform)]


def _skipped_input() -> list[Patch]:
    def without_one(records: list[Any]) -> list[Any]:
        """Leave out the first record that a later record of the same partition follows."""
        partitions = [record.partition for record in records]
        skipped = next((i for i, p in enumerate(partitions) if p in partitions[i + 1 :]), len(records))
        return records[:skipped] + records[skipped + 1 :]

    return _transforms(without_one)


def _input_processed_twice() -> list[Patch]:
    return _transforms(lambda records: [records[0], *records])


def _offsets_outside_transaction() -> list[Patch]:
    from harness.clients.pipeline import PipelineClient

    init = PipelineClient.__init__

    def wrong_init(self: PipelineClient, *args: Any) -> None:
        init(self, *args)
        outputs: Any = self._outputs
        outputs.send_offsets = lambda _group, positions, _metadata: self._source.commit(positions)

    return [(PipelineClient, "__init__", wrong_init)]


# Bugs of a consumer


def _consumers(change: Callable[[Any, list[Any]], list[Any]]) -> list[Patch]:
    """Replace the client library's consumer by a subclass that changes what a poll returns."""
    from harness.clients import group_consumer, reader

    def subclass(base: type[Any]) -> type[Any]:
        def consume(self: Any, *args: Any, **fields: Any) -> list[Any]:
            return change(self, base.consume(self, *args, **fields))

        return type("Consumer", (base,), {"consume": consume})

    return [(module, "Consumer", subclass(module.Consumer)) for module in (reader, group_consumer)]


def _dropped_record() -> list[Patch]:
    due = occasions(3, 10)

    def without_one(_: Any, messages: list[Any]) -> list[Any]:
        places = [(message.topic(), message.partition()) for message in messages]
        inner = [i for i in range(1, len(places) - 1) if places[i - 1] == places[i] == places[i + 1]]
        return messages[: inner[0]] + messages[inner[0] + 1 :] if inner and due() else messages

    return _consumers(without_one)


def _unrecorded_rewind() -> list[Patch]:
    due = occasions(3, 10)

    def go_back(consumer: Any, messages: list[Any]) -> list[Any]:
        from confluent_kafka import TopicPartition

        good = [message for message in messages if message.error() is None]
        if good and due():
            last = good[-1]
            consumer.seek(TopicPartition(last.topic(), last.partition(), max(0, last.offset() - 10)))
        return messages

    return _consumers(go_back)


_WRITERS: Final = ("idempotent", "transactional")
_CONSUMERS: Final = ("reader", "pipeline")
BUGS: Final[dict[str, PlantedBug]] = {
    "wrong-sequence": PlantedBug(
        _WRITERS, "records sequences that are one too high for its records", _wrong_sequence
    ),
    "unrecorded-send": PlantedBug(_WRITERS, "sends a record that it does not record", _unrecorded_send),
    "forgotten-send": PlantedBug(
        _WRITERS, "records a record as delivered that it never sends", _forgotten_send
    ),
    "double-send": PlantedBug(_WRITERS, "sends a record twice", _double_send),
    "ok-without-waiting": PlantedBug(
        ("idempotent",), "records a burst as delivered before its delivery fails", _ok_without_waiting
    ),
    "commit-that-aborts": PlantedBug(
        ("transactional", "pipeline"), "aborts a transaction and records a commit", _commit_that_aborts
    ),
    "abort-that-commits": PlantedBug(
        ("transactional", "pipeline"), "commits a transaction and records an abort", _abort_that_commits
    ),
    "skipped-input": PlantedBug(
        ("pipeline",), "commits a position after an input that it did not process", _skipped_input
    ),
    "input-processed-twice": PlantedBug(("pipeline",), "processes an input twice", _input_processed_twice),
    "offsets-outside-transaction": PlantedBug(
        ("pipeline",),
        "commits its positions directly, so that an abort does not undo them",
        _offsets_outside_transaction,
    ),
    "dropped-record": PlantedBug(
        _CONSUMERS, "loses a record between the client library and its own code", _dropped_record
    ),
    "unrecorded-rewind": PlantedBug(("reader",), "goes back in a partition by itself", _unrecorded_rewind),
}
"""Every planted bug by the name that a scenario uses."""
