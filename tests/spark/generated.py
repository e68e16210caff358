"""Generated logs: mostly correct records, with flaws of every kind."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from harness.evidence.observation import Meta, Observation, Window
from harness.evidence.observation_builder import Records, observe
from harness.evidence.record import Identity, NotARecordError, Origin, decode, encode
from spark_jobs import kafka_source
from spark_jobs import scan_rows as row
from spark_jobs.jvm_fold import MOST
from spark_jobs.scan_observation import ScanObservation
from spark_jobs.scan_pass import Wanted, scan_words
from spark_jobs.second_scan import scan_late, scan_outputs, scan_records

RUN = "abcd1234"
FLAWS = ("drop", "duplicate", "elsewhere", "swap", "foreign", "clash")
FOLDED = pa.schema(
    [("window", pa.int32()), ("offset", pa.int64()), ("value", pa.binary()), ("n", pa.int32())]
)
Value = bytes | None


@dataclass
class Log:
    """The contents of a topic: partition, offset and value of each record, in offset order."""

    partitions: int
    rows: list[tuple[int, int, Value]] = field(default_factory=list)

    def windows(self) -> list[Window]:
        return [Window("t", p, 0, 10**9, 10**9, 10**9) for p in range(self.partitions)]

    def batches(self, size: int) -> Iterator[pa.RecordBatch]:
        for at in range(0, len(self.rows), size):
            window, offset, value = zip(*self.rows[at : at + size], strict=True)
            arrays = [
                pa.array(window, pa.int32()),
                pa.array(offset, pa.int64()),
                pa.array(value, pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=["window", "offset", "value"])


def plainly_folded(log: Log) -> pa.Table:
    """Join consecutive records into rows, record by record, as a reference for the fold in Java.

    A row has at most `MOST` records.
    """
    rows: list[list[Any]] = []
    expected: bytes | None = None
    for window, offset, value in log.rows:
        last = rows[-1] if rows and rows[-1][0] == window else None
        joins = last is not None and offset == last[1] + last[3] and last[3] < MOST
        if joins and expected is not None and value is not None and value.startswith(expected):
            rows[-1][3] += 1
            expected = _counted(expected)
            continue
        again = last is not None and offset < last[1] + last[3]
        width = 80 if value is not None and value[47:48] == b"p" else 48
        rows.append([window, offset, value and value[:width], 1])
        expected = (
            _counted(value[:width]) if value is not None and len(value) >= width and not again else None
        )
    columns = list(zip(*rows, strict=True)) or [()] * 4
    arrays = [pa.array(column, f.type) for column, f in zip(columns, FOLDED, strict=True)]
    return pa.Table.from_arrays(arrays, schema=FOLDED)


def _counted(value: bytes) -> bytes | None:
    """Return the bytes with which the next record must begin: `value` with each sequence incremented.

    Return None if a sequence is not a number, or is the highest possible one.
    """
    for start in (23, 59)[: 1 + (len(value) > 48)]:
        digits = value[start : start + 12]
        if not digits.isdigit() or digits == b"9" * 12:
            return None
        value = value[:start] + b"%012d" % (int(digits) + 1) + value[start + 12 :]
    return value


@dataclass
class Shape:
    """The size of a generated log."""

    partitions: int
    producers: int
    first: int
    sends: int
    most: int = 10


def draw_shape(rng: random.Random) -> Shape:
    return Shape(
        rng.choice([1, 2, 3, 8]),
        rng.choice([1, 2, 5, 40]),
        rng.choice([0, 0, 250, 5 * 10**9]),
        rng.choice([0, 1, 5, 100, 600]),
    )


def draw_flaws(rng: random.Random) -> dict[str, float]:
    flaws = {name: rng.choice([0, 0, 0.002, 0.05, 0.3]) for name in FLAWS}
    return dict.fromkeys(FLAWS, 0.0) if rng.random() < 0.2 else flaws


def generate(rng: random.Random, shape: Shape, flaws: dict[str, float]) -> Log:
    parts: list[list[Value]] = [[] for _ in range(shape.partitions)]
    next_seq: dict[tuple[int, int], int] = {}
    for _ in range(shape.sends):
        producer, lane = rng.randrange(shape.producers), rng.randrange(shape.partitions)
        for _ in range(rng.choice([1, 3, shape.most])):
            seq = next_seq.get((producer, lane), shape.first)
            next_seq[producer, lane] = seq + 1
            if rng.random() >= flaws["drop"]:
                _append(rng, parts, flaws, (producer, lane, seq))
    for part in parts:
        for _ in range(int(len(part) * flaws["swap"])):
            i, j = rng.randrange(len(part)), rng.randrange(len(part))
            part[i], part[j] = part[j], part[i]
    log = Log(shape.partitions)
    for partition, part in enumerate(parts):
        offset = rng.randrange(5)
        for value in part:
            log.rows.append((partition, offset, value))
            if rng.random() < flaws["clash"]:
                log.rows.append((partition, offset, rng.choice(part)))
            offset += rng.choice([1, 1, 1, 1, 2, 5])
    return log


def _append(
    rng: random.Random, parts: list[list[Value]], flaws: dict[str, float], name: tuple[int, int, int]
) -> None:
    producer, lane, seq = name
    origin = Origin(producer, lane, seq, rng.randrange(2), 7) if producer % 2 else None
    identity = Identity(RUN, producer, lane, seq, seq % 10**9 // 7, rng.choice("cccan"), origin)
    value = encode(identity, b"x" * rng.choice([0, 0, 5]))
    parts[lane].append(value)
    if rng.random() < flaws["duplicate"]:
        parts[lane].append(value)
    if rng.random() < flaws["elsewhere"]:
        parts[rng.randrange(len(parts))].append(value)
    if rng.random() < flaws["foreign"]:
        strange = [
            b"junk",
            None,
            value[:30] + b"x" + value[31:],
            value.replace(RUN.encode(), b"zzzz9999"),
            value[:46] + b"q" + value[47:],
            value[:40] + b":" + value[41:],
            b"",
        ]
        parts[lane].append(rng.choice(strange))


def as_read(frame: DataFrame, windows: int) -> kafka_source.FrozenLog:
    """Return a frame with topics and partitions, as if it had been read from Kafka.

    A window is one partition of a topic. Each window differs from the previous one in its topic or its
    partition number. Each topic name has the same length as the previous name, or starts with it. Such names
    are the hardest to distinguish.
    """
    number = "(window + 1) div 2"
    name = f"concat(repeat('t', {number} div 2 + 1), repeat('u', {number} % 2)) AS topic"
    places = name, "CAST(window div 2 AS INT) AS partition"
    numbers: dict[str, dict[int, int]] = {}
    for i in range(windows):
        topic = (i + 1) // 2
        numbers.setdefault("t" * (topic // 2 + 1) + "u" * (topic % 2), {})[i // 2] = i
    return kafka_source.FrozenLog(frame.selectExpr(*places, "offset", "value"), numbers)


def ours(value: Value) -> Identity | None:
    """Return the identity of a record of this run, or None for any other record."""
    try:
        identity = decode(value)
    except NotARecordError:
        return None
    return identity if identity.run == RUN else None


def reference(log: Log) -> tuple[Observation, int]:
    """Build the observation of a log without Spark; return it and the number of foreign records."""
    records, foreign = Records(), 0
    for partition, offset, value in log.rows:
        identity = ours(value)
        if identity is None:
            foreign += 1
        else:
            records.add(partition, offset, identity)
    meta = Meta(witness="reference", kind="reference", windows=log.windows(), complete=True)
    return observe(meta, records), foreign


def by_words(log: Log, batch: int, *, meta: Meta | None = None) -> Observation:
    """Scan a log without a Spark session, in batches of this size; return the observation."""
    return by_batches(log, lambda: log.batches(batch), meta)


def by_batches(
    log: Log, batches: Callable[[], Iterator[pa.RecordBatch]], meta: Meta | None = None
) -> Observation:
    """Run all scans over the given batches and return the observation."""
    wanted = Wanted(RUN, with_runs=True)

    def table(scan: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> pa.Table:
        return pa.Table.from_batches(list(scan(batches())), row.SCHEMA)

    meta = meta or Meta(witness="spark", kind="spark", windows=log.windows(), complete=True)
    account = ScanObservation(meta, table(scan_words(wanted)))
    doubts = account.doubts()
    records = table(scan_records(wanted, doubts.words()))
    outputs = table(scan_outputs(wanted, doubts.inputs()))
    return account.close(records, table(scan_late(wanted, doubts.lanes, doubts.earlier)), outputs)
