"""The raw-log witness: batches as the broker stores them, and what follows from their markers.

No consumer decides here what is committed: batches with producer id, epoch, base sequence and flags are
taken from a leader or from its segment files, and the markers among them are followed by hand. For small
runs: every record is kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from kafka.record.memory_records import MemoryRecords

from harness.base.errors import UsageError
from harness.evidence.bit_words import EXAMPLES
from harness.evidence.log_line import clock_id
from harness.evidence.observation import Findings, Meta, Observation, Spot, Window
from harness.evidence.observation_builder import Records, observe
from harness.evidence.record import NotARecordError
from harness.kafka.connection import KafkaAnswerError, RawConnection
from harness.kafka.security import PLAINTEXT, Security
from harness.witness.plain_consumer import Place, identify, note_foreign

FETCH_BYTES: Final = 8 << 20
TIMEOUT_S: Final = 30.0
NO_PRODUCER: Final = -1
COMMIT: Final = 1
ABORT: Final = 0


class Batch(NamedTuple):
    """One batch of the log; a control batch has the marker it carries, others their values by offset."""

    base_offset: int
    last_offset: int
    producer_id: int
    epoch: int
    base_sequence: int
    transactional: bool
    control: int | None
    values: tuple[tuple[int, bytes | None], ...]


def batches_of(data: bytes) -> Iterator[Batch]:
    """Decode stored batches; an incomplete one at the end is left out, as a fetch may cut it."""
    records = MemoryRecords(data)
    while records.has_next():
        batch = records.next_batch()
        if batch.magic < 2:
            raise UsageError(
                f"the batch at offset {batch.base_offset} has format {batch.magic}",
                "the raw-log witness reads format 2, which every topic since Kafka 0.11 has",
            )
        if not batch.validate_crc():
            raise UsageError(
                f"the batch at offset {batch.base_offset} does not fit its checksum",
                "the segment or the fetch is damaged: read it again, from another replica",
            )
        control = batch.is_control_batch
        rows = list(batch)
        yield Batch(
            batch.base_offset,
            batch.last_offset,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.is_transactional,
            marker_of(rows[0]) if control else None,
            () if control else tuple((row.offset, row.value) for row in rows),
        )


def marker_of(record: Any) -> int:
    """What the record of a control batch says of its transaction: COMMIT or ABORT."""
    # A control record's key is two int16: a version, and the type.
    return int.from_bytes(bytes(record.key)[2:4], "big")


def segment_batches(directory: Path) -> Iterator[Batch]:
    """Read a partition's batches from its segment files."""
    for segment in sorted(directory.glob("*.log")):
        yield from batches_of(segment.read_bytes())


def fetch_batches(
    host: str, port: int, place: Place, start: int, end: int, *, security: Security = PLAINTEXT
) -> Iterator[Batch]:
    """Fetch a partition's batches from its leader, from `start` up to, not including, `end`."""
    offset = start
    with RawConnection(host, port, TIMEOUT_S, security) as connection:
        while offset < end:
            found = False
            for batch in batches_of(_fetch(connection, place, offset)):
                if batch.last_offset < offset:
                    continue
                if batch.base_offset >= end:
                    return
                found = True
                offset = batch.last_offset + 1
                yield batch
            if not found:
                return


class Fetched(NamedTuple):
    """What one broker handed out of a partition, with the bounds that it named."""

    batches: list[Batch]
    high_watermark: int
    last_stable: int
    aborted: list[tuple[int, int]]
    """Producer id and first offset of each aborted transaction: what a reader has to leave out."""


def fetch_committed(host: str, port: int, place: Place, offset: int) -> Fetched:
    """Fetch once from any replica, as a read_committed consumer: nothing behind the last stable offset."""
    with RawConnection(host, port, TIMEOUT_S) as connection:
        found = _ask(connection, place, offset, isolation=1)
    aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or []]
    batches = list(batches_of(bytes(found.records or b"")))
    return Fetched(batches, found.high_watermark, found.last_stable_offset, aborted)


def _fetch(connection: RawConnection, place: Place, offset: int) -> bytes:
    return bytes(_ask(connection, place, offset, isolation=0).records or b"")


def _ask(connection: RawConnection, place: Place, offset: int, isolation: int) -> Any:
    return fetched(connection.call(fetch_request(place, offset, isolation)), place, offset)


def fetch_request(place: Place, offset: int, isolation: int) -> Any:
    """The request for a partition's batches from an offset on."""
    from kafka.protocol.consumer import FetchRequest

    topic = FetchRequest.FetchTopic
    wanted = topic.FetchPartition(
        partition=place[1],
        current_leader_epoch=-1,
        fetch_offset=offset,
        log_start_offset=-1,
        partition_max_bytes=FETCH_BYTES,
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=isolation,
        session_id=0,
        session_epoch=-1,
        topics=[topic(topic=place[0], partitions=[wanted])],
        forgotten_topics_data=[],
        rack_id="",
        version=11,
    )


def fetched(answer: Any, place: Place, offset: int) -> Any:
    """What the answer to it has of the one partition."""
    if answer.error_code:
        raise KafkaAnswerError(f"fetch of {place[0]}-{place[1]}", answer.error_code)
    partition = answer.responses[0].partitions[0]
    if partition.error_code:
        raise KafkaAnswerError(f"fetch of {place[0]}-{place[1]} at {offset}", partition.error_code)
    return partition


def leaders(
    bootstrap: str, topics: Iterable[str], security: Security = PLAINTEXT
) -> dict[Place, tuple[str, int]]:
    """Return host and port of every partition's leader, as advertised on the listener of `bootstrap`."""
    from confluent_kafka.admin import AdminClient

    servers = {"bootstrap.servers": bootstrap, **security.client()}
    metadata = AdminClient(servers).list_topics(timeout=TIMEOUT_S)
    return {
        (name, number): (str(metadata.brokers[part.leader].host), metadata.brokers[part.leader].port)
        for name in topics
        for number, part in metadata.topics[name].partitions.items()
    }


def observe_raw(
    logs: Iterable[tuple[Window, Iterable[Batch]]], run: str, *, witness: str = "raw-log", finished: int = 0
) -> Observation:
    """Follow the markers of every partition, and return what read_committed must show, with the epochs."""
    records, foreign, epochs = Records(), Findings(), Findings()
    windows = []
    logs_of: dict[Place, list[Batch]] = {}
    for index, (window, batches) in enumerate(logs):
        windows.append(window)
        place = (window.topic, window.partition)
        kept = logs_of[place] = [batch for batch in batches if batch.base_offset < window.hw]
        _check_epochs(place, kept, epochs)
        for batch in committed_of(kept):
            for offset, value in batch.values:
                if offset >= window.read_to:
                    continue
                try:
                    identity = identify(value, run)
                except NotARecordError as error:
                    note_foreign(foreign, place, offset, str(error))
                else:
                    records.add(index, offset, identity)
    meta = Meta(
        witness=witness,
        kind="raw",
        complete=all(w.start == 0 and w.read_to >= w.lso for w in windows),
        clock=clock_id(),
        # The batches may be fetched while they are followed here: only now is reading over.
        finished=max(finished, time.monotonic_ns()),
        windows=windows,
        foreign=foreign,
        epochs=epochs,
    )
    seen = observe(meta, records)
    seen.meta.repeats.examples = [_with_cause(spot, logs_of) for spot in seen.meta.repeats.examples]
    return seen


def _with_cause(spot: Spot, batches: dict[Place, list[Batch]]) -> Spot:
    """A record that stands twice, and what the two batches tell of who wrote it again."""
    log = batches[spot.topic, spot.partition]
    first, again = (_batch_at(log, offset) for offset in (spot.other_offset, spot.offset))
    return msgspec.structs.replace(spot, detail=cause_of(first, again))


def _batch_at(log: list[Batch], offset: int) -> Batch:
    return next(batch for batch in log if batch.base_offset <= offset <= batch.last_offset)


def cause_of(first: Batch, again: Batch) -> str:
    """Why a record that stands in two batches was no repeat to the broker."""
    if again.producer_id == NO_PRODUCER:
        return "no producer id: whether its client or its application sent it again, no log can tell"
    if again.producer_id != first.producer_id:
        return f"new producer id: {first.producer_id} wrote it first, {again.producer_id} again"
    if again.epoch != first.epoch:
        return (
            f"producer id {again.producer_id} wrote it in epoch {first.epoch}, again in epoch {again.epoch}"
        )
    if again.base_sequence <= first.base_sequence:
        return (
            f"producer id {again.producer_id}, base sequence {first.base_sequence} and then "
            f"{again.base_sequence}: the broker had forgotten the first"
        )
    return (
        f"producer id {again.producer_id}, base sequence {first.base_sequence} and then "
        f"{again.base_sequence}: the application sent it again, as a new record"
    )


def committed_of(batches: Iterable[Batch]) -> list[Batch]:
    """Return the batches that are committed, or never were in a transaction, up to the first that is open."""
    open_: dict[int, list[Batch]] = {}
    decided: list[Batch] = []
    for batch in batches:
        if batch.control is not None:
            mine = open_.pop(batch.producer_id, [])
            decided += mine if batch.control == COMMIT else []
        elif batch.transactional:
            open_.setdefault(batch.producer_id, []).append(batch)
        else:
            decided.append(batch)
    stable = min((mine[0].base_offset for mine in open_.values()), default=None)
    shown = [batch for batch in decided if stable is None or batch.base_offset < stable]
    return sorted(shown, key=lambda batch: batch.base_offset)


def _check_epochs(place: Place, batches: list[Batch], epochs: Findings) -> None:
    """Within a partition, the epoch of a producer id never goes back."""
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
                topic=place[0],
                partition=place[1],
                offset=batch.base_offset,
                other_offset=last.base_offset,
                detail=detail,
            )
            epochs.examples = [*epochs.examples, spot][:EXAMPLES]
        else:
            newest[batch.producer_id] = batch
