"""The end of a run: it reports every failure, retries a failed heal in another way, and gives a verdict."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from harness.base import processes, secrets
from harness.base.errors import ExitCode, HarnessError, HealError, RefusedError, UsageError
from harness.base.events import EventHandler
from harness.clients.bug_log import FILE, BugLog, read_counts
from harness.cluster.layout import BrokerListener
from harness.cluster.state_directory import State
from harness.evidence.checkers.client_ends import check_phases
from harness.evidence.checkers.model import Collector, Evidence
from harness.evidence.history import HistoryFile, HistoryWriter
from harness.evidence.ledger import fold
from harness.evidence.observation import Meta, Observation
from harness.faults import heal as healing
from harness.kafka.security import PLAINTEXT
from harness.provision.kafka_versions import DEFAULT_KAFKA
from harness.report import results
from harness.run import fault_program, make_run, shutdown, spark_stream, verification
from harness.run import run as run_module
from harness.run.fault_program import FaultProgram
from harness.run.fault_runner import FaultRunner
from harness.run.program import RunContext
from harness.run.run import Run
from harness.run.shutdown import Shutdown, StopRequest
from harness.run.spark_stream import SparkStream
from harness.run.verification import Verification
from harness.scenario import find, load
from harness.scenario.model import Limits, Verify
from harness.scenario.plan import draw
from harness.witness.spark import stream_supervisor
from harness.witness.spark.spark_process import Job
from harness.witness.spark.spark_session import QUICK_START_RATE
from harness.witness.spark.stream_supervisor import Readings
from tests.unit.test_run_directory import make_run as make_directory

Lines = list[tuple[str, str]]


class Injected:
    """Stub of an injection; its heal fails `failures` times before it succeeds."""

    def __init__(self, name: str, failures: int) -> None:
        self.fault = SimpleNamespace(name=name)
        self.names = ["kafka-1"]
        self.health: dict[str, Any] = {}
        self.failures = failures
        self.healed = False

    def heal(self) -> None:
        if self.failures:
            self.failures -= 1
            raise HealError(f"{self.fault.name} is not over", "wait")
        self.healed = True


def faults_with(*injected: Injected) -> FaultRunner:
    nothing: Any = None
    faults = FaultRunner(nothing, nothing, nothing, cast(Any, SimpleNamespace(active=[])), lambda _: None)
    faults._active = [(cast(Any, one), None) for one in injected]
    return faults


def test_an_injection_that_does_not_heal_stays_listed_for_the_next_heal() -> None:
    one = Injected("jitter", failures=1)
    faults = faults_with(one)
    with pytest.raises(HealError):
        faults._heal(cast(Any, one))

    faults.heal_all()

    assert one.healed
    assert faults._active == []


def test_an_injection_that_does_not_heal_is_reported_and_stops_no_other() -> None:
    first, stuck = Injected("jitter", 0), Injected("kill", failures=9)
    with pytest.raises(HealError, match="kill is not over"):
        faults_with(first, stuck).heal_all()
    assert first.healed


def make_shutdown(tmp_path: Path, lines: Lines, nodes: dict[str, Any] | None = None) -> Shutdown:
    (tmp_path / "run").mkdir()
    directory: Any = SimpleNamespace(path=tmp_path / "run")
    cluster: Any = SimpleNamespace(nodes=nodes or {})
    return Shutdown(cluster, directory, lambda name, detail: lines.append((name, detail)))


def fails(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_a_failed_heal_is_followed_by_a_heal_of_the_cluster_that_spares_the_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(shutdown, "heal", lambda *_, spare_clients: asked.append(spare_clients))
    lines: Lines = []

    make_shutdown(tmp_path, lines).heal(fails(HealError("kafka-1 is paused", "wait")))

    assert asked == [True]
    assert lines == [("heal", "kafka-1 is paused: healing every fault that the cluster shows")]


@pytest.mark.parametrize("error", [HealError("still cut", "h"), ConnectionRefusedError(111, "refused")])
def test_a_heal_that_fails_twice_is_reported_and_stops_nothing(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "heal", fails(error))
    lines: Lines = []

    make_shutdown(tmp_path, lines).heal(fails(HealError("kafka-1 is paused", "wait")))

    assert "NOT healed" in lines[-1][1]


def test_a_log_that_cannot_be_read_is_reported_and_the_others_are_kept_without_secrets(
    tmp_path: Path,
) -> None:
    secrets.remember("s3cr3t")
    gone = SimpleNamespace(log=fails(HarnessError("no such container", "h")))
    lines: Lines = []
    ends = make_shutdown(
        tmp_path, lines, {"kafka-1": gone, "kafka-2": SimpleNamespace(log=lambda _: "a s3cr3t")}
    )
    killed = SimpleNamespace(
        spec=SimpleNamespace(client="p-1"), log=fails(FileNotFoundError(2, "none")), folder=tmp_path / "p-1"
    )

    ends.keep_logs([cast(Any, killed)])

    assert {file.name: file.read_text() for file in (tmp_path / "run" / "logs").iterdir()} == {
        "kafka-2.log": "a [redacted]"
    }
    assert [detail.split(":")[0] for _, detail in lines] == [
        "could not keep the log of p-1",
        "could not keep the log of kafka-1",
    ]


def test_the_record_of_a_planted_bug_is_kept_beside_the_log_of_its_client(tmp_path: Path) -> None:
    folder = tmp_path / "p-1"
    folder.mkdir()
    BugLog(folder / FILE).fired()
    buggy = SimpleNamespace(spec=SimpleNamespace(client="p-1"), log=lambda: "started", folder=folder)

    make_shutdown(tmp_path, []).keep_logs([cast(Any, buggy)])

    assert sorted(file.name for file in (tmp_path / "run" / "logs").iterdir()) == [
        "p-1.log",
        "p-1.planted-bug.jsonl",
    ]
    assert read_counts(tmp_path / "run" / "logs") == {"fired": 1}


def test_every_shutdown_step_is_carried_out_and_a_bug_still_raises(tmp_path: Path) -> None:
    done: list[int] = []
    lines: Lines = []
    ends = make_shutdown(tmp_path, lines)
    ends.each(fails(EOFError("closed")), lambda: done.append(1), fails(UsageError("m", "h")))
    assert done == [1]
    assert [name for name, _ in lines] == ["drain", "drain"]
    with pytest.raises(KeyError):
        ends.each(fails(KeyError("ours")))


def make_verification(tmp_path: Path, *, error: BaseException) -> Verification:
    cluster: Any = SimpleNamespace(
        bootstrap=lambda _: "b", security=None, prefix="", owned=True, admin=None, readable_logs=frozenset()
    )
    scenario = load(find("jitter"))
    spark = SparkStream(cluster, scenario, "r7k2m9qa")
    made = Verification(cluster, scenario, make_directory(tmp_path), "r7k2m9qa", spark)
    for name in ("_collect_spark", "_collect_reader", "_collect_raw_log", "_collect_consumed"):
        setattr(made, name, fails(error))
    made._collect_aggregates = lambda: None  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize(
    "error",
    [TimeoutError("no answer"), EOFError(), HarnessError("m", "h")],
    ids=lambda error: type(error).__name__,
)
def test_a_witness_that_fails_is_reported_and_the_others_still_read(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    lines: list[str] = []
    verified = make_verification(tmp_path, error=error)
    verified._collect_reader = lambda: read.append("reader")  # type: ignore[method-assign]
    monkeypatch.setattr(verification, "check_run", lambda _, **__: (ExitCode.UNKNOWN, "judged"))

    _, judgement = verified.collect_and_judge([], lines.append)

    assert judgement == "judged"
    assert read == ["reader"]
    assert "could not read the group" in lines[-1]


def test_an_interlock_is_no_failure_of_a_witness(tmp_path: Path) -> None:
    verified = make_verification(tmp_path, error=RefusedError("not ours", "h"))
    with pytest.raises(RefusedError, match="not ours"):
        verified.collect_and_judge([], lambda _: None)


def test_a_run_promises_both_observations_of_spark_and_is_held_to_exactly_once() -> None:
    scenario = load(find("jitter"), {"verify.witnesses": '["reader", "spark"]'})
    expect = verification.expectation(scenario)
    assert expect.witnesses == ["reader", "spark", "spark-batch"]
    assert expect.hold_to == "exactly_once"
    assert expect.pipeline is not None
    scenario = load(find("jitter"), {"verify.witnesses": '["reader"]'})
    assert verification.expectation(scenario).witnesses == ["reader"]


@pytest.mark.parametrize(
    ("changes", "quick_start"),
    [
        ({}, True),
        ({"workload.0.rate": QUICK_START_RATE - 1}, True),
        ({"workload.0.rate": QUICK_START_RATE}, False),
        ({"workload.0.rate": QUICK_START_RATE // 2, "workload.0.clients": 2}, False),
    ],
)
def test_the_spark_job_of_a_run_with_a_low_rate_starts_quickly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], quick_start: bool
) -> None:
    made: list[Job] = []

    def supervisor(job: Job, _: object) -> object:
        made.append(job)
        return SimpleNamespace(start=lambda: None)

    monkeypatch.setenv(processes.SUPERVISED, "1")  # the start sets it; pytest removes it afterwards
    monkeypatch.setattr(spark_stream, "freeze", lambda *_: [])
    monkeypatch.setattr(stream_supervisor, "StreamVerification", supervisor)
    cluster: Any = SimpleNamespace(bootstrap=lambda _: "b", security=PLAINTEXT, prefix="")
    scenario = load(find("without-idempotence"), changes)

    SparkStream(cluster, scenario, "r7k2m9qa").start(tmp_path, lambda _: None, tmp_path)

    assert [job.quick_start for job in made] == [quick_start]


def test_spark_is_asked_to_stop_waiting_and_its_log_is_kept_without_secrets(tmp_path: Path) -> None:
    secrets.remember("s3cr3t")
    folder = tmp_path / "spark"
    folder.mkdir()
    (folder / "driver.log").write_bytes(b"sasl.jaas.config=s3cr3t \xff\n")
    asked: list[bool] = []

    def finish(_: object, *, hurry: Callable[[], bool], **_more: object) -> None:
        asked.append(hurry())
        raise HarnessError("it ended", "h")

    def partial(reason: str) -> Readings:
        unread = [Observation(Meta(witness=name, kind="spark", detail=reason)) for name in ("spark", "batch")]
        return Readings(*unread)

    spark = SparkStream(cast(Any, None), load(find("jitter")), "r")
    job = SimpleNamespace(
        folder=folder, finish=finish, partial=partial, read_ends=dict, remove_scratch=lambda: None
    )
    spark._job = cast(Any, job)
    lines: list[str] = []
    spark._log = lines.append
    readings = spark.finish(list, tmp_path / "logs", lambda: True)

    assert [(one.meta.complete, one.meta.detail) for one in readings] == [(False, "it ended")] * 2
    assert lines == ["the stream read 0 rows and is incomplete: it ended"]
    assert asked == [True]
    kept = (tmp_path / "logs" / "spark-driver.log").read_text()
    assert "s3cr3t" not in kept
    assert "[redacted]" in kept


class ClusterStub:
    """Stub of a healthy cluster that a run can lock."""

    prefix = ""
    security = None
    broker_ids = (1, 2, 3)
    owned = True
    admin = None
    readable_logs: frozenset[str] = frozenset()

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.state = SimpleNamespace(intents=folder / "intents", path=folder)

    def locked(self, _: str) -> Any:
        return threading.Lock()

    def lasting_ailments(self) -> list[str]:
        return []

    def bootstrap(self, _: str) -> str:
        return "b"


class ProgramStub:
    """Stub of a run's program, which acts on the cluster. It does nothing, or raises a given error."""

    def __init__(self, run: RunContext, error: BaseException | None = None) -> None:
        self.run, self.error = run, error

    def expectation(self) -> Any:
        return verification.expectation(self.run.scenario)

    def carry_out(self, *_: object) -> list[Any]:
        if self.error:
            raise self.error
        return []

    def is_complete(self) -> bool:
        return True

    def write_documents(self) -> None:
        """Write nothing: this stub has no documents besides the report."""


def stub_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Callable[[RunContext], Any] = ProgramStub
) -> Run:
    monkeypatch.setattr(run_module, "environment", lambda _: {"backend": "process"})
    scenario = msgspec.structs.replace(load(find("jitter")), verify=Verify(witnesses=[]))
    monkeypatch.setattr(verification, "group_positions", fails(HarnessError("m", "h")))
    cluster: Any = ClusterStub(tmp_path / "state")
    return Run(
        cluster,
        scenario,
        draw(scenario, 7),
        tmp_path / "runs",
        program=program,
        listeners=[],
        replay_command="eos run jitter --seed 7",
    )


@pytest.mark.parametrize("where", ["carry_out", "collect_and_judge", "write_documents"])
def test_an_interrupt_in_any_phase_ends_the_spark_job(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []
    run = stub_run(tmp_path, monkeypatch)
    monkeypatch.setattr(SparkStream, "stop", lambda _: ended.append(True))
    owner = Verification if where == "collect_and_judge" else ProgramStub
    monkeypatch.setattr(owner, where, fails(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        run.execute()

    assert ended == [True]


def test_a_run_writes_its_events_its_results_line_and_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = stub_run(tmp_path, monkeypatch).execute()

    events = (outcome.directory / "events.jsonl").read_text().splitlines()
    assert '"event":"started"' in events[0]
    assert '"event":"verdict"' in events[-1]
    assert "eos run jitter --seed 7" in (outcome.directory / "report.html").read_text()
    (line,) = results.read(tmp_path / "runs" / results.NAME)
    assert (line.scenario, line.verdict) == ("jitter", "unknown")


def test_a_run_without_a_verdict_has_events_and_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stub_run(tmp_path, monkeypatch, lambda context: ProgramStub(context, KeyError("ours")))
    with pytest.raises(KeyError):
        run.execute()
    directory = (tmp_path / "runs" / "jitter" / "latest").resolve()
    assert (directory / "events.jsonl").exists()
    assert not (directory / "report.html").exists()
    assert not (tmp_path / "runs" / results.NAME).exists()


def test_creating_a_run_writes_no_file(tmp_path: Path) -> None:
    scenario = load(find("jitter"))
    record = SimpleNamespace(kafka=DEFAULT_KAFKA)
    cluster: Any = SimpleNamespace(owned=True, record=record, prefix="", broker_ids=(1, 2, 3), name_of=str)
    make_run(cluster, scenario, draw(scenario, 1), tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []


def test_handlers_shut_down_in_order_and_before_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    class Handler(EventHandler):
        def start(self, directory: Path) -> None:
            order.append(f"start {directory.exists()}")

        def shutdown(self) -> None:
            order.append("shutdown")

    run = stub_run(tmp_path, monkeypatch)
    monkeypatch.setattr("harness.report.outputs.write_report", lambda _: order.append("report"))
    run.add_handler(Handler())
    run.execute()
    assert order == ["start True", "shutdown", "report"]


@pytest.mark.parametrize("spared", [True, False])
def test_a_run_that_heals_itself_ends_no_client(
    spared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []
    monkeypatch.setattr(healing, "_end_clients", lambda *_: ended.append(True) or 1)
    cluster: Any = SimpleNamespace(
        owned=False,
        state=State(tmp_path),
        wait_healthy=lambda _: None,
        backend=SimpleNamespace(capabilities=frozenset()),
    )
    assert healing.heal(cluster, lambda _: None, spare_clients=spared) == int(not spared)
    assert ended == ([] if spared else [True])


class Crew:
    """Stub of a fleet: `start` starts one client; the wait for progress fails, as if the broker were gone."""

    def __init__(self, *_: object) -> None:
        self.clients: list[str] = []
        self.topics: dict[str, int] = {}
        self.folder = Path()

    listener = BrokerListener.PROXIED

    def start(self) -> None:
        self.clients.append("p-1")

    def wait_progress(self, *_: object) -> None:
        raise ConnectionResetError(104, "the broker is gone")

    def kill(self) -> None:
        self.clients.clear()


def a_program(monkeypatch: pytest.MonkeyPatch, lines: Lines) -> Any:
    """Return a real fault program whose fleet, monitor and fault runner are stubs.

    It goes through its real phases and appends them to `lines`.
    """
    monitor = SimpleNamespace(
        start=lambda: None,
        stop=lambda **_: None,
        phase="steady",
        enter=lambda _: None,
        usage=SimpleNamespace(describe=str),
        acknowledged_in={},
        failure="",
    )
    for name, made in (
        ("Fleet", Crew),
        ("Monitor", lambda *_, **__: monitor),
        (
            "FaultRunner",
            lambda *_, **__: SimpleNamespace(
                carry_out=lambda *_: None, heal_all=lambda: lines.append(("healed", ""))
            ),
        ),
        ("FrameCapture", lambda *_: SimpleNamespace(start=lambda _: None, stop=lambda _: None)),
    ):
        monkeypatch.setattr(fault_program, name, made)
    run: Any = SimpleNamespace(
        run_id="r",
        stop=StopRequest(),
        cluster=SimpleNamespace(state=SimpleNamespace(path=Path()), caveats=lambda _: [], nodes={}),
        scenario=load(find("jitter")),
        plan=SimpleNamespace(seed=7, steps=[], throughout=[], injections=[], waiting=""),
        directory=SimpleNamespace(path=Path(), histories=Path(), write=lambda *_: None),
        spark=SimpleNamespace(start=lambda *_: None),
        clients=None,
        events=SimpleNamespace(
            phase=lambda name, detail="": lines.append((name, detail)), emit=lambda _: None
        ),
        shutdown=SimpleNamespace(
            heal=lambda injected: injected(), each=lambda *_: None, keep_logs=lambda _: None
        ),
    )
    return FaultProgram(run)


def observed_reasons(path: Path) -> list[str]:
    """Return why the observer's history makes the run unknown."""
    out = Collector("coverage", "things")
    check_phases(Evidence(fold([HistoryFile(path)]), []), out)
    return out.reasons


def test_a_broker_that_goes_away_ends_the_phases_and_makes_the_run_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: Lines = []
    path = tmp_path / "observer.jsonl"
    with HistoryWriter(path, run="r", client="observer", role="observer") as observer:
        limits = a_program(monkeypatch, lines).carry_out(None, observer)
    [reason] = observed_reasons(path)
    assert "aborted in phase steady" in reason
    assert "the broker is gone" in reason
    assert lines.count(("healed", "")) == 1
    assert any(name == "aborted" and "the broker is gone" in detail for name, detail in lines)
    assert [limit.name for limit in limits] == ["phases without progress"]


@pytest.mark.parametrize("where", ["settle", "recover"])
def test_an_interrupted_run_records_the_phase_in_which_it_was_interrupted(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = a_program(monkeypatch, [])
    interrupted_calls = {"settle": 1, "recover": 2}[where]
    calls: list[int] = []

    def wait_progress(*_: object) -> None:
        calls.append(1)
        if len(calls) == interrupted_calls:
            program._run.stop.make()

    monkeypatch.setattr(Crew, "wait_progress", wait_progress)
    program._run.scenario = SimpleNamespace(
        verify=Verify(), workload=[], plan=SimpleNamespace(steady=0.0), limits=Limits()
    )
    program._run.cluster.wait_healthy = lambda *_, **__: None
    program._capture = SimpleNamespace(start=lambda _: None, stop=lambda _: None)
    path = tmp_path / "observer.jsonl"
    with HistoryWriter(path, run="r", client="observer", role="observer") as observer:
        program.carry_out(None, observer)
    [reason] = observed_reasons(path)
    assert "interrupted" in reason


def test_a_run_expects_every_planned_fault_and_the_list_of_its_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = a_program(monkeypatch, [])
    program._planned = [SimpleNamespace(entry=SimpleNamespace(capability="links"))] * 3
    expect = program.expectation()
    assert (expect.faults, expect.clients, expect.hold_to) == (3, True, "exactly_once")
    assert expect.witnesses == ["spark", "spark-batch", "reader", "raw-log"]


def test_a_broker_that_refuses_before_any_client_is_an_error_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = a_program(monkeypatch, [])
    program._run.spark.start = fails(ConnectionRefusedError(111, "refused"))
    with pytest.raises(ConnectionRefusedError):
        program.carry_out(None, None)


def test_a_bug_heals_once_and_kills_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: Lines = []
    monkeypatch.setattr(Crew, "wait_progress", fails(KeyError("ours")))
    program = a_program(monkeypatch, lines)
    with pytest.raises(KeyError):
        program.carry_out(None, None)
    assert lines.count(("healed", "")) == 1
    assert program._fleet.clients == []
