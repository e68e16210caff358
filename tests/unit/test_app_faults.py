"""Faults of the application: process trees are killed, asked to stop and frozen, and this is measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.base.errors import HealError, NoBiteError, TargetEndedError, UsageError, WaitTimeoutError
from harness.base.process_trees import TREE, end_tree, find_tree, send_to_tree, tree_state
from harness.base.processes import ProcessState
from harness.base.waits import wait_until
from harness.cluster.targets import Target
from harness.faults.app_faults import (
    AppFault,
    FreezeApp,
    KillApp,
    LoseDisk,
    LoseOutputs,
    MuteClient,
    PauseApp,
    RetireApp,
    RollApp,
    ScaleApp,
    resume_app,
    wait_removed,
)
from harness.faults.frame_faults import LoseResponseFrame
from harness.faults.injection import FaultContext
from harness.run import fault_runner
from harness.run.app_runner import LOOK_S

PAUSE = "import signal; signal.pause()"


@pytest.fixture
def context(tmp_path: Path) -> Iterator[FaultContext[int]]:
    """Yield the context of an injection on a tree of two processes."""
    mark = f"{tmp_path}/1/"
    with subprocess.Popen(
        ["sh", "-c", '"$@" & wait', "sh", sys.executable, "-c", PAUSE],
        env=dict(os.environ) | {TREE: mark},
        start_new_session=True,
    ) as process:
        wait_until(lambda: len(find_tree(mark)) == 2, 20, "two processes")
        nothing: Any = None
        target: Any = SimpleNamespace(pid=process.pid, mark=mark)
        yield FaultContext(nothing, ["app-1"], "fault", target)
        end_tree(mark)


def inject(fault: AppFault, context: FaultContext[int]) -> dict[str, Any]:
    context.state = fault.before(context)
    fault.apply(context)
    return fault.bite(context)


@pytest.mark.parametrize("fault", [KillApp(), RetireApp()], ids=lambda fault: fault.name)
def test_an_ended_instance_has_no_process_left(fault: AppFault, context: FaultContext[int]) -> None:
    assert inject(fault, context) | {"pid": 0} == {"pid": 0, "processes": 2, "state": "gone"}
    assert fault.undo_steps(context) == []
    assert fault.health(context) == {}
    with pytest.raises(TargetEndedError, match="has ended by itself"):
        fault.before(context)


def test_an_instance_that_still_runs_is_not_healthy(context: FaultContext[int]) -> None:
    with pytest.raises(HealError, match="have not ended"):
        KillApp().health(context)


def test_a_frozen_instance_is_resumed_and_twice_is_harmless(context: FaultContext[int]) -> None:
    fault, process = FreezeApp(), context.process
    assert process is not None
    assert inject(fault, context)["state"] == "stopped"
    with pytest.raises(NoBiteError, match="is stopped already"):
        fault.before(context)
    with pytest.raises(HealError, match="still frozen"):
        fault.health(context)
    (step,) = fault.undo_steps(context)
    assert step == {"do": "resume_app", "mark": process.mark}
    nothing: Any = None
    for _ in range(2):
        resume_app.action(nothing, process.mark)
        wait_until(lambda: tree_state(process.mark) is ProcessState.RUNNING, 10, "the tree to run")
        assert fault.health(context) == {"state": "running"}


def test_a_tree_of_which_one_process_runs_is_not_frozen(context: FaultContext[int]) -> None:
    process = context.process
    assert process is not None
    send_to_tree(process.mark, signal.SIGSTOP)
    wait_until(lambda: tree_state(process.mark) is ProcessState.STOPPED, 10, "the tree to be frozen")
    os.kill(process.pid, signal.SIGCONT)
    wait_until(lambda: tree_state(process.mark) is ProcessState.RUNNING, 10, "one process to run")


@pytest.mark.parametrize("target", ["one", "client(*)"])
def test_a_fault_of_an_application_needs_an_instance(target: str) -> None:
    with pytest.raises(UsageError, match="does not name an application, which kill_app needs"):
        KillApp.check_target(Target.parse(target))


class Control:
    """An application that does what it is asked to, except for the answers of the test."""

    def __init__(self, **answers: Any) -> None:
        self.running = ["app-1", "app-2"]
        self.instances = 2
        self.numbers = {"app-1": 1, "app-2": 1}
        self.answers: dict[str, Any] = {"members": [{"m1": "c1", "m2": "c2"}], "session": 100} | answers

    def members(self) -> dict[str, str]:
        members = self.answers["members"]
        return dict(members.pop(0) if len(members) > 1 else members[0])

    def members_of(self, _: str) -> dict[str, str]:
        return dict(self.answers.get("own", {"m1": "c1"}))

    def session_timeout_ms(self) -> int:
        return int(self.answers["session"])

    def transactional_ids_of(self, _: str) -> set[str]:
        return set(self.answers.get("ids", {"t1", "t2"}))

    def aborts_sent(self, _: str) -> int:
        asked = self.answers.get("asked", [0])
        return int(asked.pop(0) if len(asked) > 1 else asked[0])

    def transaction_timeout_ms(self, transactional_id: str) -> int:
        return int(self.answers.get("timeouts", {"t1": 100}).get(transactional_id, 0))

    def wipe_state(self, _: str) -> int:
        return int(self.answers["files"])

    def start_number(self, name: str) -> int:
        return self.numbers[name]

    def restart(self, name: str) -> str:
        self.numbers[name] += name not in self.answers.get("stuck", ())
        return ""

    def scale(self, count: int) -> None:
        self.running = [f"app-{number}" for number in range(1, count + 1)]

    def wait_ready(self, limit: float) -> None:
        assert limit > 0


def with_app(context: FaultContext[Any], **answers: Any) -> Any:
    context.app = control = Control(**answers)  # type: ignore[assignment]
    return control


@pytest.mark.parametrize("files", [3, 0])
def test_a_lost_disk_must_have_contained_files(context: FaultContext[int], files: int) -> None:
    with_app(context, files=files)
    if files:
        assert inject(LoseDisk(), context)["lost_files"] == 3
    else:
        with pytest.raises(NoBiteError, match="was empty"):
            inject(LoseDisk(), context)


def test_a_frozen_instance_bites_when_its_members_were_removed(context: FaultContext[int]) -> None:
    with_app(context, members=[{"m1": "c1", "m2": "c2"}, {"m2": "c2"}])
    bite = inject(FreezeApp(past="session"), context)
    assert (bite["removed_members"], bite["session_ms"], bite["state"]) == (1, 100, "stopped")


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        pytest.param({"members": [{"m1": "c1"}]}, "to remove the instance", id="stays"),
        pytest.param({"own": {}}, "has no member in the group", id="no-member"),
        pytest.param({"session": 0}, "no session time-out was seen", id="no-limit"),
    ],
)
def test_a_member_that_is_not_removed_is_no_bite(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any], problem: str
) -> None:
    monkeypatch.setattr("harness.faults.app_faults.GIVEN_UP_S", 0.2)
    app: Any = Control(**answers)
    with pytest.raises(NoBiteError, match=problem):
        wait_removed(app, set(app.members_of("app-1")), app.session_timeout_ms())


class Coordinator:
    """A transaction coordinator that answers with these states, and with the last one from then on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *states: str) -> None:
        self.states = list(states)
        monkeypatch.setattr("harness.faults.app_faults.describe_transactions", self.describe)

    def describe(self, *_: Any) -> list[Any]:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return [SimpleNamespace(state=state, epoch=7)]


def frozen_in_transaction(context: FaultContext[int]) -> dict[str, Any]:
    with_app(context, ids={"t1"})
    context.cluster = SimpleNamespace(admin=None, txn_coordinator=lambda _: 1)  # type: ignore[assignment]
    return inject(FreezeApp(past="transaction"), context)


@pytest.mark.parametrize(
    "states",
    [
        pytest.param(["Ongoing", "Ongoing", "CompleteAbort"], id="at-once"),
        pytest.param(["Ongoing", "PrepareAbort"], id="decided"),
        pytest.param(["Empty", "Ongoing", "CompleteAbort"], id="not-in-a-transaction-at-first"),
        pytest.param(["Ongoing", "CompleteCommit", "Ongoing", "CompleteAbort"], id="commit-on-its-way"),
        pytest.param(["Ongoing", "PrepareCommit", "Ongoing", "CompleteAbort"], id="commit-decided"),
    ],
)
def test_a_frozen_instance_bites_when_its_transaction_was_aborted(
    monkeypatch: pytest.MonkeyPatch, context: FaultContext[int], states: list[str]
) -> None:
    coordinator = Coordinator(monkeypatch, *states)
    bite = frozen_in_transaction(context)
    assert (bite["aborted"], bite["transaction"], bite["epoch"]) == ("t1", states[-1], 7)
    assert (bite["state"], coordinator.states) == ("stopped", states[-1:])


@pytest.mark.parametrize(
    ("states", "problem"),
    [
        pytest.param(["Ongoing", "CompleteCommit"], "never found in a transaction", id="committed"),
        pytest.param(["Empty"], "never found in a transaction", id="none"),
        pytest.param(["Ongoing"], "to abort the transaction of t1", id="open"),
    ],
)
def test_a_frozen_instance_whose_transaction_was_not_aborted_is_no_bite(
    monkeypatch: pytest.MonkeyPatch, context: FaultContext[int], states: list[str], problem: str
) -> None:
    monkeypatch.setattr("harness.faults.app_faults.OPEN_LIMIT_S", 0.2)
    monkeypatch.setattr("harness.faults.app_faults.GIVEN_UP_S", 0.2)
    Coordinator(monkeypatch, *states)
    with pytest.raises(NoBiteError, match=problem):
        frozen_in_transaction(context)


def test_pauses_freeze_an_instance_again_and_again_and_end_when_healed(context: FaultContext[Any]) -> None:
    fault = PauseApp(pause_ms=50, rest_ms=50)
    inject(fault, context)
    fault.release(context)
    (step,) = fault.undo_steps(context)
    resume_app.action(None, **{name: value for name, value in step.items() if name != "do"})  # type: ignore[arg-type]
    assert fault.health(context)["pauses"] > 1
    assert context.process is not None
    assert tree_state(context.process.mark) is ProcessState.RUNNING


def test_a_roll_out_restarts_every_instance(context: FaultContext[Any]) -> None:
    with_app(context)
    assert inject(RollApp(), context) == {"restarted": ["app-1", "app-2"]}
    with_app(context, stuck=["app-2"])
    with pytest.raises(NoBiteError, match="of 2 instances, 1 were restarted"):
        inject(RollApp(), context)


def test_scaling_bites_when_the_members_change_and_is_undone(
    context: FaultContext[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = with_app(context, members=[{"m1": "c1"}, {"m1": "c1", "m3": "c3"}])
    assert inject(ScaleApp(to=3), context)["instances"] == ["app-1", "app-2", "app-3"]
    ScaleApp(to=3).release(context)
    assert app.running == ["app-1", "app-2"]
    with pytest.raises(NoBiteError, match="2 instances run already"):
        ScaleApp(to=2).before(context)
    monkeypatch.setattr("harness.faults.app_faults.READY_LIMIT_S", 0.2)
    with_app(context)
    with pytest.raises(NoBiteError, match="members to change"):
        inject(ScaleApp(to=3), context)
    with pytest.raises(UsageError, match="not allowed"):
        ScaleApp(to=0)


@pytest.mark.parametrize(
    ("answers", "client", "problem"),
    [
        pytest.param({}, "other", "no member with client id 'other'", id="unknown"),
        pytest.param({"own": {}}, "", "app-1 to have a member", id="none"),
        pytest.param({"members": [{"m1": "c1", "m2": "c1"}]}, "", "other members have", id="shared"),
    ],
)
def test_a_client_that_cannot_be_muted_alone_is_no_bite(
    monkeypatch: pytest.MonkeyPatch,
    context: FaultContext[Any],
    answers: dict[str, Any],
    client: str,
    problem: str,
) -> None:
    monkeypatch.setattr("harness.faults.app_faults.OPEN_LIMIT_S", 0.2)
    with_app(context, **answers)
    with pytest.raises(NoBiteError, match=problem):
        MuteClient(client_id=client).before(context)


class Outputs:
    """A wire tap and a log of transactions: what the fault on outputs sees."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, lost: int = 3, stored: str = "PrepareAbort"
    ) -> None:
        self.rules: dict[str, Any] = {}
        self.lost = lost
        self.log = [(None, "t2", SimpleNamespace(state=state)) for state in ("Ongoing", stored)]
        monkeypatch.setattr("harness.faults.app_faults.ensure_tap", lambda _: self)
        monkeypatch.setattr("harness.faults.app_faults.TransactionLogTail", lambda *_: self)
        monkeypatch.setattr("harness.faults.app_faults.OPEN_LIMIT_S", 0.2)
        monkeypatch.setattr("harness.faults.app_faults.GIVEN_UP_S", 0.2)

    def arm(self, rule: Any) -> None:
        self.rules[rule.id] = rule

    def disarm(self, ident: str) -> None:
        self.rules.pop(ident, None)

    def armed(self, ident: str) -> Any:
        return SimpleNamespace(matched=self.lost) if ident in self.rules else None

    def states(self) -> list[Any]:
        return self.log


def outputs_context(context: FaultContext[Any], **answers: Any) -> FaultContext[Any]:
    with_app(context, **answers)
    context.cluster = SimpleNamespace(admin=None)  # type: ignore[assignment]
    return context


@pytest.mark.parametrize(("asked", "by"), [([3, 3, 4], "the application"), ([3], "the coordinator")])
def test_outputs_are_lost_until_the_coordinator_has_stored_an_abort(
    monkeypatch: pytest.MonkeyPatch, context: FaultContext[Any], asked: list[int], by: str
) -> None:
    outputs, fault = Outputs(monkeypatch), LoseOutputs()
    bite = inject(fault, outputs_context(context, asked=asked))

    assert (bite.pop("after_s") >= 0, bite.pop("by")) == (True, by)
    assert bite == {"aborted": "t2", "lost_requests": 6, "timeout_ms": 100}
    assert {(r.api, r.transactional_id, r.verb, r.then, r.times) for r in outputs.rules.values()} == {
        ("Produce", name, "lose_request", "cut", None) for name in ("t1", "t2")
    }
    with pytest.raises(HealError, match="still dropped"):
        fault.health(context)
    (step,) = fault.undo_steps(context)
    assert sorted(step["rules"]) == sorted(outputs.rules)
    outputs.rules.clear()
    assert fault.health(context) == {"commits_again": False}
    outputs.log.append((None, "t1", SimpleNamespace(state="PrepareCommit")))
    assert fault.health(context) == {"commits_again": True}


@pytest.mark.parametrize(
    ("answers", "seen", "problem"),
    [
        pytest.param({"ids": set()}, {}, "app-1 to send a transactional id", id="no-transactions"),
        pytest.param({"timeouts": {}}, {}, "no transaction time-out was seen", id="no-limit"),
        pytest.param({}, {"lost": 0}, "an output of the instance", id="no-output"),
        pytest.param({}, {"stored": "PrepareCommit"}, "an abort of t1 or t2", id="commits"),
    ],
)
def test_lost_outputs_without_an_abort_are_no_bite(
    monkeypatch: pytest.MonkeyPatch,
    context: FaultContext[Any],
    answers: dict[str, Any],
    seen: dict[str, Any],
    problem: str,
) -> None:
    outputs, fault = Outputs(monkeypatch, **seen), LoseOutputs()
    with pytest.raises(NoBiteError, match=problem):
        inject(fault, outputs_context(context, **answers))
    if outputs.rules:
        outputs.rules.clear()
        assert fault.health(context) == {}, "a fault that did not bite does not wait for a commit"


def test_only_known_limits_can_be_exceeded() -> None:
    with pytest.raises(UsageError, match="'heartbeat' is not known"):
        FreezeApp(past="heartbeat")  # type: ignore[arg-type]


@pytest.mark.parametrize(("session_ms", "limit"), [(6000, 10 + 6 + 15), (0, 10)])
def test_a_frame_is_awaited_for_the_time_that_a_rebalance_may_take(
    monkeypatch: pytest.MonkeyPatch, session_ms: int, limit: float
) -> None:
    limits: list[float] = []

    def time_out(_: object, seconds: float, describe: str, **more: object) -> None:
        limits.append(seconds)
        raise WaitTimeoutError(describe, str(more))

    tap = SimpleNamespace(armed=lambda _: None)
    monkeypatch.setattr("harness.faults.frame_faults.ensure_tap", lambda *_: tap)
    monkeypatch.setattr("harness.faults.frame_faults.wait_until", time_out)
    control: Any = Control(session=session_ms)
    nothing: Any = None
    context = FaultContext[None](nothing, ["broker-1"], "fault", app=control)

    with pytest.raises(NoBiteError, match="0 frames matched"):
        LoseResponseFrame(api="TxnOffsetCommit").bite(context)
    assert limits == [limit]


def test_another_instance_is_chosen_if_the_first_ends_before_the_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ["app-1", "app-2"]
    done: list[object] = []
    emitted: list[Any] = []
    app: Any = SimpleNamespace(
        choose=lambda *_: SimpleNamespace(name=names.pop(0)),
        hold=lambda _: None,
        unhold=lambda instance: done.append(f"unhold {instance.name}"),
        release=lambda instance: done.append(f"release {instance.name}"),
        note_fault=lambda *_: None,
        control=None,
    )

    def start(target: Target) -> Any:
        if target == Target.parse("app(app-1)"):
            raise TargetEndedError("the instance has ended by itself", "")
        return SimpleNamespace(fault=KillApp(), names=["app-2"], bite={}, ident="faults-0001")

    monkeypatch.setattr(fault_runner, "AppInstance", SimpleNamespace)
    monkeypatch.setattr(
        fault_runner,
        "Injection",
        lambda _, __, target, **more: SimpleNamespace(start=lambda: start(target)),  # noqa: ARG005
    )
    monkeypatch.setattr(fault_runner, "make_fault", lambda _: KillApp())
    nothing: Any = None
    monitor: Any = SimpleNamespace(active=[])
    runner = fault_runner.FaultRunner(nothing, nothing, nothing, monitor, emitted.append, app=app)
    step: Any = SimpleNamespace(
        entry=SimpleNamespace(fault="kill_app", target=Target.parse("app(*)")), seed=1
    )

    runner._inject(step, done.append)

    assert done == ["unhold app-1", LOOK_S]
    assert [(event.fault, event.names) for event in emitted] == [("kill_app", ["app-2"])]
