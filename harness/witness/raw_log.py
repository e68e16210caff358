"""The raw-log witness, which derives the committed records from the batches that the broker stores.

This witness does not rely on a consumer to decide which records are committed. It reads batches from a leader
or from the leader's segment files. Each batch contains producer id, epoch, base sequence and flags. Some
batches are transaction markers, which show the outcome of each transaction. The witness needs about 15 µs and
500 bytes of memory for each record.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from harness.base.partition_id import PartitionId, partition_name
from harness.evidence.bit_words import EXAMPLES
from harness.evidence.log_line import clock_id
from harness.evidence.observation import INTENTS, MARKER, Findings, Meta, Observation, Spot, Window
from harness.evidence.observation_builder import Records, RowTable, join_labels, observe
from harness.evidence.record import Identity, NotARecordError
from harness.evidence.token import TokenFinder
from harness.kafka.admin import Admin
from harness.kafka.log.batches import COMMIT, NO_PRODUCER, Batch
from harness.kafka.log.fetch import PATIENCE_S, fetch_batches
from harness.witness.plain_consumer import add_foreign, identify


def fetch_logs(
    admin: Admin, windows: Iterable[Window], *, patience_s: float = PATIENCE_S
) -> Iterator[tuple[Window, list[Batch]]]:
    """Fetch the batches of every window from its leader, from the window's start to its high watermark.

    Each log is fetched when it is needed, so that only one of them is in memory at a time.
    An empty answer is not the end of the log, so the fetch is repeated for `patience_s` seconds. If the rest
    of a log is still missing then, `observe_raw` marks its observation as incomplete.
    """
    wanted = list(windows)
    partitions = admin.metadata(sorted({window.topic for window in wanted})).partitions
    leaders = {(info.topic, info.partition): info.leader for info in partitions}
    for window in wanted:
        partition_id = (window.topic, window.partition)
        leader = leaders.get(partition_id, -1)
        if leader < 0:
            raise ConnectionError(f"{partition_name(partition_id)} has no leader")
        batches = fetch_batches(admin, leader, partition_id, window.start, window.hw, patience_s=patience_s)
        yield window, list(batches)


_PART: Final = (
    *("partition", "offset", "producer", "lane", "seq", "txn", "intent", "pid", "epoch"),
    *("marker", "decision", "marker_epoch", "coordinator_epoch"),
)


@dataclass
class _Reading:
    """Everything that the raw log contains, in the order of reading."""

    run: str
    tokens: bool = False
    """Whether the values contain tokens, instead of beginning with identities."""
    windows: list[Window] = field(default_factory=list)
    records: Records = field(default_factory=Records)
    """The records that a read_committed consumer must return."""
    parts: RowTable = field(default_factory=lambda: RowTable(_PART))
    """Every record of a transaction, readable or not."""
    foreign: Findings = field(default_factory=Findings)
    epochs: Findings = field(default_factory=Findings)
    unread: list[str] = field(default_factory=list)
    batches_of: dict[PartitionId, list[Batch]] = field(default_factory=dict)

    def take(self, window: Window, batches: Iterable[Batch]) -> None:
        index, partition_id = len(self.windows), (window.topic, window.partition)
        kept = [batch for batch in batches if batch.base_offset < window.hw]
        # Keep the batches without their records, which would need most of the memory.
        self.batches_of[partition_id] = [batch._replace(values=()) for batch in kept]
        _check_epochs(partition_id, kept, self.epochs)
        transactions = transactions_of(kept)
        decoded = {batch.base_offset: self._decode(batch) for batch in kept}
        for batch in _readable(kept, transactions):
            for (offset, value), identity in zip(batch.values, decoded[batch.base_offset], strict=True):
                if offset >= window.read_to:
                    continue
                if isinstance(identity, str):
                    add_foreign(self.foreign, partition_id, offset, identity)
                else:
                    self.records.add(index, offset, identity, None if self.tokens else value)
        for transaction in transactions:
            self._take_parts(index, transaction, decoded)
        reason = _missing(window, kept)
        if reason:
            self.unread.append(reason)
            # Records may be missing anywhere in this partition, so do not count any part of it as read.
            window = msgspec.structs.replace(window, read_to=window.start)
        self.windows.append(window)

    def _decode(self, batch: Batch) -> list[Identity | str]:
        """Return for each record its identity, or the reason why it does not belong to this run."""
        finder = TokenFinder(self.run) if self.tokens else None
        decoded: list[Identity | str] = []
        for _, value in batch.values:
            try:
                decoded.append(finder.inputs([value])[0] if finder else identify(value, self.run))
            except NotARecordError as error:
                decoded.append(str(error))
        return decoded

    def _take_parts(
        self, index: int, transaction: Transaction, decoded: dict[int, list[Identity | str]]
    ) -> None:
        marker = transaction.marker
        ending = (-1, -1, -1, -1)
        if marker is not None and marker.control is not None:
            ending = (marker.base_offset, marker.control, marker.epoch, marker.coordinator_epoch)
        for batch in transaction.batches:
            for (offset, _), identity in zip(batch.values, decoded[batch.base_offset], strict=True):
                if isinstance(identity, str):
                    continue
                _, producer, lane, seq, txn, outcome, _ = identity
                part = (index, offset, producer, lane, seq, txn, INTENTS.index(outcome))
                self.parts.append((*part, batch.producer_id, batch.epoch, *ending))


def observe_raw(
    logs: Iterable[tuple[Window, Iterable[Batch]]],
    run: str,
    *,
    witness: str = "raw-log",
    finished: int = 0,
    tokens: bool = False,
) -> Observation:
    """Return an observation of the records that a read_committed consumer must return.

    It is complete only if the batches of every partition reach its high watermark, without a gap. The
    observation also contains the marker of each transaction, and counts the batches with a producer epoch
    that is too low: an earlier batch of the same producer id in the same partition has a higher epoch.
    """
    reading = _Reading(run, tokens)
    for window, batches in logs:
        reading.take(window, batches)
    meta = Meta(
        witness=witness,
        kind="raw",
        complete=not reading.unread and all(w.start == 0 for w in reading.windows),
        clock=clock_id(),
        # `logs` may fetch its batches while the loop above iterates, so the reading ends only at this point.
        finished=max(finished, time.monotonic_ns()),
        windows=reading.windows,
        foreign=reading.foreign,
        epochs=reading.epochs,
        detail="; ".join(reading.unread),
    )
    observation = observe(meta, reading.records)
    observation.markers = join_labels(reading.parts.columns(), MARKER)
    repeats = observation.meta.repeats
    repeats.examples = [_with_cause(spot, reading.batches_of) for spot in repeats.examples]
    return observation


def _missing(window: Window, batches: list[Batch]) -> str:
    """Describe which offsets of a window the batches do not contain; return an empty text if none."""
    name = partition_name((window.topic, window.partition))
    expected = window.start
    for batch in batches:
        if batch.base_offset > expected:
            return f"{name}: offsets {expected} to {batch.base_offset - 1} are not in the log"
        expected = max(expected, batch.last_offset + 1)
    if expected < window.hw:
        return f"{name}: not read from {expected} to its high watermark {window.hw}"
    return ""


def _with_cause(spot: Spot, batches_of: dict[PartitionId, list[Batch]]) -> Spot:
    """Return an example of a repeated record, with the reason why the log contains the record twice.

    The reason is derived from the two batches that contain the record.
    """
    log = batches_of[spot.topic, spot.partition]
    first, again = (_batch_at(log, offset) for offset in (spot.other_offset, spot.offset))
    return msgspec.structs.replace(spot, detail=cause_of(first, again))


def _batch_at(log: list[Batch], offset: int) -> Batch:
    return next(batch for batch in log if batch.base_offset <= offset <= batch.last_offset)


def cause_of(first: Batch, again: Batch) -> str:
    """Explain why the broker did not recognise a record's second batch as a duplicate of the first batch."""
    if again.producer_id == NO_PRODUCER:
        return "no producer id: the log cannot show whether the client or the application sent it again"
    if again.producer_id != first.producer_id:
        return f"new producer id: {first.producer_id} wrote it first, {again.producer_id} again"
    if again.epoch != first.epoch:
        return (
            f"producer id {again.producer_id} wrote it in epoch {first.epoch}, again in epoch {again.epoch}"
        )
    if again.base_sequence <= first.base_sequence:
        return (
            f"producer id {again.producer_id}, base sequence {first.base_sequence} and then "
            f"{again.base_sequence}: the broker no longer kept the first"
        )
    return (
        f"producer id {again.producer_id}, base sequence {first.base_sequence} and then "
        f"{again.base_sequence}: the application sent it again, as a new record"
    )


class Transaction(NamedTuple):
    """The batches of one transaction in one partition, and the marker that ended it (None: still open)."""

    batches: list[Batch]
    marker: Batch | None


def transactions_of(batches: Iterable[Batch]) -> list[Transaction]:
    """Return the transactions of a partition; those that are still open are the last ones."""
    undecided: dict[int, list[Batch]] = {}
    transactions: list[Transaction] = []
    for batch in batches:
        if batch.control is not None:
            transactions.append(Transaction(undecided.pop(batch.producer_id, []), batch))
        elif batch.transactional:
            undecided.setdefault(batch.producer_id, []).append(batch)
    return transactions + [Transaction(batches, None) for batches in undecided.values()]


def committed_of(batches: Iterable[Batch]) -> list[Batch]:
    """Return the batches that a read_committed consumer can read, in offset order.

    These are the committed and the non-transactional batches before the first open transaction.
    """
    log = list(batches)
    return _readable(log, transactions_of(log))


def _readable(log: list[Batch], transactions: list[Transaction]) -> list[Batch]:
    decided = [batch for batch in log if batch.control is None and not batch.transactional]
    for transaction in transactions:
        if transaction.marker is not None and transaction.marker.control == COMMIT:
            decided += transaction.batches
    stable = min((t.batches[0].base_offset for t in transactions if t.marker is None), default=None)
    visible = [batch for batch in decided if stable is None or batch.base_offset < stable]
    return sorted(visible, key=lambda batch: batch.base_offset)


def _check_epochs(partition_id: PartitionId, batches: list[Batch], epochs: Findings) -> None:
    """Count in `epochs` every batch with a lower producer epoch than an earlier one of its producer id."""
    newest: dict[int, Batch] = {}
    for batch in batches:
        if batch.producer_id == NO_PRODUCER:
            continue
        epochs.compared += 1
        last = newest.get(batch.producer_id, batch)
        if batch.epoch < last.epoch:
            epochs.count += 1
            detail = f"producer id {batch.producer_id}: epoch {batch.epoch} after {last.epoch}"
            spot = Spot(
                topic=partition_id[0],
                partition=partition_id[1],
                offset=batch.base_offset,
                other_offset=last.base_offset,
                detail=detail,
            )
            epochs.examples = [*epochs.examples, spot][:EXAMPLES]
        else:
            newest[batch.producer_id] = batch
