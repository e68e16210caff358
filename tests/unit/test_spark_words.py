from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from harness.evidence.bit_words import interval_bits
from harness.evidence.eight_bytes import eight_digits, not_digits
from harness.evidence.observation import Observation
from harness.evidence.record import Identity, LaneEncoder, encode
from spark_jobs.lane_runs import Highest
from spark_jobs.scan_observation import ScanObservation
from tests.spark.generated import (
    RUN,
    Log,
    Shape,
    by_batches,
    by_words,
    draw_flaws,
    draw_shape,
    generate,
    plainly_folded,
    reference,
)


def assert_same(found: Observation, wanted: Observation, foreign: int) -> None:
    for table in ("words", "origins", "runs"):
        mine, theirs = getattr(found, table), getattr(wanted, table)
        assert mine.tobytes() == theirs.tobytes(), f"{table}: {mine[:3]} and {theirs[:3]}"
    for name in ("repeats", "late", "twice"):
        assert getattr(found.meta, name) == getattr(wanted.meta, name)
    assert found.meta.clashes.count == wanted.meta.clashes.count
    assert found.meta.clashes.by_producer == wanted.meta.clashes.by_producer
    assert found.meta.clashes.examples == wanted.meta.clashes.examples
    assert found.meta.foreign.count == foreign
    assert found.meta.records == wanted.meta.records


@pytest.mark.parametrize("seed", range(60))
def test_words_equal_those_of_the_plain_observer(seed: int) -> None:
    rng = random.Random(seed)
    log = generate(rng, draw_shape(rng), draw_flaws(rng))
    assert_same(by_words(log, rng.choice([7, 100, 1000])), *reference(log))


@pytest.mark.parametrize("seed", range(12))
def test_rows_that_stand_for_several_records_give_the_same_observation(seed: int) -> None:
    rng = random.Random(seed)
    log = generate(rng, Shape(rng.choice([1, 3]), rng.choice([1, 2, 5]), 250, 100), draw_flaws(rng))
    rows = plainly_folded(log)
    assert len(log.rows) > rows.num_rows
    assert_same(by_batches(log, lambda: iter(rows.to_batches(40))), *reference(log))


@pytest.mark.parametrize(
    "shape",
    [
        Shape(64, 2, 0, 300),
        Shape(2, 1000, 0, 3000, 3),
        Shape(1, 1, 10**12 - 5000, 20, 200),
        Shape(1, 1, 0, 0),
    ],
    ids=["64 partitions", "1,000 producers", "the last sequences", "nothing"],
)
def test_words_of_large_and_empty_shapes(shape: Shape) -> None:
    rng = random.Random(1)
    log = generate(rng, shape, dict.fromkeys(draw_flaws(rng), 0.01))
    assert_same(by_words(log, 500), *reference(log))


def test_a_batch_that_is_a_slice_of_another_is_read_from_its_own_start() -> None:
    values = LaneEncoder(RUN, 3, 1).batch(0, 1000)
    log = Log(1, [(0, i, value) for i, value in enumerate(values)])
    whole = next(log.batches(1000))
    sliced = [whole.slice(0, 300), whole.slice(300, 1), whole.slice(301)]
    log.batches = lambda _: iter(sliced)  # type: ignore[method-assign]
    assert by_words(log, 0).meta.repeats.count == 0
    assert by_words(log, 0).words["n"].tolist() == [256, 256, 256, 232]


def test_decreasing_offsets_are_refused() -> None:
    value = encode(Identity(RUN, 0, 0, 5))
    with pytest.raises(ValueError, match="offset order"):
        by_words(Log(1, [(0, 7, value), (0, 6, value)]), 10)


def test_segments_of_one_word_are_compared_with_each_other() -> None:
    """Two segments (the rows of two batches) contain sequences of the same word.

    The second segment has the lower sequences, which shows a reordering. Each segment alone is in order, so
    only a comparison of both shows it.
    """
    lane = LaneEncoder(RUN, 0, 0)
    parts = [lane.batch(10, 5), lane.batch(0, 5)]
    log = Log(1, [(0, i, value) for i, value in enumerate(parts[0] + parts[1])])
    from spark_jobs.scan_pass import Wanted, scan_words

    def segment(number: int, batches: list[pa.RecordBatch]) -> pa.Table:
        table = pa.Table.from_batches(list(scan_words(Wanted(RUN))(iter(batches))))
        return table.append_column("segment", pa.array([number] * table.num_rows))

    first, second = log.batches(5)
    observation = by_words(log, 5)
    table = pa.concat_tables([segment(0, [first]), segment(1, [second])])
    assert observation.meta.late.count == 5
    assert len(ScanObservation(observation.meta, table).doubts().lanes) == 1


@pytest.mark.parametrize("seed", range(20))
def test_masks_have_the_bits_of_their_sequences(seed: int) -> None:
    rng = random.Random(seed)
    first = rng.randrange(256)
    last = rng.randrange(first, 256)
    bits = interval_bits(np.array([first + 512]), np.array([last + 512]))[0].tolist()
    assert sum(quarter << 64 * i for i, quarter in enumerate(bits)) == sum(
        1 << i for i in range(first, last + 1)
    )


def test_eight_digits_are_decoded_at_once() -> None:
    texts = [b"00000000", b"99999999", b"12345678", b"00000010"]
    numbers = np.frombuffer(b"".join(texts), "<u8")
    assert eight_digits(numbers).tolist() == [int(text) for text in texts]
    strange = np.frombuffer(b"".join(bytes([b]) + b"0000000" for b in range(256)), "<u8")
    good = [b for b, wrong in enumerate(not_digits(strange).tolist()) if not wrong]
    assert bytes(good) == b"0123456789"


def test_the_highest_sequence_is_kept_from_batch_to_batch() -> None:
    highest = Highest()
    ints = lambda *numbers: np.array(numbers, np.int64)  # noqa: E731
    assert [a.tolist() for a in highest.before(ints(1, 2, 1), ints(5, 9, 7), ints(10, 11, 12))] == [
        [-1, -1, 5],
        [-1, -1, 10],
    ]
    assert [a.tolist() for a in highest.before(ints(2, 1, 1), ints(3, 6, 8), ints(20, 21, 22))] == [
        [9, 7, 7],
        [11, 12, 12],
    ]


def test_a_lane_that_continues_in_another_partition_is_two_runs() -> None:
    values = LaneEncoder(RUN, 0, 0).batch(0, 6)
    log = Log(2, [(i // 3, i % 3, value) for i, value in enumerate(values)])
    found = by_words(log, 100)
    assert found.words["partition"].tolist() == [0, 1]
    assert found.words["n"].tolist() == [3, 3]
    assert_same(found, *reference(log))
