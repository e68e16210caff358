"""The verification of a run: what its witnesses are asked to read, and what the run promises."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.base.errors import ExitCode, UsageError
from harness.base.waits import wait_until
from harness.evidence import manifest, observation
from harness.evidence.checkers.check_run import check_run
from harness.evidence.checkers.model import Expect
from harness.evidence.checkers.verdict import Limit, judge
from harness.evidence.client_list import FILE, ClientList, ClientRecord
from harness.evidence.observation import Meta, Observation, Window
from harness.evidence.run_directory import RunDirectory
from harness.run import verification
from harness.run.spark_stream import SparkStream
from harness.run.verification import Verification, expectation, stores_logs
from harness.scenario import find, load
from harness.scenario.model import Limits
from tests.planted.tiny import Tiny
from tests.unit.test_run_directory import make_run, seal

RUN = "r7k2m9qa"


def verifying(tmp_path: Path, name: str = "running-totals") -> tuple[Verification, RunDirectory, Any]:
    """Return the verification of a run of a shipped scenario, with the run's directory and the scenario."""
    cluster: Any = SimpleNamespace(
        bootstrap=lambda _: "b", security=None, prefix="", owned=True, admin=None, readable_logs=frozenset()
    )
    scenario, directory = load(find(name)), make_run(tmp_path)
    spark = SparkStream(cluster, scenario, RUN)
    return Verification(cluster, scenario, directory, RUN, spark), directory, scenario


def observed(witness: str = "w") -> Observation:
    return Observation(Meta(witness=witness, kind="reference"))


def test_a_run_promises_the_time_outs_and_limits_of_its_scenario() -> None:
    slow = load(find("jitter"), {"limits.recovery": "90s", "workload.1.transaction_timeout": "75s"})
    expect = expectation(slow)

    assert expect.stall_ms == 90_000
    assert expect.transaction_timeout_ms == 75_000


@pytest.mark.parametrize(
    ("recovery", "stall_ms"), [("1ms", 60_000), ("59.9s", 60_000), ("60s", 60_000), ("60.1s", 60_100)]
)
def test_a_strict_limit_of_recovery_does_not_change_the_bound_of_stalled(
    recovery: str, stall_ms: int
) -> None:
    assert expectation(load(find("jitter"), {"limits.recovery": recovery})).stall_ms == stall_ms
    assert Expect().stall_ms == 60_000


@pytest.mark.parametrize(
    ("recovery", "history", "code"),
    [
        pytest.param("1ms", "@1-6 p1 commit ok a:0-4", 3, id="slow answer"),
        pytest.param("0.7s", "@1-60 p1 commit ok a:0-4", 3, id="answer just in time"),
        pytest.param("90s", "@1-80 p1 commit ok a:0-4", 3, id="long limit"),
        pytest.param("1ms", "@1-62 p1 commit ok a:0-4", 1, id="stalled despite a strict limit"),
        pytest.param("60s", "@1-75 p1 init ok\n p1 commit ok a:0-4", 1, id="stalled"),
        pytest.param("90s", "@1-95 p1 commit ok a:0-4", 1, id="stalled despite a long limit"),
    ],
)
def test_an_exceeded_limit_of_recovery_is_an_anomaly_only_if_an_answer_is_later_than_clients_may_wait(
    recovery: str, history: str, code: int
) -> None:
    evidence = Tiny(history, {"a": "p1:0-4 ."}).evidence()
    evidence.expect.stall_ms = expectation(load(find("jitter"), {"limits.recovery": recovery})).stall_ms

    judgement = judge(evidence, [Limit(name="recovery", measured=100.0, limit=90.0, unit="s")])

    names = [anomaly.name for result in judgement.results for anomaly in result.anomalies]
    assert (judgement.exit_code, names) == (code, ["stalled"] if code == 1 else [])


def test_a_pipeline_with_a_changelog_promises_it() -> None:
    expect = expectation(load(find("running-totals")))

    assert expect.pipeline is not None
    assert expect.pipeline.changelog
    assert expectation(load(find("jitter"))).pipeline.changelog == ""  # type: ignore[union-attr]


def test_a_walkthrough_with_a_group_promises_a_pipeline() -> None:
    group, source, timeout = "g", "in", 33.0
    scenario: Any = SimpleNamespace(
        workload=[],
        app=None,
        input=[],
        walkthrough=SimpleNamespace(group=group, source=source, transaction_timeout=timeout),
        verify=SimpleNamespace(witnesses=[]),
        limits=Limits(),
    )
    expect = expectation(scenario)

    assert expect.pipeline is not None
    assert (expect.pipeline.group, expect.pipeline.inputs) == (group, [source])
    assert expect.transaction_timeout_ms == 33_000
    scenario.walkthrough.group = ""
    assert expectation(scenario).pipeline is None


def test_the_manifest_contains_what_the_run_promised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified, directory, _ = verifying(tmp_path)
    for name in ("_collect_spark", "_collect_reader", "_collect_raw_log", "_collect_consumed"):
        monkeypatch.setattr(verified, name, lambda *_: None)
    monkeypatch.setattr(verified, "_collect_aggregates", lambda: None)
    monkeypatch.setattr(verification, "check_run", lambda *_, **__: (ExitCode.VALID, None))
    directory.write("expect.json", Expect(witnesses=["reader", "raw-log"], faults=3))
    clients = [ClientRecord(name=name, kind="reader", producer=0, started=1) for name in ("r-1", "r-2")]
    directory.write(FILE, ClientList(run=RUN, clock="c", clients=clients))
    for client in clients:
        (directory.histories / f"{client.name}.jsonl").touch()
    limit = Limit(name="recovery", measured=3.0, limit=2.0, unit="s")

    verified.collect_and_judge([limit], lambda _: None)

    sealed = manifest.read(directory)
    assert sealed.run == RUN
    assert (sealed.promised.clients, sealed.promised.faults) == (["r-1", "r-2"], 3)
    assert (sealed.promised.witnesses, sealed.promised.limits) == (["reader", "raw-log"], ["recovery"])
    assert directory.read("limits.json", list[Limit]) == [limit]
    assert "limits.json" in sealed.files


def test_a_witness_that_reads_for_long_shows_that_it_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified, _, scenario = verifying(tmp_path)
    lines: list[str] = []

    def read(witness: str, *_: object) -> None:
        if witness == scenario.verify.witnesses[0]:
            wait_until(lambda: any(" is still reading after " in line for line in lines), 30, "a line")

    monkeypatch.setattr(verification, "BEAT_S", 0.05)
    monkeypatch.setattr(verified, "_collect", read)
    monkeypatch.setattr(verification, "check_run", lambda *_, **__: (ExitCode.VALID, None))
    verified.collect_and_judge([], lines.append)
    first = lines.index(f"reading {', '.join(scenario.written_topics)} back ({scenario.verify.witnesses[0]})")
    assert lines[first + 1] == f"{scenario.verify.witnesses[0]} is still reading after 0 s"


def test_the_verdict_contains_why_a_witness_could_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified, directory, _ = verifying(tmp_path)
    end = Window(topic="t", partition=0, start=0, lso=10, hw=10, read_to=10)
    monkeypatch.setattr(verified, "_freeze", lambda: [end])

    def fail() -> None:
        raise UsageError("the batch at offset 0 cannot be decompressed", "install it")

    lines: list[str] = []
    verified._collect("raw-log", fail, lines.append)
    verified._collect("reader", fail, lines.append)
    directory.write("expect.json", Expect(witnesses=["reader", "raw-log"]))
    seal(directory)
    _, judgement = check_run(directory.path)

    assert lines[0].startswith("could not read raw-log: the batch at offset 0 cannot be decompressed")
    reasons = [reason for result in judgement.results for reason in result.reasons]
    assert "witness raw-log is incomplete: the batch at offset 0 cannot be decompressed" in reasons
    assert judgement.names() == [], "nothing is lost because a witness did not read"
    assert judgement.verdict == "unknown"
    assert observation.load(directory.observations / "reader").meta.complete, "it had read before"


def test_all_witnesses_share_the_ends_that_were_frozen_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified, _, scenario = verifying(tmp_path)
    asked: list[Any] = []

    def freeze(_: object, topics: Any, __: object) -> list[Window]:
        asked.append(topics)
        return [Window(topic="t", partition=0, start=0, lso=9, hw=9, read_to=9)]

    monkeypatch.setattr(verification, "freeze", freeze)
    first = verified._freeze()
    first[0].read_to = 0

    assert [window.read_to for window in verified._freeze()] == [9]
    assert asked == [scenario.written_topics]


def test_the_inputs_of_a_group_are_read_up_to_its_positions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified, directory, scenario = verifying(tmp_path)
    options: dict[str, Any] = {}
    monkeypatch.setattr(verification, "group_positions", lambda *_: {("in", 0): 7})

    def observe(_: object, topics: Any, run: str, **more: Any) -> Observation:
        options.update(more, topics=topics, run=run)
        return observed("consumed")

    monkeypatch.setattr(verification, "observe_topics", observe)
    verified._collect_consumed()

    pipeline = expectation(scenario).pipeline
    assert pipeline is not None
    assert (options["ends"], options["topics"]) == ({("in", 0): 7}, pipeline.inputs)
    assert (options["group"], options["run"]) == (pipeline.group, RUN)
    saved = observation.load(directory.observations / "consumed").meta
    assert saved.run == RUN
    assert saved.frozen > 0


def test_the_changelog_of_a_pipeline_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified, directory, scenario = verifying(tmp_path)
    read: list[str] = []

    def totals(_: object, changelog: str, run: str, **__: Any) -> Observation:
        read.extend((changelog, run))
        return observed("aggregates")

    monkeypatch.setattr(verification, "observe_totals", totals)
    verified._collect_aggregates()

    pipeline = expectation(scenario).pipeline
    assert pipeline is not None
    assert read == [pipeline.changelog, RUN]
    assert observation.load(directory.observations / "aggregates").meta.run == RUN


def test_the_raw_log_froze_its_ends_when_it_asked_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified, directory, _ = verifying(tmp_path)
    ends = [Window(topic="t", partition=0, start=0, lso=9, hw=9, read_to=9)]
    shared: list[Any] = []
    monkeypatch.setattr(verified, "_freeze", lambda: ends)
    monkeypatch.setattr(verification, "admin_at", lambda *_: None)
    monkeypatch.setattr(verification, "freeze_windows", lambda *_: ends)
    monkeypatch.setattr(verification, "limit_to", lambda limits, windows: shared.append(limits) or windows)
    monkeypatch.setattr(verification, "fetch_logs", lambda *_: [])
    monkeypatch.setattr(verification, "observe_raw", lambda *_, **__: observed("raw-log"))

    verified._collect_raw_log()

    saved = observation.load(directory.observations / "raw-log").meta
    assert shared == [ends]
    assert saved.run == RUN
    assert saved.frozen > 0


@pytest.mark.parametrize(
    ("witnesses", "readable", "stored"),
    [
        (["spark", "raw-log"], {"__transaction_state"}, True),
        (["spark"], {"__transaction_state"}, False),
        (["spark", "raw-log"], {"__consumer_offsets"}, False),
    ],
    ids=["raw log", "no raw log", "states that may not be read"],
)
def test_a_run_promises_stored_logs_if_it_can_read_them(
    witnesses: list[str], readable: set[str], stored: bool
) -> None:
    scenario = SimpleNamespace(verify=SimpleNamespace(witnesses=witnesses))
    cluster = SimpleNamespace(readable_logs=frozenset(readable))
    assert stores_logs(cluster, scenario) is stored  # type: ignore[arg-type]
