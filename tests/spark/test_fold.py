"""The fold of consecutive records into one row: it never changes results, and each of its rules is needed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession

from harness.evidence.record import Identity, LaneEncoder, Origin, encode
from spark_jobs import scan_rows as row
from spark_jobs.jvm_fold import MOST, SOURCE, compiled, folded
from spark_jobs.record_reader import unpacked
from spark_jobs.scan_pass import Wanted, scan_words
from tests.spark.generated import (
    FOLDED,
    RUN,
    Log,
    Shape,
    Value,
    as_read,
    by_batches,
    draw_flaws,
    generate,
    plainly_folded,
)

pytestmark = pytest.mark.spark

LANE = LaneEncoder(RUN, 1, 0, b"and more")
END = 10**12 - 1

_TAIL = "expected[i] = '0';\n            }\n            return "
RULES = {
    "the window": ("place == window && at == offset + count\n", "at == offset + count\n"),
    "the offset": (" && at == offset + count", ""),
    "a repeated offset": ("!again && length", "length"),
    "the topic": ("\n                || !begins(row, layout.atTopic, topic)", ""),
    "the topic's end": (" || (int) row.getLong(layout.atTopic) != topic.length", ""),
    "the partition": ("now != partition || ", ""),
    "what follows the sequence": (", expectedSize);\n        }", ", Math.min(expectedSize, 35));\n        }"),
    "the origin": (", expectedSize);\n        }", ", Math.min(expectedSize, 48));\n        }"),
    "the origin's sequence": ("made && !counted(layout.origin, layout.originEnd)", "false"),
    "digits": ("digits(layout.seq, layout.seqEnd)", "true"),
    "the origin's digits": ("!made || digits(layout.origin, layout.originEnd)", "true"),
    "the carry": ("expected[i] = '0';", ""),
    "the last sequence": (f"{_TAIL}false;", f"{_TAIL}true;"),
}
"""For each rule of the fold: the Java code of the rule, and the code that replaces it to remove the rule."""


def output(seq: int, origin: Origin, payload: bytes = b"") -> bytes:
    return encode(Identity(RUN, 2, 0, seq, 7, "c", origin), payload)


def one_window(values: list[Value], offset: int = 0) -> Log:
    return Log(1, [(0, offset + i, value) for i, value in enumerate(values)])


def written() -> Iterator[Log]:
    """Yield logs whose consecutive records barely meet the fold's rules, and logs that barely break one."""
    dense = LANE.batch(990, 300, 7, "c")
    yield one_window(dense)
    yield one_window(LANE.batch(10**8 - 150, 300, 7, "c"), 10**8 - 20)
    yield one_window([*LANE.batch(END - 5, 6, 7), *LANE.batch(0, 5, 7)])
    # In these logs, the lane continues in another partition, has a gap in offsets, or has a gap in sequences.
    yield Log(2, [(i // 150, i, value) for i, value in enumerate(dense)])
    yield Log(1, [(0, i + (i > 100), value) for i, value in enumerate(dense)])
    yield one_window(dense[:100] + dense[101:])
    yield one_window([*LANE.batch(9, 1, 7), *LANE.batch(19, 1, 7), *LANE.batch(109, 1, 7)])
    # In these logs, the outcome, transaction or producer differs in every second record, or in all records
    # from 100 on.
    for other in (
        LANE.batch(990, 300, 7, "a"),
        LANE.batch(990, 300, 8, "c"),
        LaneEncoder(RUN, 3, 0).batch(990, 300),
    ):
        yield one_window([(dense, other)[i % 2][i] for i in range(300)])
        yield one_window(dense[:100] + other[100:])
        yield one_window([one for pair in zip(dense, other, strict=True) for one in pair])
    # In these logs, one offset in the middle occurs twice, with the same record or with two different
    # records.
    for twin in (dense[40], dense[41], dense[20], b"junk"):
        rows: list[tuple[int, int, Value]] = [(0, i, value) for i, value in enumerate(dense)]
        yield Log(1, [*rows[:41], (0, 40, twin), *rows[41:]])
        yield Log(1, [*rows[:41], (0, 40, twin), (0, 40, dense[41]), *rows[41:]])
    # These logs have consecutive foreign records: of another run, with bytes that are not digits, or too
    # short.
    yield one_window([value.replace(RUN.encode(), b"zzzz9999") for value in dense])
    for place in (12, 20, 23, 30, 34, 40):
        for byte in (b":", b"/", b"x"):
            yield one_window([value[:place] + byte + value[place + 1 :] for value in dense[:30]])
    yield one_window([dense[0][:34] + b"/" + dense[0][35:], *dense[:15]])
    yield one_window([b"%012d" % i for i in range(20)])
    yield one_window([value if i % 7 else (None, b"", value[:47])[i % 3] for i, value in enumerate(dense)])
    yield one_window([value[: 48 + i % 9] for i, value in enumerate(dense)])


def outputs() -> Iterator[Log]:
    """Yield logs of pipeline outputs whose inputs are consecutive, and logs that deviate slightly."""
    steps = [output(i, Origin(5, 1, 10**8 - 20 + i, 0, 9), b"xy"[: i % 3]) for i in range(60)]
    yield one_window(steps)
    yield one_window([value[: 80 - (i % 5 == 0)] for i, value in enumerate(steps)])
    yield one_window([value[:60] for value in steps])
    for place in (48, 55, 59, 66, 70, 72, 79):
        yield one_window([value[:place] + b":" + value[place + 1 :] for value in steps[:30]])
    yield one_window([steps[9][:70] + b"/" + steps[9][71:], *steps[10:25]])
    for change in (
        lambda _: Origin(5, 1, 70, 0, 9),
        lambda i: Origin(5, 1, 70 + i // 2, i % 2, 9),
        lambda i: Origin(5, 1, 70 - i, 0, 9),
        lambda i: Origin(5, i // 20, 70 + i, 0, 9),
        lambda i: Origin(5, 1, 70 + i, 0, 9 + i // 30),
        lambda i: Origin(5, 1, 70 + i + i // 30, 0, 9),
        lambda i: Origin(5, 1, END - 9 + i if i < 10 else i, 0, 9),
    ):
        yield one_window([output(i, change(i)) for i in range(60)])
    # A further record repeats the offset of the record before it, but names another input.
    rows: list[tuple[int, int, Value]] = [(0, i, value) for i, value in enumerate(steps)]
    yield Log(1, [*rows[:31], (0, 30, output(30, Origin(5, 1, 3, 0, 9))), *rows[31:]])


def edited(seed: int) -> Log:
    """Return blocks of up to 120 consecutive records on three lanes, with a few random flaws."""
    rng = random.Random(seed)
    first = rng.choice([0, 990, 10**8 - 60])
    following = [first] * 3
    values: list[Value] = []
    for burst in range(rng.randint(2, 8)):
        lane, count = rng.randrange(3), rng.choice([1, 2, 40, 120])
        seqs = range(following[lane], following[lane] + count)
        following[lane] += count
        if lane == 2:
            values += [output(seq, Origin(5, 1, first + seq, burst % 2, 9), b"x" * (seq % 3)) for seq in seqs]
        else:
            values += LaneEncoder(RUN, lane, 0).batch(seqs[0], count, burst // 2, rng.choice("ccca"))
    offsets = np.cumsum([rng.choice([1] * 40 + [2, 5]) for _ in values]).tolist()
    for _ in range(rng.choice([0, 1, 3, 8])):
        at, other = rng.randrange(len(values)), rng.randrange(len(values))
        kind = rng.choice(["drop", "swap", "repeat", "byte", "short", "twin"])
        value = values[at]
        if kind == "drop" and len(values) > 1:
            del values[at], offsets[at]
        elif kind == "swap":
            values[at], values[other] = values[other], value
        elif kind == "repeat":
            values.insert(at, value)
            offsets = [*offsets[:at], *(offset + 1 for offset in offsets[at - 1 :])][: len(values)]
        elif kind == "byte" and value:
            place = rng.randrange(min(len(value), 80))
            values[at] = value[:place] + rng.choice([b"0", b"9", b":", b"a", b"p"]) + value[place + 1 :]
        elif kind == "short" and value:
            values[at] = rng.choice([None, b"", value[: rng.randrange(len(value))]])
        elif kind == "twin":
            values.insert(at, values[other])
            offsets.insert(at, offsets[at])
    return Log(1, [(0, offset, value) for offset, value in zip(offsets, values, strict=True)])


def logs() -> list[Log]:
    drawn = []
    for seed in range(12):
        rng = random.Random(seed)
        drawn.append(generate(rng, Shape(rng.choice([1, 3]), rng.choice([1, 5]), 250, 30), draw_flaws(rng)))
    return [*written(), *outputs(), *map(edited, range(60)), *drawn]


class Folds:
    """All logs in one DataFrame, so that one Spark job folds all of them. No two logs share a partition."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.logs = logs()
        self.starts = np.cumsum([0] + [log.partitions for log in self.logs]).tolist()
        tables = [
            pa.Table.from_batches([batch]).set_column(
                0, "window", pc.add(batch.column(0), pa.scalar(start, pa.int32()))
            )
            for log, start in zip(self.logs, self.starts, strict=False)
            for batch in log.batches(10**6)
        ]
        # Use one Spark task, so that the rows of each Kafka partition stay in order.
        self.frame: DataFrame = spark.createDataFrame(pa.concat_tables(tables)).coalesce(1).cache()
        self.plain = [observed(log, list(log.batches(200))) for log in self.logs]

    def rows(self, classes: Any = None) -> pa.Table:
        return unpacked_rows(folded(as_read(self.frame, self.starts[-1]), classes))

    def of_logs(self, rows: pa.Table) -> Iterator[pa.Table]:
        ends = np.searchsorted(rows["window"].to_numpy(), self.starts).tolist()
        for start, (first, last) in zip(self.starts, pairwise(ends), strict=False):
            mine = rows.slice(first, last - first)
            number = pc.subtract(mine["window"], pa.scalar(start, pa.int32()))
            yield mine.set_column(0, "window", number).combine_chunks()

    def observed(self, rows: pa.Table, batch: int) -> Iterator[list[object]]:
        for log, mine in zip(self.logs, self.of_logs(rows), strict=True):
            yield observed(log, mine.to_batches(batch))


def unpacked_rows(blocks: DataFrame) -> pa.Table:
    return pa.Table.from_batches(unpacked(blocks.toArrow().to_batches()), FOLDED)


def observed(log: Log, batches: list[pa.RecordBatch]) -> list[object]:
    """Scan these batches of a log; return the rows of the first scan, and the resulting observation."""
    rows = pa.Table.from_batches(list(scan_words(Wanted(RUN, with_runs=True))(iter(batches))), row.SCHEMA)
    account = by_batches(log, lambda: iter(batches))
    tables = [
        None if one is None else one.tobytes() for one in (account.words, account.origins, account.runs)
    ]
    return [rows, repr(account.meta), *tables]


@pytest.fixture(scope="module")
def folds(spark: SparkSession) -> Folds:
    """Return all logs, with the results that each has without a fold."""
    return Folds(spark)


def differ(folds: Folds, rows: pa.Table, batch: int) -> Iterator[int]:
    """Yield the index of each log whose results from the folded `rows` differ from those without a fold."""
    for i, (mine, plain) in enumerate(zip(folds.observed(rows, batch), folds.plain, strict=True)):
        if mine != plain:
            yield i


@pytest.mark.parametrize("batch", [11, 50_000])
def test_folded_logs_give_the_same_results_as_unfolded_ones(folds: Folds, batch: int) -> None:
    rows = folds.rows()
    assert rows.num_rows < sum(len(log.rows) for log in folds.logs) / 2
    for i, mine in enumerate(folds.of_logs(rows)):
        assert mine == plainly_folded(folds.logs[i])
    assert list(differ(folds, rows, batch)) == []


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_of_the_fold_is_needed(folds: Folds, rule: str, tmp_path: Path) -> None:
    old, new = RULES[rule]
    text = SOURCE.read_text()
    assert text.count(old) == 1
    # Use a new class name for each test, because a Spark executor loads only one class of a given name.
    name = f"Without{list(RULES).index(rule)}"
    text = text.replace(old, new).replace(SOURCE.stem, name)
    rows = folds.rows(compiled(folds.spark, text, tmp_path / f"{name}.jar", name))
    try:
        assert next(differ(folds, rows, 50_000), None) is not None
    except ValueError as error:
        assert "offsets decreased" in str(error)  # noqa: PT017


def test_consecutive_records_are_one_row(spark: SparkSession) -> None:
    values = [
        *LANE.batch(0, MOST + 3, 7, "c"),
        *LANE.batch(MOST + 3, 2, 8, "c"),
        None,
        b"x",
        LANE.batch(9, 1)[0],
    ]
    (batch,) = one_window(values, 5).batches(10**6)
    frame = spark.createDataFrame(pa.Table.from_batches([batch])).coalesce(1)
    found = unpacked_rows(folded(as_read(frame, 1))).to_pylist()
    wanted = [(5, MOST, values[0]), (5 + MOST, 3, values[MOST]), (8 + MOST, 2, values[MOST + 3])]
    assert [(one["offset"], one["n"], one["value"]) for one in found] == [
        *((offset, n, value and value[:48]) for offset, n, value in wanted),
        (MOST + 10, 1, None),
        (MOST + 11, 1, b"x"),
        (MOST + 12, 1, LANE.batch(9, 1)[0][:48]),
    ]
