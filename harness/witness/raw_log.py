"""The raw-log witness, which derives the committed records from the batches that the broker stores.

This witness does not rely on a consumer to decide which records are committed. It reads batches from a leader
or from the leader's segment files. Each batch contains producer id, epoch, base sequence and flags. Some
batches are transaction markers, which show the outcome of each transaction. The witness keeps every record in
memory, so it suits only small runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from harness.base.partition_id import PartitionId
from harness.evidence.bit_words import EXAMPLES
from harness.evidence.log_line import clock_id
from harness.evidence.observation import Findings, Meta, Observation, Spot, Window
from harness.evidence.observation_builder import Records, observe
from harness.evidence.record import NotARecordError
from harness.kafka.admin import Admin
from harness.kafka.log.batches import COMMIT, NO_PRODUCER, Batch
from harness.kafka.log.fetch import fetch_batches
from harness.witness.plain_consumer import add_foreign, identify


def fetch_logs(admin: Admin, windows: Iterable[Window]) -> list[tuple[Window, list[Batch]]]:
    """Fetch the batches of every window from its leader, from the window's start to its high watermark."""
    wanted = list(windows)
    partitions = admin.metadata(sorted({window.topic for window in wanted})).partitions
    leaders = {(info.topic, info.partition): info.leader for info in partitions}
    return [
        (window, list(fetch_batches(admin, leaders[partition_id], partition_id, window.start, window.hw)))
        for window in wanted
        for partition_id in [(window.topic, window.partition)]
    ]


def observe_raw(
    logs: Iterable[tuple[Window, Iterable[Batch]]], run: str, *, witness: str = "raw-log", finished: int = 0
) -> Observation:
    """Return an observation of the records that a read_committed consumer must return.

    The observation also counts the batches with a producer epoch that is too low: an earlier batch of the
    same producer id in the same partition has a higher epoch.
    """
    records, foreign, epochs = Records(), Findings(), Findings()
    windows = []
    batches_of: dict[PartitionId, list[Batch]] = {}
    for index, (window, batches) in enumerate(logs):
        windows.append(window)
        partition_id = (window.topic, window.partition)
        kept = batches_of[partition_id] = [batch for batch in batches if batch.base_offset < window.hw]
        _check_epochs(partition_id, kept, epochs)
        for batch in committed_of(kept):
            for offset, value in batch.values:
                if offset >= window.read_to:
                    continue
                try:
                    identity = identify(value, run)
                except NotARecordError as error:
                    add_foreign(foreign, partition_id, offset, str(error))
                else:
                    records.add(index, offset, identity)
    meta = Meta(
        witness=witness,
        kind="raw",
        complete=all(w.start == 0 and w.read_to >= w.lso for w in windows),
        clock=clock_id(),
        # `logs` may fetch its batches while the loop above iterates, so the reading ends only at this point.
        finished=max(finished, time.monotonic_ns()),
        windows=windows,
        foreign=foreign,
        epochs=epochs,
    )
    observation = observe(meta, records)
    repeats = observation.meta.repeats
    repeats.examples = [_with_cause(spot, batches_of) for spot in repeats.examples]
    return observation


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


def committed_of(batches: Iterable[Batch]) -> list[Batch]:
    """Return the batches that a read_committed consumer can read, in offset order.

    These are the committed and the non-transactional batches before the first open transaction.
    """
    undecided: dict[int, list[Batch]] = {}
    decided: list[Batch] = []
    for batch in batches:
        if batch.control is not None:
            ended = undecided.pop(batch.producer_id, [])
            decided += ended if batch.control == COMMIT else []
        elif batch.transactional:
            undecided.setdefault(batch.producer_id, []).append(batch)
        else:
            decided.append(batch)
    stable = min((batches[0].base_offset for batches in undecided.values()), default=None)
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
