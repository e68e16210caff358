"""Aggregates of a stateful pipeline: changelog records, totals expected from the inputs, and options."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.base.errors import UsageError
from harness.clients.changelog_writer import Changelog
from harness.clients.client import Deadline
from harness.clients.client_spec import PipelineSpec
from harness.clients.progress import ClientProgress
from harness.evidence import observation
from harness.evidence.changelog_record import KEYS, Totals, key_bytes, key_of, payload_of, totals_in
from harness.evidence.checkers.aggregates import check, totals_of_inputs
from harness.evidence.checkers.model import Pipeline, Verdict
from harness.evidence.history import HistoryWriter
from harness.evidence.observation import AGGREGATE, Meta, Observation, Window
from harness.evidence.observation_builder import Records, observe
from harness.evidence.record import Identity, LaneEncoder, NotARecordError, encode
from harness.scenario import find, load
from tests.planted.cases_systems import TOTALS, counted

PIPELINE = Pipeline(group="g", inputs=["in"], changelog="log")


def consumed(rows: list[tuple[int, int]]) -> Observation:
    """Return the observation of an input partition. `rows` are (producer, sequence) pairs in offset order."""
    records = Records()
    for offset, (producer, seq) in enumerate(rows):
        records.add(0, offset, Identity("r7k2m9qa", producer, 7, seq))
    meta = Meta(witness="consumed", kind="reference", purpose="consumed", complete=True, group="g")
    meta.windows = [Window(topic="in", partition=2, start=0, lso=9, hw=9, read_to=9)]
    return observe(meta, records)


def test_a_changelog_record_is_a_record_with_the_totals_of_its_key() -> None:
    identity = LaneEncoder("r7k2m9qa", 3, 4).batch(5, 1)[0]
    value = identity + payload_of(11, Totals(12, 345_678_901_234))

    assert totals_in(value) == (11, Totals(12, 345_678_901_234))
    assert key_bytes(11) == b"00011"
    with pytest.raises(NotARecordError, match="key, inputs, total"):
        totals_in(value[:-1])
    with pytest.raises(NotARecordError, match="key, inputs, total"):
        totals_in(encode(Identity("r7k2m9qa", 3, 4, 5), b"x" * 64))


def test_every_input_counts_for_one_key() -> None:
    assert [key_of(seq) for seq in (0, KEYS - 1, KEYS, 3 * KEYS + 5)] == [0, KEYS - 1, 0, 5]
    assert Totals().add(3).add(19) == Totals(2, 22)


def test_expected_totals_count_every_record_in_the_log() -> None:
    rows = [(1, 0), (1, 1), (1, 2), (2, 16), (1, 17), (1, 17)]

    found = totals_of_inputs(consumed(rows), PIPELINE)

    # An input that is in the topic twice counts twice, because the worker processes it twice.
    assert found == {(2, 0): Totals(2, 16), (2, 1): Totals(3, 35), (2, 2): Totals(1, 2)}
    assert totals_of_inputs(consumed([]), PIPELINE) == {}
    assert totals_of_inputs(consumed(rows), Pipeline(group="g", inputs=["another"], changelog="log")) == {}


def test_a_lane_without_a_reader_is_unknown() -> None:
    for purpose, why in (("aggregates", "read the changelog log"), ("consumed", "read the inputs")):
        evidence = counted(TOTALS).evidence()
        assert check(evidence).verdict is Verdict.VALID
        evidence.observations[:] = [o for o in evidence.observations if o.meta.purpose != purpose]
        result = check(evidence)
        assert result.verdict is Verdict.UNKNOWN
        assert any(why in reason for reason in result.reasons)


def test_a_changelog_that_was_not_read_to_its_end_proves_nothing() -> None:
    evidence = counted(TOTALS).evidence()
    for one in evidence.observations:
        one.meta.complete = one.meta.purpose != "aggregates"

    assert check(evidence).verdict is Verdict.UNKNOWN


def test_the_observation_of_a_changelog_can_be_read_back(tmp_path: Path) -> None:
    one = consumed([(1, 0)])
    observation.save(one, tmp_path / "without")
    one.aggregates = np.array([(0, 3, 2, 22, 19)], AGGREGATE)
    observation.save(one, tmp_path / "with")

    again = observation.load(tmp_path / "with").aggregates
    assert again is not None
    assert again.tolist() == [(0, 3, 2, 22, 19)]
    assert observation.load(tmp_path / "without").aggregates is None


def leaderless(_: list[int]) -> dict[int, int]:
    raise ConnectionError("log-0 has no leader")


def test_a_leaderless_changelog_is_not_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = PipelineSpec(
        run="r7k2m9qa",
        client="w",
        bootstrap="127.0.0.1:9",
        history=str(tmp_path / "w.jsonl"),
        seconds=9.0,
        source="in",
        group="g",
        sink="out",
        partitions=1,
        transactional_id="x",
        changelog="log",
        changelog_partitions=1,
    )
    progress = ClientProgress()
    with HistoryWriter(Path(spec.history), run=spec.run, client="w", role="pipeline") as history:
        changelog = Changelog(spec, history, progress, Deadline(60))
        monkeypatch.setattr("harness.clients.changelog_writer.ATTEMPT_LIMIT_S", 0.1)
        monkeypatch.setattr(changelog, "_ends_of", leaderless)
        assert not changelog.restore([0])
        assert "the ends of the changelog; last seen: ConnectionError: log-0 has no" in progress.last_error
        monkeypatch.setattr(changelog, "_ends_of", lambda _: {0: 0})
        assert changelog.restore([0])
        changelog.add(0, 21)
        assert list(changelog.take_changes()) == [(0, [(5, Totals(1, 21))])]
        assert list(changelog.take_changes()) == []


@pytest.mark.parametrize("key", ["changelog", "positions"])
def test_a_changelog_and_positions_apart_need_transactions(key: str) -> None:
    given = {"changelog": "totals", "positions": "apart"}[key]
    changes = {f"workload.1.{key}": given, "workload.1.transactions": "false"}

    with pytest.raises(UsageError, match=rf"{key}: needs transactions"):
        load(find("jitter"), {k.replace(".1.", ".2."): v for k, v in changes.items()})
