"""Client bugs that a scenario plants on purpose, to show that the checkers notice them.

A workload names its bug with the key `planted_bug`. The client process then replaces some functions of the
client's modules before it creates the client. So the clients themselves contain no code for bugs.

The client also records when its bug acted, and whether that certainly did harm (bug_log.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from harness.clients.bug_log import BugLog

Patch = tuple[Any, str, Any]
"""A replacement: the module or class, the name of its attribute, and the new value."""
Occasion = Callable[[], bool]


class Reported:
    """Stand-in for a delivered record whose offset the client library does not know."""

    def offset(self) -> None:
        return None


class PlantedBug(NamedTuple):
    """A client bug: the kinds of clients that can have it, what the client does, and the replacements.

    Once the bug did harm, the run must have at least one anomaly of `shows`. It may also have those of
    `also`, which follow from the same harm. If `shows` is empty, a reason of the verdict must be that the
    history contradicts itself.
    """

    kinds: tuple[str, ...]
    does: str
    patches: Callable[[BugLog], list[Patch]]
    shows: tuple[str, ...]
    also: tuple[str, ...] = ()


def plant(name: str, log: BugLog) -> None:
    """Give every client of this process a bug that records in `log` when it acts."""
    for owner, attribute, value in replacements(name, log):
        setattr(owner, attribute, value)


def replacements(name: str, log: BugLog) -> Iterator[Patch]:
    """Yield the replacements of a bug, in order. The caller makes each one before it takes the next one.

    Those of the log come last, because they call the methods that the bug has replaced.
    """
    yield from BUGS[name].patches(log)
    yield from log.patches()


def occasions(first: int, period: int) -> Occasion:
    """Return a function that returns True in its call number `first`, and then once per `period` calls."""
    calls = itertools.count(1)

    def is_due() -> bool:
        call = next(calls)
        return call >= first and (call - first) % period == 0

    return is_due


# Bugs of the history: the client records something else than it does


def _rewrites_sent(log: BugLog, fs: Sequence[str], change: Callable[[list[Any]], list[Any]]) -> list[Patch]:
    """Replace the intervals that the history lists for one of these operations, now and then."""
    from harness.evidence.history import HistoryWriter

    invoke, due = HistoryWriter.invoke, occasions(5, 20)
    wrong: dict[str, list[Any]] = {}
    """The wrong intervals of the last operation, by the right ones. A client may request an end again."""

    def wrong_invoke(self: HistoryWriter, f: str, *, sent: Iterable[Any] = (), **fields: Any) -> int:
        intervals = list(sent)
        if f in fs and intervals:
            right = f"{f} {intervals}"
            if right not in wrong:
                wrong.clear()
                wrong[right] = change(intervals) if due() else intervals
            if wrong[right] != intervals:
                log.fired_in_operation()
            intervals = wrong[right]
        return invoke(self, f, sent=intervals, **fields)

    return [(HistoryWriter, "invoke", wrong_invoke)]


def _wrong_sequence(log: BugLog) -> list[Patch]:
    return _rewrites_sent(
        log, ("send", "commit"), lambda sent: [(lane, first + 1, last + 1) for lane, first, last in sent]
    )


def _unrecorded_send(log: BugLog) -> list[Patch]:
    def without_last(sent: list[Any]) -> list[Any]:
        *others, (lane, first, last) = sent
        return [*others, (lane, first, last - 1)] if last > first else others

    return _rewrites_sent(log, ("send", "commit"), without_last)


# Bugs of the producer


def _producers(methods: Callable[[type[Any]], dict[str, Any]]) -> list[Patch]:
    """Replace the client library's producer by a subclass with these methods."""
    from harness.clients import idempotent, producer_lifecycle

    return [
        (module, "Producer", type("Producer", (module.Producer,), methods(module.Producer)))
        for module in (idempotent, producer_lifecycle)
    ]


def _forgotten_send(log: BugLog) -> list[Patch]:
    due = occasions(100, 500)

    def methods(base: type[Any]) -> dict[str, Any]:
        def produce(self: Any, topic: str, value: bytes, *args: Any, **fields: Any) -> None:
            if not due():
                base.produce(self, topic, value, *args, **fields)
                return
            log.fired_while_sending()
            if on_delivery := fields.get("on_delivery"):
                on_delivery(None, Reported())

        return {"produce": produce}

    return _producers(methods)


def _double_send(log: BugLog) -> list[Patch]:
    due = occasions(100, 500)

    def methods(base: type[Any]) -> dict[str, Any]:
        def produce(self: Any, topic: str, value: bytes, *args: Any, **fields: Any) -> None:
            base.produce(self, topic, value, *args, **fields)
            if due():
                base.produce(self, topic, value, *args, partition=fields["partition"])
                log.fired_while_sending()

        return {"produce": produce}

    return _producers(methods)


def _ok_without_waiting(log: BugLog) -> list[Patch]:
    from confluent_kafka import KafkaError

    from harness.clients.idempotent import Burst, BurstProducer

    send, failed, due = BurstProducer.send, Burst._failed, occasions(5, 10)
    reported: set[int] = set()
    """Operations of the bursts that the client reported as delivered too early."""

    def failed_later(self: Burst, error: KafkaError, message: Any) -> None:
        failed(self, error, message)
        if self.op in reported and error.code() == KafkaError._PURGE_QUEUE:
            reported.remove(self.op)
            log.harmful()

    def impatient_send(self: BurstProducer, lane: int, values: list[bytes]) -> None:
        send(self, lane, values)
        if due():
            burst = self.open[-1]
            log.fired()
            reported.add(burst.op)
            for _ in range(burst.waiting):
                burst.delivered(None, Reported())  # type: ignore[arg-type]
            # The records fail after the client has reported them as delivered.
            self._producer.purge(in_queue=True, in_flight=False, blocking=False)

    return [(BurstProducer, "send", impatient_send), (Burst, "_failed", failed_later)]


def _commit_that_aborts(log: BugLog) -> list[Patch]:
    due = occasions(5, 20)

    def methods(base: type[Any]) -> dict[str, Any]:
        def commit_transaction(self: Any, *args: Any) -> None:
            if not due():
                base.commit_transaction(self, *args)
                return
            log.fired_in_operation()
            base.abort_transaction(self, *args)

        return {"commit_transaction": commit_transaction}

    return _producers(methods)


def _abort_that_commits(log: BugLog) -> list[Patch]:
    due = occasions(2, 3)

    def methods(base: type[Any]) -> dict[str, Any]:
        def abort_transaction(self: Any, *args: Any) -> None:
            if not due():
                base.abort_transaction(self, *args)
                return
            log.fired_in_operation()
            base.commit_transaction(self, *args)

        return {"abort_transaction": abort_transaction}

    return _producers(methods)


# Bugs of a pipeline worker


def _transforms(log: BugLog, change: Callable[[list[Any]], list[Any]]) -> list[Patch]:
    """Replace the inputs that a pipeline worker processes, now and then."""
    from harness.clients.pipeline import PipelineClient

    transform, due = PipelineClient._transform, occasions(3, 10)

    def wrong_transform(self: PipelineClient, records: list[Any], outcome: str) -> None:
        processed = change(records) if due() else records
        if processed != records:
            log.fired_in_transaction()
        transform(self, processed, outcome)

    return [(PipelineClient, "_transform", wrong_transform)]


def _skipped_input(log: BugLog) -> list[Patch]:
    def without_one(records: list[Any]) -> list[Any]:
        """Leave out the first record that a later record of the same partition follows."""
        partitions = [record.partition for record in records]
        skipped = next((i for i, p in enumerate(partitions) if p in partitions[i + 1 :]), len(records))
        return records[:skipped] + records[skipped + 1 :]

    return _transforms(log, without_one)


def _input_processed_twice(log: BugLog) -> list[Patch]:
    return _transforms(log, lambda records: [records[0], *records])


def _offsets_outside_transaction(log: BugLog) -> list[Patch]:
    from harness.clients.pipeline import PipelineClient
    from harness.evidence.history import Position

    init = PipelineClient.__init__

    def wrong_init(self: PipelineClient, *args: Any) -> None:
        init(self, *args)
        outputs: Any = self._outputs

        def commit_directly(_group: str, positions: list[Position], _metadata: object) -> None:
            if self._source.commit(positions):
                log.fired_before_abort()

        outputs.send_offsets = commit_directly

    return [(PipelineClient, "__init__", wrong_init)]


# Bugs of a consumer


def _consumers(change: Callable[..., list[Any]]) -> list[Patch]:
    """Replace the client library's consumer by a subclass that changes what a poll returns."""
    from harness.clients import group_consumer, reader

    def subclass(base: type[Any], *, in_pipeline: bool) -> type[Any]:
        def consume(self: Any, *args: Any, **fields: Any) -> list[Any]:
            return change(self, base.consume(self, *args, **fields), in_pipeline=in_pipeline)

        return type("Consumer", (base,), {"consume": consume})

    return [
        (reader, "Consumer", subclass(vars(reader)["Consumer"], in_pipeline=False)),
        (group_consumer, "Consumer", subclass(vars(group_consumer)["Consumer"], in_pipeline=True)),
    ]


def _dropped_record(log: BugLog) -> list[Patch]:
    due = occasions(3, 10)

    def without_one(_: Any, messages: list[Any], *, in_pipeline: bool) -> list[Any]:
        places = [_place(message) for message in messages]
        inner = [
            i for i in range(1, len(places) - 1) if places[i] and places[i - 1] == places[i] == places[i + 1]
        ]
        if not inner or not due():
            return messages
        if in_pipeline:
            log.fired_in_transaction()
        else:
            log.fired()
            log.harmful()
        return messages[: inner[0]] + messages[inner[0] + 1 :]

    return _consumers(without_one)


def _unrecorded_rewind(log: BugLog) -> list[Patch]:
    from confluent_kafka import KafkaException, TopicPartition

    from harness.clients.client import PositionLog

    assigned, revoked, due = PositionLog.assigned, PositionLog.revoked, occasions(3, 10)
    passed: dict[tuple[str, int], int] = {}
    """The offset before which the client went back, by partition, until the next record of it arrives."""
    moved = False
    """Whether the assignment changed in the present poll, before or after the records of the poll."""

    def go_back(consumer: Any, messages: list[Any], *, in_pipeline: bool) -> list[Any]:  # noqa: ARG001
        nonlocal moved
        was_moved, moved = moved, False
        good = [(place, message.offset()) for message in messages if (place := _place(message))]
        for place, offset in good:
            if offset <= passed.pop(place, -1):
                log.harmful()
        if good and due():
            place, offset = good[-1]
            try:
                consumer.seek(TopicPartition(*place, max(0, offset - 10)))
            except KafkaException:
                return messages  # the partition was revoked in this poll
            log.fired()
            if not was_moved:
                passed[place] = offset
        return messages

    def forgetting(method: Callable[..., None]) -> Callable[..., None]:
        """After a rebalance, a member of a group may read records again."""

        def change_of_assignment(self: PositionLog, *args: Any) -> None:
            nonlocal moved
            moved = True
            passed.clear()
            method(self, *args)

        return change_of_assignment

    return [
        *_consumers(go_back),
        (PositionLog, "assigned", forgetting(assigned)),
        (PositionLog, "revoked", forgetting(revoked)),
    ]


def _place(message: Any) -> tuple[str, int] | None:
    """Return the partition of a record; None if the message is an error, such as the end of a partition."""
    return None if message.error() is not None else (message.topic(), message.partition())


_WRITERS: Final = ("idempotent", "transactional")
_DRIFT: Final = ("offset_drift", "aggregate_drift")
"""Anomalies of a pipeline that passed an input without processing it, or processed it twice."""
BUGS: Final[dict[str, PlantedBug]] = {
    "wrong-sequence": PlantedBug(
        _WRITERS,
        "records sequences that are one too high for its records",
        _wrong_sequence,
        (),
        ("lost", "phantom", "torn_transaction", "wrong_transaction", "inconsistent_offset"),
    ),
    "unrecorded-send": PlantedBug(
        _WRITERS, "sends a record that it does not record", _unrecorded_send, ("phantom",)
    ),
    "forgotten-send": PlantedBug(
        _WRITERS,
        "records a record as delivered that it never sends",
        _forgotten_send,
        ("lost",),
        ("torn_transaction", "inconsistent_offset"),
    ),
    "double-send": PlantedBug(
        _WRITERS,
        "sends a record twice",
        _double_send,
        ("duplicate",),
        ("processed_twice",),  # a pipeline behind it makes outputs of both copies
    ),
    "ok-without-waiting": PlantedBug(
        ("idempotent",),
        "records a burst as delivered before its delivery fails",
        _ok_without_waiting,
        ("lost",),
    ),
    "commit-that-aborts": PlantedBug(
        ("transactional", "pipeline"),
        "aborts a transaction and records a commit",
        _commit_that_aborts,
        ("lost", "fate_mismatch"),
        ("never_processed", *_DRIFT),
    ),
    "abort-that-commits": PlantedBug(
        ("transactional", "pipeline"),
        "commits a transaction and records an abort",
        _abort_that_commits,
        ("aborted_read", "fate_mismatch"),
        ("wrong_transaction", "processed_twice", *_DRIFT),
    ),
    "skipped-input": PlantedBug(
        ("pipeline",),
        "commits a position after an input that it did not process",
        _skipped_input,
        ("never_processed",),
        _DRIFT,
    ),
    "input-processed-twice": PlantedBug(
        ("pipeline",),
        "processes an input twice",
        _input_processed_twice,
        ("processed_twice",),
        ("aggregate_drift",),
    ),
    "offsets-outside-transaction": PlantedBug(
        ("pipeline",),
        "commits its positions directly, so that an abort does not undo them",
        _offsets_outside_transaction,
        ("never_processed", "offset_drift"),
        ("aggregate_drift",),
    ),
    "dropped-record": PlantedBug(
        ("reader", "pipeline"),
        "loses a record between the client library and its own code",
        _dropped_record,
        ("poll_skip", "never_processed"),
        ("unseen", *_DRIFT),
    ),
    "unrecorded-rewind": PlantedBug(
        ("reader",), "goes back in a partition by itself", _unrecorded_rewind, ("nonmonotonic_poll",)
    ),
}
"""Every planted bug by the name that a scenario uses."""
