from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from harness.evidence.observation import Window
from harness.evidence.record import LaneEncoder
from spark_jobs.kafka_source import ISOLATION, KafkaSource, NotReadCommittedError
from spark_jobs.running_totals import RunningTotals
from spark_jobs.scan_pass import Wanted, scan_words
from spark_jobs.stream_segments import FINAL, Segments
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


def test_the_last_pass_starts_at_the_end_of_the_last_commit(tmp_path: Path) -> None:
    segments = Segments(tmp_path)
    assert segments.committed() == -1
    assert segments.ends(WINDOWS) == {("t", 0): 5, ("t", 1): 0}
    commit(segments, 0, {"0": 9, "1": 2})
    commit(segments, 10, {"0": 40, "1": 7})
    segments.write(10, rows(0, 10))
    segments.write(11, rows(10, 10))
    segments.write(FINAL, rows(10, 10))
    assert segments.committed() == 10
    assert segments.ends(WINDOWS) == {("t", 0): 40, ("t", 1): 7}
    segments.drop_after(segments.committed())
    assert segments.batches() == [10]


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
