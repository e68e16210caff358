"""Spark's own findings equal those of the checkers, for hundreds of cases in one DataFrame."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from harness.evidence.checkers import atomicity, exactly_once, order
from harness.evidence.checkers.model import Evidence
from harness.evidence.observation import Meta, Observation
from harness.witness.spark.topic_verification import ONLY_CHECKERS
from spark_jobs.crosscheck import Frames, findings
from spark_jobs.expected_words import frame_of, intervals_table, lanes_table
from spark_jobs.range_scan import collect
from spark_jobs.scan_observation import ScanObservation
from spark_jobs.scan_pass import Wanted, scan_words
from spark_jobs.second_scan import WordSet, scan_late, scan_outputs, scan_records
from tests.spark.cases import Case, generated, planted
from tests.spark.generated import RUN, as_read

pytestmark = pytest.mark.spark

NAMES = ("lost", "duplicate", "phantom", "reordered", "aborted_read", "torn_transaction")
Found = dict[tuple[str, bool], int]


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [*planted(), *generated(200)]


@pytest.fixture(scope="module")
def judged(spark: SparkSession, cases: list[Case]) -> tuple[list[Observation], dict[int, Found]]:
    """Return observations and findings of all cases. One set of scans and one query cover all cases."""
    first, tables, starts = 0, [], []
    for case in cases:
        starts.append(first)
        if case.log.rows:
            window, offset, value = zip(*case.log.rows, strict=True)
            columns = {
                "window": pa.array([first + w for w in window], pa.int32()),
                "offset": pa.array(offset, pa.int64()),
                "value": pa.array(value, pa.binary()),
            }
            tables.append(pa.table(columns))
        first += case.log.partitions
    frame = spark.createDataFrame(pa.concat_tables(tables)).repartition(2, "window")
    log = as_read(frame.sortWithinPartitions("window", "offset").cache(), first)
    wanted = Wanted(RUN, with_runs=True)
    rows = collect(log, scan_words(wanted))
    accounts = [
        ScanObservation(_meta(case), _of_case(rows, start, case), start)
        for case, start in zip(cases, starts, strict=True)
    ]
    doubts = [account.doubts() for account in accounts]
    records = collect(log, scan_records(wanted, _united([one.words() for one in doubts])))
    lanes = sorted(lane for one in doubts for lane in one.lanes.tolist())
    outputs = collect(log, scan_outputs(wanted, _united([one.inputs() for one in doubts])))
    late = collect(
        log, scan_late(wanted, pa.array(lanes, pa.int64()).to_numpy(), _united([d.earlier for d in doubts]))
    )
    observations = [
        account.close(*(_of_case(table, start, case) for table in (records, late, outputs)))
        for account, case, start in zip(accounts, cases, starts, strict=True)
    ]
    return observations, _found(spark, cases, starts, pa.concat_tables([rows, late]), observations)


def _meta(case: Case) -> Meta:
    known = case.observation.meta
    return Meta(witness="spark", kind="spark", windows=known.windows, complete=known.complete, clock="clock")


def _of_case(table: pa.Table, start: int, case: Case) -> pa.Table:
    window = table["window"].to_numpy()
    return table.filter(pa.array((window >= start) & (window < start + case.log.partitions)))


def _united(sets: list[WordSet]) -> WordSet:
    lanes, words, bits = [], [], []
    for one in sets:
        if len(one.keys):
            lanes.append(one.lanes[one.keys >> 40])
            words.append(one.keys & ((1 << 40) - 1))
            bits.append(one.bits)
    import numpy as np

    if not lanes:
        return WordSet.of(np.zeros(0, np.int64), np.zeros(0, np.int64))
    return WordSet.of(np.concatenate(lanes), np.concatenate(words), np.concatenate(bits))


def _found(
    spark: SparkSession, cases: list[Case], starts: list[int], rows: pa.Table, observations: list[Observation]
) -> dict[int, Found]:
    window_case = [i for i, case in enumerate(cases) for _ in range(case.log.partitions)]
    of_case = pa.array(window_case, pa.int32()).take(rows["window"].combine_chunks())
    lanes = [
        lanes_table(case.ledger, observation.meta, i, start)
        for i, (case, observation, start) in enumerate(zip(cases, observations, starts, strict=True))
    ]
    frames = Frames(
        frame_of(spark, [rows.append_column("case", of_case)]),
        frame_of(spark, lanes),
        frame_of(spark, [intervals_table(case.ledger, i) for i, case in enumerate(cases)]),
    )
    found: dict[int, Found] = {}
    for one in findings(frames).collect():
        found.setdefault(one["case"], {})[one["name"], one["permitted"]] = one["count"]
    return found


def _checked(case: Case, observation: Observation) -> Found:
    found: Found = {}
    evidence = Evidence(case.ledger, [observation])
    for checker in (exactly_once, atomicity, order):
        result = checker.check(evidence)
        for permitted, anomalies in ((False, result.anomalies), (True, result.permitted)):
            for one in anomalies:
                if one.name in NAMES and one.unit not in ONLY_CHECKERS:
                    found[one.name, permitted] = found.get((one.name, permitted), 0) + one.count
    return found


def test_the_generated_cases_contain_every_kind_of_finding(
    cases: list[Case], judged: tuple[list[Observation], dict[int, Found]]
) -> None:
    names = {name for found in judged[1].values() for name, _ in found}
    assert set(NAMES) <= names
    clean = [i for i in range(len(cases)) if i not in judged[1]]
    assert len(cases) >= 250
    assert len(clean) >= 50


def test_observations_equal_the_plain_observers(
    cases: list[Case], judged: tuple[list[Observation], dict[int, Found]]
) -> None:
    for case, observation in zip(cases, judged[0], strict=True):
        wanted = case.observation
        for table in ("words", "origins", "runs"):
            assert getattr(observation, table).tobytes() == getattr(wanted, table).tobytes(), (
                case.name,
                table,
            )
        for name in ("repeats", "late", "twice"):
            assert getattr(observation.meta, name) == getattr(wanted.meta, name), (case.name, name)
        assert observation.meta.foreign.count == wanted.meta.foreign.count, case.name


def test_findings_equal_the_pure_checkers(
    cases: list[Case], judged: tuple[list[Observation], dict[int, Found]]
) -> None:
    for i, (case, observation) in enumerate(zip(cases, judged[0], strict=True)):
        mine = {key: count for key, count in judged[1].get(i, {}).items() if key[0] in NAMES}
        assert mine == _checked(case, observation), case.name
        assert mine == _checked(case, case.observation), case.name
