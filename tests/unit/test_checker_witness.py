"""Observations without a cluster: words, findings about records, transaction markers, segment files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from harness.base.errors import UsageError
from harness.cluster.nodes import segments_in
from harness.evidence.bit_words import sequences_in
from harness.evidence.checkers.consumer_reads import READ, Reads, observation_of, reads_of
from harness.evidence.observation import Meta, Observation, Window
from harness.evidence.observation_builder import Records, observe
from harness.evidence.record import Identity, Origin, encode
from harness.kafka.log.batches import ABORT, COMMIT, Batch, decode_batches
from harness.witness.raw_log import committed_of, observe_raw
from tests.planted.tiny import Tiny

RUN = "r7k2m9qa"


def see(*rows: tuple[int, int, int], origin: Origin | None = None) -> Observation:
    """Return the observation of a witness that reads these rows of a lane: (partition, offset, sequence)."""
    records = Records()
    for partition, offset, seq in rows:
        records.add(partition, offset, Identity(RUN, 1, 0, seq, origin=origin))
    windows = [Window(topic="t", partition=p, start=0, lso=99, hw=99, read_to=99) for p in (0, 1)]
    return observe(Meta(witness="w", kind="reference", windows=windows), records)


def test_words_have_bits_count_and_offsets() -> None:
    words = see((0, 10, 0), (0, 11, 63), (0, 12, 64), (0, 20, 256), (0, 21, 256)).words

    assert words["word"].tolist() == [0, 1]
    assert words["bits"].tolist() == [[1 | 1 << 63, 1, 0, 0], [1, 0, 0, 0]]
    assert words["n"].tolist() == [3, 2]
    assert list(zip(words["lo"].tolist(), words["hi"].tolist(), strict=True)) == [(10, 12), (20, 21)]


def test_an_offset_read_twice_is_one_record_and_a_different_record_there_is_a_clash() -> None:
    again = see((0, 0, 0), (0, 1, 1), (0, 0, 0))
    clash = see((0, 0, 0), (0, 1, 1), (0, 0, 5))

    assert (again.meta.records, again.meta.clashes.count, again.meta.repeats.count) == (2, 0, 0)
    assert clash.meta.clashes.count == 1
    assert (clash.meta.clashes.examples[0].seq, clash.meta.clashes.examples[0].other_seq) == (5, 0)


def test_a_repeat_is_never_late_and_a_late_record_names_its_predecessor() -> None:
    repeat = see((0, 0, 0), (0, 1, 1), (0, 2, 0)).meta
    late = see((0, 0, 0), (0, 1, 2), (0, 2, 1)).meta

    assert (repeat.repeats.count, repeat.late.count) == (1, 0)
    assert (late.repeats.count, late.late.count, late.late.by_producer) == (0, 1, [(1, 1)])
    spot = late.late.examples[0]
    assert (spot.seq, spot.offset, spot.other_seq, spot.other_offset) == (1, 2, 2, 1)


def test_order_is_checked_within_a_partition() -> None:
    assert see((0, 0, 5), (1, 0, 4)).meta.late.count == 0


def test_a_gap_in_offsets_or_sequences_ends_a_run() -> None:
    runs = see((0, 0, 0), (0, 1, 1), (0, 3, 2), (0, 4, 9)).runs

    assert runs is not None
    assert runs[["offset", "seq", "count"]].tolist() == [(0, 0, 2), (3, 2, 1), (4, 9, 1)]


def test_origins_are_counted_by_input() -> None:
    origins = see((0, 0, 0), (0, 1, 1), origin=Origin(7, 3, 300, 1, 9)).origins

    assert origins[["producer", "lane", "part", "word", "n"]].tolist() == [(7, 3, 1, 1, 2)]


def batch(
    base: int, pid: int, *, epoch: int = 0, transactional: bool = True, control: int | None = None
) -> Batch:
    value = encode(Identity(RUN, max(pid, 0), 0, base))
    return Batch(
        base, base, pid, epoch, 0, transactional, control, () if control is not None else ((base, value),)
    )


@pytest.mark.parametrize(
    ("log", "visible"),
    [
        ([batch(0, 1), batch(1, 1, control=COMMIT)], [0]),
        ([batch(0, 1), batch(1, 1, control=ABORT)], []),
        ([batch(0, 1), batch(1, 2), batch(2, 2, control=COMMIT)], []),
        ([batch(0, 1), batch(1, 2), batch(2, 2, control=COMMIT), batch(3, 1, control=ABORT)], [1]),
        ([batch(0, -1, transactional=False), batch(1, 1)], [0]),
        ([batch(0, 1), batch(1, -1, transactional=False)], []),
        ([batch(0, 1, control=COMMIT), batch(1, 1), batch(2, 1, control=COMMIT)], [1]),
    ],
    ids=["commit", "abort", "after an open one", "freed", "plain before", "plain after", "marker only"],
)
def test_markers_decide_which_records_are_visible(log: list[Batch], visible: list[int]) -> None:
    assert [each.base_offset for each in committed_of(log)] == visible


def test_a_decreasing_epoch_is_found_within_a_partition_only() -> None:
    window = Window(topic="t", partition=0, start=0, lso=9, hw=9, read_to=9)
    other = Window(topic="t", partition=1, start=0, lso=9, hw=9, read_to=9)
    log = [
        batch(0, 1, epoch=1),
        batch(1, 1, epoch=0),
        batch(2, 1, epoch=2),
        batch(3, 1, epoch=2, control=COMMIT),
    ]

    found = observe_raw([(window, log), (other, [batch(0, 1, epoch=0)])], RUN).meta.epochs

    assert (found.compared, found.count) == (5, 1)
    assert (found.examples[0].offset, found.examples[0].other_offset) == (1, 0)


def test_records_of_another_run_are_foreign() -> None:
    window = Window(topic="t", partition=0, start=0, lso=9, hw=9, read_to=9)

    meta = observe_raw([(window, [batch(0, -1, transactional=False)])], "another1").meta

    assert (meta.records, meta.foreign.count) == (0, 1)
    assert "it belongs to run r7k2m9qa" in meta.foreign.examples[0].detail


def stored(base: int, values: list[bytes]) -> bytes:
    """Return a batch as it is in a segment file, with its base offset set as a broker sets it."""
    builder = DefaultRecordBatchBuilder(2, 0, True, 7, 3, 11, 1 << 20)
    for offset, value in enumerate(values):
        builder.append(offset, 1, None, value, [])
    data = bytearray(builder.build())
    data[:8] = base.to_bytes(8, "big")
    return bytes(data)


def test_batches_are_read_from_segment_files_in_order(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000002.log").write_bytes(stored(2, [b"c"]))
    (tmp_path / "00000000000000000000.log").write_bytes(stored(0, [b"a", b"b"]) + stored(9, [b"cut"])[:-3])

    files = segments_in(tmp_path, "kafka-1", "t-0")
    batches = [batch for file in files for batch in decode_batches(file.read_bytes())]

    assert [each.values for each in batches] == [((0, b"a"), (1, b"b")), ((2, b"c"),)]
    assert batches[0][:7] == (0, 1, 7, 3, 11, True, None)


def test_a_damaged_batch_is_refused() -> None:
    data = bytearray(stored(0, [b"abcdef"]))
    data[-2] ^= 1

    with pytest.raises(UsageError, match="checksum"):
        list(decode_batches(bytes(data)))


def test_every_record_of_a_run_of_polled_records_is_in_the_observation_of_a_live_reader() -> None:
    rows = np.array([(1, 3, 0, 10, 1, 0, 5, 3)], READ)

    observed = observation_of(Reads("r1", "clock", [("t", 0)], rows))

    [word] = observed.words
    assert (int(word["n"]), int(word["lo"]), int(word["hi"])) == (3, 10, 12)
    assert sequences_in(int(word["word"]), word["bits"].tolist()) == [5, 6, 7]
    [window] = observed.meta.windows
    assert (window.start, window.read_to, observed.meta.complete) == (10, 13, False)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_live_reader_keeps_its_isolation(isolation: str) -> None:
    case = Tiny("p1 commit ok a:0-4\n r1 read a@0 p1:0", {"a": "p1:0-4 ."}, {"r1": {"isolation": isolation}})

    [reads] = reads_of(case.evidence().ledger)
    assert reads.isolation == isolation
