"""The way out of a run: what fails on it is told, healed another way where there is one, and judged."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaException

from harness.base import secrets
from harness.base.errors import ExitCode, HarnessError, HealError, RefusedError, UsageError
from harness.cluster.state_directory import State
from harness.faults import heal as healing
from harness.run import run as run_module
from harness.run import shutdown, verification
from harness.run.fault_runner import FaultRunner
from harness.run.run import Run
from harness.run.shutdown import Shutdown
from harness.run.verification import Verification
from harness.scenario import find, load
from tests.unit.test_run_directory import make_run

Told = list[tuple[str, str]]


class Injected:
    """An injection that heals after so many tries."""

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


def test_what_would_not_heal_is_still_there_for_who_heals_next() -> None:
    one = Injected("jitter", failures=1)
    faults = faults_with(one)
    with pytest.raises(HealError):
        faults._heal(cast(Any, one))

    faults.heal_all()

    assert one.healed
    assert faults._active == []


def test_one_that_will_not_heal_keeps_no_other_from_it_and_is_told() -> None:
    first, stuck = Injected("jitter", 0), Injected("kill", failures=9)
    with pytest.raises(HealError, match="kill is not over"):
        faults_with(first, stuck).heal_all()
    assert first.healed


def an_ending(tmp_path: Path, told: Told, nodes: dict[str, Any] | None = None) -> Shutdown:
    (tmp_path / "run").mkdir()
    directory: Any = SimpleNamespace(path=tmp_path / "run")
    cluster: Any = SimpleNamespace(nodes=nodes or {})
    return Shutdown(cluster, directory, lambda name, detail: told.append((name, detail)))


def fails(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_what_will_not_heal_is_healed_from_what_can_be_seen_and_spares_the_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(shutdown, "heal", lambda *_, spare_clients: asked.append(spare_clients))
    told: Told = []

    an_ending(tmp_path, told).heal(fails(HealError("kafka-1 is paused", "wait")))

    assert asked == [True]
    assert told == [("heal", "kafka-1 is paused: healing everything that can be seen")]


@pytest.mark.parametrize("error", [HealError("still cut", "h"), ConnectionRefusedError(111, "refused")])
def test_a_healing_that_fails_twice_is_told_and_ends_nothing(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "heal", fails(error))
    told: Told = []

    an_ending(tmp_path, told).heal(fails(HealError("kafka-1 is paused", "wait")))

    assert "NOT healed" in told[-1][1]


def test_a_log_that_cannot_be_had_is_told_and_the_others_are_kept_without_secrets(tmp_path: Path) -> None:
    secrets.remember("s3cr3t")
    gone = SimpleNamespace(log=fails(HarnessError("no such container", "h")))
    told: Told = []
    ends = an_ending(tmp_path, told, {"kafka-1": gone, "kafka-2": SimpleNamespace(log=lambda _: "a s3cr3t")})
    killed = SimpleNamespace(spec=SimpleNamespace(client="p-1"), log=fails(FileNotFoundError(2, "none")))

    ends.keep_logs([cast(Any, killed)])

    assert {file.name: file.read_text() for file in (tmp_path / "run" / "logs").iterdir()} == {
        "kafka-2.log": "a [redacted]"
    }
    assert [detail.split(":")[0] for _, detail in told] == [
        "the log of p-1 is not kept",
        "the log of kafka-1 is not kept",
    ]


def test_every_last_step_is_taken_and_a_bug_is_a_bug(tmp_path: Path) -> None:
    done: list[int] = []
    told: Told = []
    ends = an_ending(tmp_path, told)
    ends.each(fails(EOFError("closed")), lambda: done.append(1), fails(UsageError("m", "h")))
    assert done == [1]
    assert [name for name, _ in told] == ["drain", "drain"]
    with pytest.raises(KeyError):
        ends.each(fails(KeyError("ours")))


def make_verification(tmp_path: Path, *, witness: BaseException) -> tuple[Verification, Told]:
    cluster: Any = SimpleNamespace(bootstrap=lambda _: "b", security=None, prefix="")
    verified = Verification(cluster, load(find("jitter")), make_run(tmp_path), "r7k2m9qa")
    verified._consumed = fails(witness)  # type: ignore[method-assign]
    verified._aggregates = lambda: None  # type: ignore[method-assign]
    return verified, []


@pytest.mark.parametrize(
    "error",
    [KafkaException("no leader"), TimeoutError("nobody"), EOFError(), HarnessError("m", "h")],
    ids=lambda error: type(error).__name__,
)
def test_a_witness_that_fails_is_told_and_the_others_are_heard(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    verified, told = make_verification(tmp_path, witness=error)
    silent = dict.fromkeys(verification._WITNESSES, fails(error))
    monkeypatch.setattr(verification, "_WITNESSES", silent | {"reader": lambda *_: heard.append("reader")})
    monkeypatch.setattr(verification, "check_run", lambda _: (ExitCode.UNKNOWN, "judged"))

    _, judgement = verified.judge([], lambda line: told.append(("verify", line)))

    assert judgement == "judged"
    assert heard == ["reader"]
    assert "the group leaves no account" in told[-1][1]


def test_an_interlock_is_no_silent_witness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verified, _ = make_verification(tmp_path, witness=HarnessError("m", "h"))
    refused = fails(RefusedError("not ours", "h"))
    monkeypatch.setattr(verification, "_WITNESSES", dict.fromkeys(verification._WITNESSES, refused))
    with pytest.raises(RefusedError, match="not ours"):
        verified.judge([], lambda _: None)


def test_the_live_job_is_told_of_the_hurry_and_its_log_is_kept_without_secrets(tmp_path: Path) -> None:
    secrets.remember("s3cr3t")
    verified, _ = make_verification(tmp_path, witness=HarnessError("m", "h"))
    folder = tmp_path / "spark"
    folder.mkdir()
    (folder / "driver.log").write_bytes(b"sasl.jaas.config=s3cr3t \xff\n")
    hurries: list[bool] = []

    def finish(_: object, *, hurry: Callable[[], bool]) -> None:
        hurries.append(hurry())
        raise HarnessError("it ended", "h")

    verified.live = cast(Any, SimpleNamespace(folder=folder, finish=finish))
    verified._freeze = lambda _: []  # type: ignore[method-assign]
    verified._hurry = lambda: True
    with pytest.raises(HarnessError, match="it ended"):
        verified._spark([])

    assert hurries == [True]
    kept = (verified._directory.path / "logs" / "spark-driver.log").read_text()
    assert "s3cr3t" not in kept
    assert "[redacted]" in kept


@pytest.mark.parametrize("where", ["_phases", "_verify"])
def test_whatever_ends_a_run_ends_the_live_job(where: str, tmp_path: Path) -> None:
    ended: list[bool] = []
    run: Any = Run.__new__(Run)
    run._info = SimpleNamespace(scenario="demo", run="r", seed=7, environment={})
    run.directory = make_run(tmp_path)
    run._began, run._stop, run._lock, run._listeners = 0.0, threading.Event(), threading.Lock(), []
    run.run, run._scenario = "r", SimpleNamespace(name="demo")
    run._verification = SimpleNamespace(stop_live=lambda: ended.append(True))
    (tmp_path / "state").mkdir()
    state = SimpleNamespace(intents=tmp_path / "state" / "intents")
    run._cluster = SimpleNamespace(state=state, locked=lambda _: threading.Lock(), lasting_ailments=list)
    run._phases, run._verify = lambda *_: [], lambda _: None
    setattr(run, where, fails(KeyboardInterrupt()))

    with pytest.raises(KeyboardInterrupt):
        run.execute()

    assert ended == [True]


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
    """The clients of a run: `start` starts one, and none ever makes progress."""

    def __init__(self, *_: object) -> None:
        self.clients: list[str] = []
        self.topics: dict[str, int] = {}
        self.folder = Path()

    def start(self) -> None:
        self.clients.append("p-1")

    def wait_progress(self, *_: object) -> None:
        raise ConnectionResetError(104, "the broker is gone")

    def kill(self) -> None:
        self.clients.clear()


def a_run(monkeypatch: pytest.MonkeyPatch, told: Told) -> Any:
    """A run with everything around it left out; its phases are real."""
    cost = SimpleNamespace(told=str)
    watch = SimpleNamespace(
        start=lambda: None, stop=lambda **_: None, enter=lambda _: None, cost=cost, acknowledged_in={}
    )
    for name, made in (
        ("Fleet", Crew),
        ("Monitor", lambda *_: watch),
        ("FaultRunner", lambda *_: SimpleNamespace(heal_all=lambda: told.append(("healed", "")))),
        ("FrameCapture", lambda *_: SimpleNamespace(start=lambda _: None, stop=lambda _: None)),
    ):
        monkeypatch.setattr(run_module, name, made)
    run: Any = Run.__new__(Run)
    run.run, run._stop, run._stopped_because = "r", threading.Event(), ""
    run._cluster = SimpleNamespace(state=SimpleNamespace(path=Path()), caveats=lambda _: [], nodes={})
    run._scenario = load(find("jitter"))
    run._plan = SimpleNamespace(seed=7, steps=[], throughout=[], injections=[])
    run.directory = SimpleNamespace(path=Path(), histories=Path(), write=lambda *_: None)
    run._verification = SimpleNamespace(start_live=lambda *_: None)
    run._phase = lambda name, detail="", watch=None: told.append((name, detail))  # noqa: ARG005
    run._drain = lambda _: None
    run._ending = SimpleNamespace(
        heal=lambda injected: injected(), each=lambda *_: None, keep_logs=lambda _: None
    )
    return run


def test_a_broker_that_goes_away_ends_a_run_and_not_its_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    told: Told = []
    limits = a_run(monkeypatch, told)._phases(None, None)
    assert ("healed", "") in told
    assert any(name == "aborted" and "the broker is gone" in detail for name, detail in told)
    assert [limit.name for limit in limits] == ["phases without progress"]


def test_a_broker_that_refuses_before_any_client_is_an_error_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = a_run(monkeypatch, [])
    run._verification.start_live = fails(ConnectionRefusedError(111, "refused"))
    with pytest.raises(ConnectionRefusedError):
        run._phases(None, None)
