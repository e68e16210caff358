from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from harness.evidence.observation import Window
from harness.evidence.record import LaneEncoder
from spark_jobs.frozen_windows import frozen_ends_of, read_windows
from spark_jobs.kafka_source import ISOLATION, KafkaSource, NotReadCommittedError
from spark_jobs.running_totals import RunningTotals
from spark_jobs.scan_pass import Wanted, scan_words
from spark_jobs.stream_segments import DamagedSegmentError, Segments, count_records
from tests.spark.generated import RUN, Log

WINDOWS = [Window("t", 0, 5, 90, 90, 90), Window("t", 1, 0, 90, 90, 90)]


def rows(first: int, count: int, outcome: str = "c") -> pa.Table:
    values = LaneEncoder(RUN, 0, 0).batch(first, count, 0, outcome)
    log = Log(1, [(0, i, value) for i, value in enumerate(values)])
    return pa.Table.from_batches(list(scan_words(Wanted(RUN))(log.batches(100))))


def commit(segments: Segments, batch: int, ends: dict[str, int]) -> None:
    for name, text in (("offsets", f"v1\n{{}}\n{json.dumps({'t': ends})}"), ("commits", "v1\n{}")):
        folder = segments.checkpoint / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(batch)).write_text(text)


def test_a_repeated_batch_replaces_its_own_rows(tmp_path: Path) -> None:
    segments = Segments(tmp_path)
    segments.write(0, rows(0, 10))
    segments.write(1, rows(10, 10))
    segments.write(1, rows(10, 7))
    assert segments.batches() == [0, 1]
    table = segments.read(1)
    assert table["n"].to_pylist() == [10, 7]
    assert table["segment"].to_pylist() == [0, 1]
    assert segments.read(0)["n"].to_pylist() == [10]


def test_the_ends_are_those_of_the_last_commit(tmp_path: Path) -> None:
    segments = Segments(tmp_path)
    assert segments.committed() == -1
    assert segments.ends(WINDOWS) == {("t", 0): 5, ("t", 1): 0}
    commit(segments, 0, {"0": 9, "1": 2})
    commit(segments, 10, {"0": 40, "1": 7})
    assert segments.committed() == 10
    assert segments.ends(WINDOWS) == {("t", 0): 40, ("t", 1): 7}


def test_a_batch_that_spark_planned_and_did_not_commit_moves_no_end(tmp_path: Path) -> None:
    segments = Segments(tmp_path)
    commit(segments, 0, {"0": 9, "1": 2})
    commit(segments, 1, {"0": 90, "1": 90})
    (segments.checkpoint / "commits" / "1").unlink()
    segments.freeze(WINDOWS)
    assert segments.committed() == 0
    assert segments.ends(WINDOWS) == {("t", 0): 9, ("t", 1): 2}
    assert not segments.reached(WINDOWS)


def test_records_that_do_not_belong_to_the_run_are_rows_too(tmp_path: Path) -> None:
    values = [*LaneEncoder(RUN, 0, 0).batch(0, 10, 0, "c"), b"?", None]
    log = Log(1, [(0, i, value) for i, value in enumerate(values)])
    table = pa.Table.from_batches(list(scan_words(Wanted(RUN))(log.batches(100))))
    assert count_records(table) == 12
    segments = Segments(tmp_path)
    segments.write(0, table)
    assert count_records(segments.read(0)) == 12


def test_only_the_rows_of_committed_batches_are_read(tmp_path: Path) -> None:
    segments = Segments(tmp_path)
    for batch in range(3):
        commit(segments, batch, {"0": batch, "1": 0})
        segments.write(batch, rows(10 * batch, 10))
    segments.write(3, rows(30, 10))
    table = segments.read(segments.committed())
    assert table["segment"].to_pylist() == [0, 1, 2]
    assert count_records(table) == 30


@pytest.mark.parametrize("suffix", [".arrow", ".json"])
@pytest.mark.parametrize("batch", [0, 1, 2])
def test_a_missing_file_of_a_committed_batch_is_an_error(tmp_path: Path, batch: int, suffix: str) -> None:
    segments = three_batches(tmp_path)
    segments.path(batch).with_suffix(suffix).unlink()
    with pytest.raises(DamagedSegmentError, match=f"committed batch {batch}, but .* is missing"):
        segments.read(2)


def test_a_missing_batch_is_an_error_even_if_both_its_files_are_gone(tmp_path: Path) -> None:
    segments = three_batches(tmp_path)
    for suffix in (".arrow", ".json"):
        segments.path(1).with_suffix(suffix).unlink()
    assert segments.batches() == [0, 2]
    with pytest.raises(DamagedSegmentError, match="batch 1"):
        segments.read(2)


DAMAGES = {
    "empty": lambda _: b"",
    "halved": lambda data: data[: len(data) // 2],
    "one bit": lambda data: data[:-300] + bytes([data[-300] ^ 1]) + data[-299:],
    "doubled": lambda data: data * 2,
}


@pytest.mark.parametrize("suffix", [".arrow", ".json"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_of_a_committed_batch_is_an_error(tmp_path: Path, damage: str, suffix: str) -> None:
    segments = three_batches(tmp_path)
    path = segments.path(1).with_suffix(suffix)
    data = path.read_bytes()
    path.write_bytes(b"?" if (damage, suffix) == ("one bit", ".json") else DAMAGES[damage](data))
    with pytest.raises(DamagedSegmentError):
        segments.read(2)


def test_the_rows_of_another_batch_are_an_error(tmp_path: Path) -> None:
    segments = three_batches(tmp_path)
    segments.path(1).write_bytes(segments.path(2).read_bytes())
    with pytest.raises(DamagedSegmentError, match="differ"):
        segments.read(2)


def test_a_seal_with_another_number_of_records_is_an_error(tmp_path: Path) -> None:
    segments = three_batches(tmp_path)
    path = segments.path(1).with_suffix(".json")
    path.write_text(path.read_text().replace('"records":10', '"records":11'))
    with pytest.raises(DamagedSegmentError, match="10 of 11 records"):
        segments.read(2)


def three_batches(folder: Path) -> Segments:
    segments = Segments(folder)
    for batch in range(3):
        segments.write(batch, rows(10 * batch, 10))
    return segments


def test_the_stream_has_reached_the_ends_only_once_every_partition_has(tmp_path: Path) -> None:
    segments = Segments(tmp_path)
    commit(segments, 0, {"0": 90, "1": 90})
    assert not segments.reached(WINDOWS)  # no end offsets are frozen yet
    segments.freeze(WINDOWS)
    assert segments.reached(WINDOWS)
    commit(segments, 1, {"0": 91, "1": 89})
    assert not segments.reached(WINDOWS)
    commit(segments, 2, {"0": 91, "1": 90})
    assert segments.reached(WINDOWS)


def test_an_offset_that_was_read_before_a_lower_end_was_frozen_shows_that_the_log_went_back() -> None:
    frozen = [Window("t", 0, 0, 31, 31, 31), Window("t", 1, 0, 90, 95, 90)]
    ends = frozen_ends_of(frozen, {("t", 0): 133, ("t", 1): 80})
    assert ends == [Window("t", 0, 0, 31, 31, 133), Window("t", 1, 0, 90, 95, 90)]
    read = read_windows(frozen, ends, {("t", 0): 133, ("t", 1): 90})
    assert read == [Window("t", 0, 0, 31, 31, 133), Window("t", 1, 0, 90, 95, 90)]


def test_an_offset_that_was_read_after_the_end_was_frozen_moves_the_end() -> None:
    frozen = frozen_ends_of([Window("t", 0, 5, 31, 40, 31)], {("t", 0): 31})
    assert read_windows([Window("t", 0, 5, 9, 9, 9)], frozen, {("t", 0): 133}) == [
        Window("t", 0, 5, 133, 133, 133)
    ]
    assert read_windows([Window("t", 0, 5, 9, 9, 9)], frozen, {("t", 0): 35}) == [
        Window("t", 0, 5, 35, 40, 35)
    ]


def test_the_frozen_end_offsets_are_written_atomically(tmp_path: Path) -> None:
    segments = Segments(tmp_path)
    assert segments.frozen_windows() is None
    segments.freeze(WINDOWS)
    assert Segments(tmp_path).frozen_windows() == WINDOWS


def test_running_totals_count_repeats_of_earlier_batches() -> None:
    live = RunningTotals()
    live.add(rows(0, 300))
    live.add(rows(299, 3, "a"))
    assert live.as_dict() == {"records": 303, "duplicates": 1, "aborted_intent": 3, "foreign": 0, "behind": 0}


def test_only_read_committed_is_accepted() -> None:
    with pytest.raises(NotReadCommittedError, match="read_uncommitted"):
        KafkaSource("b:1", options={ISOLATION: "read_uncommitted"}).all_options()
    assert KafkaSource("b:1").all_options()[ISOLATION] == "read_committed"
