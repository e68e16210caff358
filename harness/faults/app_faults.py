"""Faults of the application under test: its processes are ended, frozen, restarted, added or cut off.

Faults that wait until a coordinator has given up a client learn its time limit from the frames that the
application sent. They therefore need the wire tap, which the run starts for them.
"""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar

from harness.base.errors import (
    HarnessError,
    HealError,
    NoBiteError,
    TargetEndedError,
    UsageError,
    WaitTimeoutError,
)
from harness.base.processes import ProcessState
from harness.base.waits import wait_until
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.evidence.checkers.app_transactions import BY_APPLICATION
from harness.faults.app_control import GIVEN_UP_S, AppControl
from harness.faults.injection import Fault, FaultContext, MarkedProcess, Measured, Positive, TargetKind
from harness.faults.undo import UndoStep, undo_verb
from harness.kafka.log.coordinator_log import TransactionLogTail
from harness.kafka.transactions import describe_transactions
from harness.provision.app_processes import count_processes, processes_state, send_signal
from harness.tap.rules import ANY_API, Rule
from harness.tap.tap_client import ensure_tap

STOP_LIMIT_S: Final = 90.0
"""Time limit in seconds for the clean exit of an application, which may have to wait for a broker."""
READY_LIMIT_S: Final = 90.0
"""Time limit in seconds until instances are ready again, which includes the start of a JVM."""
OPEN_LIMIT_S: Final = 20.0
"""Time limit in seconds to find an instance in the middle of a transaction."""
COMMITS: Final = ("PrepareCommit", "CompleteCommit")
"""States of a transaction that the coordinator has committed."""
_HINT = "read the log of the instance in the run directory"
S = TypeVar("S")


@undo_verb
def resume_app(_: Cluster, mark: str) -> None:
    send_signal(mark, signal.SIGCONT)


@undo_verb
def unmute_client(cluster: Cluster, rules: list[str]) -> None:
    for rule in rules:
        ensure_tap(cluster).disarm(rule)


class AppFault(Fault[S], Generic[S]):
    """Base class of the faults on the application under test."""

    capability: ClassVar[Capability] = Capability.CLIENT
    target_kind: ClassVar[TargetKind] = TargetKind.APP


class SignalledApp(AppFault[int]):
    """Base class of the faults that send a signal to all processes of one start of an instance."""

    signal_sent: ClassVar[signal.Signals]
    expected: ClassVar[ProcessState] = ProcessState.GONE
    limit_s: ClassVar[float] = 10.0

    def before(self, context: FaultContext[int]) -> int:
        """Return the number of processes; raise NoBiteError if the instance does not run."""
        return _running_processes(context)

    def undo_steps(self, context: FaultContext[int]) -> list[UndoStep]:  # noqa: ARG002
        """Return no steps: the supervisor of the run starts an instance that has ended again."""
        return []

    def apply(self, context: FaultContext[int]) -> None:
        send_signal(_process(context).mark, self.signal_sent)

    def bite(self, context: FaultContext[int]) -> Measured:
        """Wait until all processes of the instance have ended, or are frozen."""
        process = _process(context)
        _wait_state(process, self.expected, self.limit_s)
        return {"pid": process.pid, "processes": context.state, "state": str(self.expected)}

    def health(self, context: FaultContext[int]) -> Measured:
        if processes_state(_process(context).mark) is not ProcessState.GONE:
            raise HealError("the processes of the instance have not ended", _HINT)
        return {}


class EndedApp(SignalledApp):
    """Base class of the faults that end an instance. It is started again when the fault is healed."""


@dataclass(frozen=True)
class KillApp(EndedApp):
    """Fault that ends all processes of an instance by SIGKILL."""

    name: ClassVar[str] = "kill_app"
    signal_sent: ClassVar[signal.Signals] = signal.SIGKILL


@dataclass(frozen=True)
class RetireApp(EndedApp):
    """Fault that asks all processes of an instance to stop, by SIGTERM."""

    name: ClassVar[str] = "retire_app"
    signal_sent: ClassVar[signal.Signals] = signal.SIGTERM
    limit_s: ClassVar[float] = STOP_LIMIT_S


@dataclass(frozen=True)
class LoseDisk(EndedApp):
    """Fault that ends an instance by SIGKILL and empties its state directory."""

    name: ClassVar[str] = "lose_disk"
    signal_sent: ClassVar[signal.Signals] = signal.SIGKILL

    def bite(self, context: FaultContext[int]) -> Measured:
        """Wait for the end of the processes, and empty the directory; it must have contained a file."""
        measured = super().bite(context)
        files = _app(context).wipe_state(_name(context))
        if not files:
            raise NoBiteError(
                "the state directory of the instance was empty", "let the application use {state}"
            )
        return measured | {"lost_files": files}


@dataclass(frozen=True)
class FreezeApp(SignalledApp):
    """Fault that freezes all processes of an instance with SIGSTOP. Heal resumes them with SIGCONT.

    With `past = "session"`, the fault bites when the group's coordinator has removed the members of the
    instance. With `past = "transaction"`, the instance is frozen in the middle of a transaction, and the
    fault bites when the transaction coordinator has aborted it.
    """

    name: ClassVar[str] = "freeze_app"
    signal_sent: ClassVar[signal.Signals] = signal.SIGSTOP
    expected: ClassVar[ProcessState] = ProcessState.STOPPED
    past: Literal["", "session", "transaction"] = ""

    def __post_init__(self) -> None:
        """Raise UsageError for an unknown value."""
        if self.past not in ("", "session", "transaction"):
            raise UsageError(f"past = {self.past!r} is not known", 'write "session" or "transaction"')

    @property
    def needs_frames(self) -> bool:  # type: ignore[override]
        """Whether the time limit is learned from frames."""
        return bool(self.past)

    def before(self, context: FaultContext[int]) -> int:
        """Wait until the instance has joined the group, if the coordinator is to remove it."""
        if self.past == "session":
            _wait_members(context)
        return super().before(context)

    def undo_steps(self, context: FaultContext[int]) -> list[UndoStep]:
        return [resume_app.step(mark=_process(context).mark)]

    def bite(self, context: FaultContext[int]) -> Measured:
        if not self.past:
            return super().bite(context)
        app, name = _app(context), _name(context)
        if self.past == "transaction":
            return self._past_transaction(context, app, name)
        deadline = time.monotonic() + OPEN_LIMIT_S
        measured = super().bite(context)
        while not (members := set(app.members_of(name))) and time.monotonic() < deadline:
            self._freeze_later(context)  # it was frozen just before it joined the group
            measured = super().bite(context)
        return measured | wait_removed(app, members, app.session_timeout_ms())

    def _freeze_later(self, context: FaultContext[int]) -> None:
        """Let the instance run for a moment, and freeze it again."""
        send_signal(_process(context).mark, signal.SIGCONT)
        _wait_state(_process(context), ProcessState.RUNNING, self.limit_s)
        self.apply(context)

    def _past_transaction(self, context: FaultContext[int], app: AppControl, name: str) -> Measured:
        """Freeze the instance again and again until the coordinator has aborted a transaction of it.

        An instance that was frozen outside a transaction runs on for a moment. So does one whose commit was
        already on its way: the coordinator receives it although the instance is frozen.
        """
        ids = sorted(app.transactional_ids_of(name))
        if not ids:
            raise NoBiteError("the instance has sent no transactional id", "use past = 'session'")
        deadline = time.monotonic() + OPEN_LIMIT_S
        while True:
            measured = super().bite(context)
            states = {ident: _state_of(context.cluster, ident) for ident in ids}
            if open_ones := [i for i, (state, epoch) in states.items() if state == "Ongoing" and epoch >= 0]:
                state, epoch = _wait_end(context.cluster, app, open_ones[0])
                if state not in COMMITS:
                    return measured | {"aborted": open_ones[0], "transaction": state, "epoch": epoch}
            if time.monotonic() > deadline:
                raise NoBiteError("the instance was never found in a transaction", "give it more inputs")
            self._freeze_later(context)

    def health(self, context: FaultContext[int]) -> Measured:
        """Check that the instance is no longer frozen: it runs, or it has ended by itself."""
        state = processes_state(_process(context).mark)
        if state is ProcessState.STOPPED:
            raise HealError("the processes of the instance are still frozen", _HINT)
        return {"state": str(state)}


@dataclass
class _Pauses:
    """The thread of one injection of pause_app, and how often it has frozen the instance."""

    stopped: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    frozen: int = 0


@dataclass(frozen=True)
class PauseApp(AppFault[_Pauses]):
    """Fault that freezes an instance for short times, one after another, as garbage collection does."""

    name: ClassVar[str] = "pause_app"
    pause_ms: Positive = 500
    rest_ms: int = 500

    def before(self, context: FaultContext[_Pauses]) -> _Pauses:
        _running_processes(context)
        return _Pauses()

    def undo_steps(self, context: FaultContext[_Pauses]) -> list[UndoStep]:
        return [resume_app.step(mark=_process(context).mark)]

    def apply(self, context: FaultContext[_Pauses]) -> None:
        pauses, mark = context.state, _process(context).mark

        def freeze_and_resume() -> None:
            while not pauses.stopped.is_set():
                send_signal(mark, signal.SIGSTOP)
                pauses.frozen += processes_state(mark) is ProcessState.STOPPED
                pauses.stopped.wait(self.pause_ms / 1000)
                send_signal(mark, signal.SIGCONT)
                pauses.stopped.wait(self.rest_ms / 1000)

        pauses.thread = threading.Thread(target=freeze_and_resume, name="pause_app", daemon=True)
        pauses.thread.start()

    def bite(self, context: FaultContext[_Pauses]) -> Measured:
        """Wait until the instance was frozen and resumed twice."""
        limit = 10 + 3 * (self.pause_ms + self.rest_ms) / 1000
        try:
            wait_until(lambda: context.state.frozen > 1, limit, "two pauses of the instance")
        except WaitTimeoutError as error:
            raise NoBiteError(error.message, _HINT) from error
        return {"pause_ms": self.pause_ms}

    def release(self, context: FaultContext[_Pauses]) -> None:
        """End the pauses, so that no later one undoes the healing."""
        context.state.stopped.set()
        if context.state.thread is not None:
            context.state.thread.join(self.pause_ms / 1000 + READY_LIMIT_S)

    def health(self, context: FaultContext[_Pauses]) -> Measured:
        if processes_state(_process(context).mark) is ProcessState.STOPPED:
            raise HealError("the processes of the instance are still frozen", _HINT)
        return {"pauses": context.state.frozen}


@dataclass(frozen=True)
class RollApp(AppFault[dict[str, int]]):
    """Fault that restarts all instances one after another, as a roll-out of a new version does.

    The next instance is stopped when all instances are ready again.
    """

    name: ClassVar[str] = "roll_app"

    def before(self, context: FaultContext[dict[str, int]]) -> dict[str, int]:
        return {name: _app(context).start_number(name) for name in _app(context).running}

    def undo_steps(self, context: FaultContext[dict[str, int]]) -> list[UndoStep]:  # noqa: ARG002
        return []

    def apply(self, context: FaultContext[dict[str, int]]) -> None:
        for name in context.state:
            _app(context).restart(name)
            _app(context).wait_ready(READY_LIMIT_S)

    def bite(self, context: FaultContext[dict[str, int]]) -> Measured:
        app = _app(context)
        rolled = [name for name, number in context.state.items() if app.start_number(name) > number]
        if len(rolled) < len(context.state) or not rolled:
            raise NoBiteError(f"of {len(context.state)} instances, {len(rolled)} were restarted", _HINT)
        return {"restarted": rolled}

    def health(self, context: FaultContext[dict[str, int]]) -> Measured:
        return _ready(_app(context))


@dataclass(frozen=True)
class ScaleApp(AppFault[dict[str, str]]):
    """Fault that starts further instances or stops the last ones, until `to` instances run.

    Heal restores the number of the scenario. With a group, the fault bites when its members have changed.
    """

    name: ClassVar[str] = "scale_app"
    to: Positive

    def __post_init__(self) -> None:
        """Raise UsageError if there would be no instance."""
        if not isinstance(self.to, int) or self.to < 1:
            raise UsageError(f"to = {self.to!r} is not allowed", "write one or more instances")

    def before(self, context: FaultContext[dict[str, str]]) -> dict[str, str]:
        if len(_app(context).running) == self.to:
            raise NoBiteError(f"{self.to} instances run already", "write another number")
        return _app(context).members()

    def undo_steps(self, context: FaultContext[dict[str, str]]) -> list[UndoStep]:  # noqa: ARG002
        return []

    def apply(self, context: FaultContext[dict[str, str]]) -> None:
        _app(context).scale(self.to)

    def bite(self, context: FaultContext[dict[str, str]]) -> Measured:
        app, before = _app(context), set(context.state)
        if len(app.running) != self.to:
            raise NoBiteError(f"{len(app.running)} instances run instead of {self.to}", _HINT)
        measured: Measured = {"instances": app.running}
        if before:
            try:
                wait_until(
                    lambda: before ^ set(app.members()), READY_LIMIT_S, "the group's members to change"
                )
            except WaitTimeoutError as error:
                raise NoBiteError(error.message, _HINT) from error
            measured["members"] = len(app.members())
        return measured

    def release(self, context: FaultContext[dict[str, str]]) -> None:
        """Restore the number of instances."""
        _app(context).scale(_app(context).instances)

    def health(self, context: FaultContext[dict[str, str]]) -> Measured:
        return _ready(_app(context))


@dataclass(frozen=True)
class MuteClient(AppFault[dict[str, str]]):
    """Fault that drops all requests of the group members of an instance, until the coordinator removed them.

    The processes run on and do not notice more than silence. It is a zombie without a frozen process, also if
    only one thread of an instance has the client id. `client_id` selects one of several members.
    """

    name: ClassVar[str] = "mute_client"
    capability: ClassVar[Capability] = Capability.LINK
    needs_frames: ClassVar[bool] = True
    client_id: str = ""

    def before(self, context: FaultContext[dict[str, str]]) -> dict[str, str]:
        """Return the members to silence: the client id by member id."""
        app = _app(context)
        members = _wait_members(context)
        chosen = {m: client for m, client in members.items() if self.client_id in ("", client)}
        if not chosen:
            raise NoBiteError(
                f"the group has no member with client id {self.client_id!r}", "correct client_id"
            )
        shared = set(chosen.values()) & {client for m, client in app.members().items() if m not in chosen}
        if shared:
            raise NoBiteError(
                f"other members have the client id {', '.join(sorted(shared))} too", "use freeze_app"
            )
        return chosen

    def undo_steps(self, context: FaultContext[dict[str, str]]) -> list[UndoStep]:
        return [unmute_client.step(rules=list(self._rules(context)))]

    def apply(self, context: FaultContext[dict[str, str]]) -> None:
        for ident, client in self._rules(context).items():
            rule = Rule(
                id=ident, verb="lose_request", api=ANY_API, client_id=client, times=None, then="silence"
            )
            ensure_tap(context.cluster).arm(rule)

    def bite(self, context: FaultContext[dict[str, str]]) -> Measured:
        removed = wait_removed(_app(context), set(context.state), _app(context).session_timeout_ms())
        armed = [ensure_tap(context.cluster).armed(ident) for ident in self._rules(context)]
        return removed | {"muted": sorted(set(context.state.values())), "dropped": _matched(armed)}

    def health(self, context: FaultContext[dict[str, str]]) -> Measured:
        if any(ensure_tap(context.cluster).armed(ident) for ident in self._rules(context)):
            raise HealError("a client is still muted in the tap", "`eos heal` disarms it")
        return {}

    def _rules(self, context: FaultContext[dict[str, str]]) -> dict[str, str]:
        clients = sorted(set(context.state.values()))
        return {f"{context.mark}-{number}": client for number, client in enumerate(clients)}


@dataclass
class _LostOutputs:
    """The transactional ids whose outputs are dropped, by the ids of the rules, and whether one aborted."""

    rules: dict[str, str]
    aborted: bool = False

    @property
    def transactional_ids(self) -> list[str]:
        return sorted(self.rules.values())


@dataclass(frozen=True)
class LoseOutputs(AppFault[_LostOutputs]):
    """Fault that drops the outputs of an instance's transactions, until one of them was aborted.

    The wire tap drops each Produce request of the instance's transactional ids and cuts its connection. The
    client sends again until its delivery time-out, and then the application has to abort. If the transaction
    time-out is over before, the coordinator aborts, and refuses the producer from then on. No member leaves
    the group, so an application that does not go back to its committed positions after an abort passes over
    inputs. Heal waits until the application commits again.
    """

    name: ClassVar[str] = "lose_outputs"
    capability: ClassVar[Capability] = Capability.LINK
    needs_frames: ClassVar[bool] = True

    def before(self, context: FaultContext[_LostOutputs]) -> _LostOutputs:
        """Wait until the instance has sent a transactional id."""
        _running_processes(context)
        app, name = _app(context), _name(context)
        try:
            ids = wait_until(
                lambda: app.transactional_ids_of(name), OPEN_LIMIT_S, f"{name} to send a transactional id"
            )
        except WaitTimeoutError as error:
            raise NoBiteError(error.message, "does the application write in transactions?") from error
        return _LostOutputs({f"{context.mark}-{number}": ident for number, ident in enumerate(sorted(ids))})

    def undo_steps(self, context: FaultContext[_LostOutputs]) -> list[UndoStep]:
        return [unmute_client.step(rules=list(context.state.rules))]

    def apply(self, context: FaultContext[_LostOutputs]) -> None:
        for ident, transactional_id in context.state.rules.items():
            rule = Rule(
                id=ident,
                verb="lose_request",
                api="Produce",
                transactional_id=transactional_id,
                times=None,
                then="cut",
            )
            ensure_tap(context.cluster).arm(rule)

    def bite(self, context: FaultContext[_LostOutputs]) -> Measured:
        """Wait until the coordinator has stored an abort of a transaction whose outputs were lost."""
        app, ids = _app(context), context.state.transactional_ids
        timeout_ms = max(app.transaction_timeout_ms(ident) for ident in ids)
        if not timeout_ms:
            raise NoBiteError("no transaction time-out was seen in the frames of the instance", _HINT)
        idle_s = OPEN_LIMIT_S + app.session_timeout_ms() / 1000  # it may have to wait for a rebalance first
        began, asked = time.monotonic(), {ident: app.aborts_sent(ident) for ident in ids}
        try:
            wait_until(lambda: _lost(context), idle_s, "an output of the instance", every=0.02)
            tail = _tail(context)
            aborted = wait_until(
                lambda: _stored(tail, "PrepareAbort"),
                timeout_ms / 1000 + GIVEN_UP_S,
                f"an abort of {' or '.join(ids)} in the coordinator's log",
                every=0.2,
            )
        except WaitTimeoutError as error:
            raise NoBiteError(error.message, "is it given inputs, and does it abort after errors?") from error
        context.state.aborted = True
        by_app = app.aborts_sent(aborted[0]) > asked[aborted[0]]
        return {
            "aborted": aborted[0],
            "by": BY_APPLICATION if by_app else "the coordinator",
            "after_s": round(time.monotonic() - began, 1),
            "lost_requests": _lost(context),
            "timeout_ms": timeout_ms,
        }

    def health(self, context: FaultContext[_LostOutputs]) -> Measured:
        """Check that no output is dropped any more, and wait a limited time for the next commit.

        A missing commit is no error, because the contract finds what an application does after an abort.
        """
        if any(ensure_tap(context.cluster).armed(ident) for ident in context.state.rules):
            raise HealError("outputs of a producer are still dropped in the tap", "`eos heal` disarms it")
        if not context.state.aborted:
            return {}
        try:
            tail = _tail(context)
            wait_until(lambda: _stored(tail, "PrepareCommit"), OPEN_LIMIT_S, "a commit", every=0.2)
        except WaitTimeoutError:
            return {"commits_again": False}
        return {"commits_again": True}


def _lost(context: FaultContext[_LostOutputs]) -> int:
    """Return the number of requests that were dropped so far."""
    return _matched([ensure_tap(context.cluster).armed(ident) for ident in context.state.rules])


def _tail(context: FaultContext[_LostOutputs]) -> TransactionLogTail:
    """Return the tail of the transaction log, when every partition of it has a leader."""
    return wait_until(
        lambda: TransactionLogTail(context.cluster.admin, context.state.transactional_ids),
        OPEN_LIMIT_S,
        "the coordinators' log",
    )


def _stored(tail: TransactionLogTail, state: str) -> list[str]:
    """Return the transactional ids that were stored with this state since the tail began."""
    return [ident for _, ident, stored in tail.states() if stored.state == state]


def _wait_members(context: FaultContext[Any]) -> dict[str, str]:
    """Wait until an instance has members in the group, and return them: the client id by member id."""
    app, name = _app(context), _name(context)
    try:
        return wait_until(lambda: app.members_of(name), OPEN_LIMIT_S, f"{name} to have a member in the group")
    except WaitTimeoutError as error:
        raise NoBiteError(error.message, "name [app] group, and give it inputs") from error


def wait_removed(app: AppControl, members: set[str], session_timeout_ms: int) -> Measured:
    """Wait until the group's coordinator has removed these members; raise NoBiteError if it does not.

    The limit is the session time-out that the application sent, and `GIVEN_UP_S`.
    """
    if not members:
        raise NoBiteError("the instance has no member in the group", "name [app] group, and give it inputs")
    if not session_timeout_ms:
        raise NoBiteError("no session time-out was seen in its frames", "does it use the classic protocol?")
    began = time.monotonic()
    try:
        wait_until(
            lambda: not members & set(app.members()),
            session_timeout_ms / 1000 + GIVEN_UP_S,
            "the group's coordinator to remove the instance",
        )
    except WaitTimeoutError as error:
        raise NoBiteError(error.message, "does another thread send its heartbeats?") from error
    return {
        "removed_members": len(members),
        "after_s": round(time.monotonic() - began, 1),
        "session_ms": session_timeout_ms,
    }


def _matched(armed: list[Any]) -> int:
    return sum(each.matched for each in armed if each is not None)


def _wait_end(cluster: Cluster, app: AppControl, transactional_id: str) -> tuple[str, int]:
    """Wait until the transaction of a frozen instance has ended. Return the state and the epoch after it."""
    limit_s = app.transaction_timeout_ms(transactional_id) / 1000 + GIVEN_UP_S
    try:
        return wait_until(
            lambda: now if (now := _state_of(cluster, transactional_id))[0] != "Ongoing" else None,
            limit_s,
            f"the coordinator to abort the transaction of {transactional_id}",
        ) or ("", -1)
    except WaitTimeoutError as error:
        raise NoBiteError(error.message, "is the coordinator's node running?") from error


def _state_of(cluster: Cluster, transactional_id: str) -> tuple[str, int]:
    """Return state and epoch of a transactional id: Ongoing and -1 while no coordinator answers."""
    try:
        coordinator = cluster.txn_coordinator(transactional_id)
        (described,) = describe_transactions(cluster.admin, coordinator, [transactional_id])
    except (HarnessError, OSError, EOFError):
        return "Ongoing", -1  # unknown: the caller continues to wait
    return described.state, described.epoch


def _wait_state(process: MarkedProcess, state: ProcessState, limit: float) -> None:
    wait_until(
        lambda: processes_state(process.mark) is state,
        limit,
        f"the processes of the instance to be {state}",
        hint=_HINT,
    )


def _running_processes(context: FaultContext[Any]) -> int:
    mark = _process(context).mark
    if (state := processes_state(mark)) is ProcessState.GONE:
        raise TargetEndedError("the instance has ended by itself", _HINT)
    if state is not ProcessState.RUNNING:
        raise NoBiteError(f"the instance is {state} already", _HINT)
    return count_processes(mark)


def _ready(app: AppControl) -> Measured:
    try:
        app.wait_ready(READY_LIMIT_S)
    except HarnessError as error:
        raise HealError(error.message, _HINT) from error
    return {"instances": app.running}


def _app(context: FaultContext[Any]) -> AppControl:
    if context.app is None:
        raise NoBiteError("there is no supervisor of the application", "use this fault in a scenario")
    return context.app


def _name(context: FaultContext[Any]) -> str:
    return context.nodes[0]


def _process(context: FaultContext[Any]) -> MarkedProcess:
    assert context.process is not None
    return context.process
