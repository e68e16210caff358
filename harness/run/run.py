"""The phases of a run, its event stream, and healing on every way out.

    doctor → settle → steady → faults (inject, impact, heal, as planned) → recover → drain → verify

Safety is judged over everything that happened; that progress resumes, only after the last heal.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.base.errors import ExitCode, HarnessError, RefusedError, WaitTimeoutError, describe_error
from harness.base.events import Event, EventListener, PhaseEvent, Started, VerdictEvent, redacted
from harness.base.units import plain
from harness.base.waits import wait_until
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.evidence.checkers.check_run import describe
from harness.evidence.checkers.verdict import Judgement, Limit
from harness.evidence.history import HistoryWriter
from harness.evidence.run_directory import RunDirectory, RunInfo
from harness.faults.intents import journal_in
from harness.run.environment import environment
from harness.run.fault_runner import FaultRunner
from harness.run.fleet import Fleet
from harness.run.frame_capture import FrameCapture
from harness.run.monitor import Monitor
from harness.run.run_names import Names, rename_plan, rename_scenario
from harness.run.shutdown import FAILURES, Shutdown, interruptible
from harness.run.verification import Verification, expectation
from harness.scenario import Scenario
from harness.scenario.plan import Plan

# Beyond the longest transaction: the coordinator's look every second, and the markers.
DRAIN_EXTRA_S = 30.0


@dataclass(frozen=True)
class Outcome:
    """How a run ended: the verdict and the exit code, the directory, whether it was interrupted."""

    scenario: str
    exit_code: ExitCode
    judgement: Judgement
    directory: Path
    interrupted: bool
    expected: bool


class Run:
    """One execution of a scenario on a cluster that is up."""

    def __init__(
        self, cluster: Cluster, scenario: Scenario, plan: Plan, root: Path, listeners: list[EventListener]
    ) -> None:
        self.run = uuid.uuid4().hex[:8]
        self.again = f"eos run {scenario.name} --seed {plan.seed}"  # as a person types it
        self._cluster = cluster
        for injection in plan.injections:
            injection.entry.target.check(cluster)
        names = Names(cluster.prefix, self.run)
        self._scenario = rename_scenario(scenario, names.scoped)
        self._plan = rename_plan(plan, names.scoped)
        self._listeners = list(listeners)
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._stopped_because = ""
        started = time.strftime("%Y-%m-%dT%H:%M:%S")
        info = RunInfo(
            run=self.run,
            scenario=scenario.name,
            seed=plan.seed,
            started=started,
            environment=environment(cluster),
        )
        # Whole, because clients work in folders of their own.
        self.directory = RunDirectory.create(root.resolve(), info)
        self.directory.write("scenario.json", msgspec.to_builtins(scenario, enc_hook=plain))
        self.directory.write("plan.json", msgspec.to_builtins(plan, enc_hook=plain))
        self.directory.write("names.json", names)
        self._info = info
        self._verification = Verification(cluster, self._scenario, self.directory, self.run)
        self._ending = Shutdown(cluster, self.directory, self._phase)

    @property
    def scenario(self) -> Scenario:
        """The scenario with the names of this run."""
        return self._scenario

    def listen(self, listener: EventListener) -> None:
        """Tell one more listener, such as one that writes into the run's own directory."""
        self._listeners.append(listener)

    def stop(self, why: str) -> None:
        """Let the run heal and end now: something outside of it must not go on. Callable from any thread."""
        self._stopped_because = self._stopped_because or why
        self._stop.set()

    def execute(self) -> Outcome:
        """Go through the phases; heal, stop the clients and judge whatever the way out."""
        info = self._info
        self._tell(
            Started(
                scenario=info.scenario,
                run=info.run,
                seed=info.seed,
                directory=str(self.directory.path),
                environment=info.environment,
                mono=round(self._began * 1e9),
            )
        )
        with self._cluster.locked(f"run {self._scenario.name}"), interruptible(self._stop):
            self._phase("doctor", "is the cluster healthy")
            if ailments := self._cluster.lasting_ailments():
                raise RefusedError(f"the cluster is not healthy: {'; '.join(ailments[:3])}", "eos heal")
            journal_path = self.directory.histories / "faults.jsonl"
            try:
                with (
                    journal_in(self._cluster.state, journal_path, self.run) as journal,
                    HistoryWriter(
                        self.directory.histories / "observer.jsonl",
                        run=self.run,
                        client="observer",
                        role="observer",
                    ) as observer,
                ):
                    limits = self._phases(journal, observer)
                return self._verify(limits)
            finally:
                # Also after a second Ctrl-C while the topics are read back: nothing of ours goes on.
                self._verification.stop_live()

    def _phases(self, journal: HistoryWriter, observer: HistoryWriter) -> list[Limit]:
        fleet = Fleet(
            self._cluster,
            self._scenario,
            self.run,
            self._plan.seed,
            self.directory.histories,
            self._cluster.state.path / "clients" / self.run,
        )
        watch = Monitor(self._cluster, fleet, observer, self._tell, self._verification)
        faults = FaultRunner(self._cluster, fleet, journal, watch, self._tell)
        tapping = FrameCapture(self._cluster, self._scenario, self.directory)
        planned = len(self._plan.steps) + len(self._plan.throughout)
        # A run that ends early has injected less than it promised here, and cannot be valid.
        self.directory.write(
            "expect.json",
            msgspec.structs.replace(
                expectation(self._scenario), faults=planned, caveats=self._cluster.caveats(self._capabilities)
            ),
        )
        limits: list[Limit] = []
        self._phase("settle", "topics, clients, first records", watch)
        try:
            for topic, partitions in fleet.topics.items():
                compacted = {"cleanup.policy": "compact"} if topic in self._scenario.changelogs else {}
                self._cluster.create_topic(topic, partitions, compacted)
            tapping.start(fleet)
            self._verification.start_live(fleet.folder / "spark", lambda text: self._phase("spark", text))
            fleet.start()
            watch.start()
            fleet.wait_progress(self._stop.is_set)
            self._phase("steady", f"{self._scenario.plan.steady:g} s without faults", watch)
            self._pause(self._scenario.plan.steady)
            self._phase("faults", f"{planned} planned", watch)
            faults.carry_out(self._plan, self._pause)
            self._phase("recover", "every client makes progress again", watch)
            limits = self._recover(lambda limit: fleet.wait_progress(self._stop.is_set, limit))
        except _Interrupted:
            why = f"{self._stopped_because}: " if self._stopped_because else ""
            self._phase("interrupted", f"{why}healing, then judging what there is", watch)
        except FAILURES as error:
            if not fleet.clients and not isinstance(error, HarnessError):
                raise  # nobody has sent anything: there is nothing to heal and nothing to judge
            self._phase("aborted", f"{describe_error(error)}: healing, then judging what there is", watch)
        except BaseException:
            # A bug of ours, or a second Ctrl-C: nothing is judged, and nothing may stay behind.
            self._ending.heal(faults.heal_all)
            fleet.kill()
            watch.stop()
            raise
        self._ending.heal(faults.heal_all)
        self._phase("drain", "clients finish what is in flight", watch)
        try:
            self._ending.each(
                lambda: self._drain(fleet),
                fleet.kill,
                lambda: watch.stop(last_look=True),
                lambda: self._ending.keep_logs(fleet.clients),
                lambda: tapping.stop(fleet),
            )
        except BaseException:
            fleet.kill()
            watch.stop()
            raise
        self._phase("drain", watch.cost.told(), watch)
        return [*limits, *self._progress_limits(watch)]

    @property
    def _capabilities(self) -> frozenset[Capability]:
        """What the faults of the plan need."""
        return frozenset(injection.entry.capability for injection in self._plan.injections)

    def _recover(self, wait_resumed: Callable[[float], None]) -> list[Limit]:
        """How long it takes until the cluster is healthy and, within the limit, work has resumed."""
        start = time.monotonic()
        limit = float(self._scenario.limits.recovery)
        try:
            self._cluster.wait_healthy(limit, enough=self._stop.is_set)
            wait_resumed(limit)
        except WaitTimeoutError as error:
            self._phase("recover", f"not recovered: {error.message}")
        took = round(time.monotonic() - start, 2)
        return [Limit(name="recovery", measured=took, limit=limit, unit="s")]

    def _progress_limits(self, watch: Monitor) -> list[Limit]:
        """A phase in which nothing was acknowledged is told apart from one that kept going."""
        idle = [p for p in ("steady", "faults") if not watch.acknowledged_in.get(p)]
        return [Limit(name="phases without progress", measured=len(idle), limit=0, unit="phases")]

    def _drain(self, fleet: Fleet) -> None:
        for client in fleet.stop():
            self._phase("drain", f"client {client.spec.client} ended with {client.exit_code()}")
        fleet.kill()
        expect = expectation(self._scenario)
        limit = expect.transaction_timeout_ms / 1000 + DRAIN_EXTRA_S
        try:
            wait_until(lambda: self._all_stable(fleet), limit, "every transaction to end", every=0.2)
        except WaitTimeoutError as error:
            # A stuck last stable offset is a finding, which the samples prove, and not an error of the run.
            self._phase("drain", error.message)

    def _all_stable(self, fleet: Fleet) -> bool:
        return all(
            end.last_stable == end.high_watermark
            for topic in fleet.topics
            for end in self._cluster.end_offsets(topic).values()
        )

    def _verify(self, limits: list[Limit]) -> Outcome:
        self._phase("verify")
        code, judgement = self._verification.judge(
            limits, lambda text: self._phase("verify", text), self._stop.is_set
        )
        interrupted = self._stop.is_set()
        expected = self._as_expected(judgement)
        if interrupted:
            code = ExitCode.REFUSED if self._stopped_because else ExitCode.INTERRUPTED
        path = self.directory.path
        self._tell(
            VerdictEvent(
                verdict=str(judgement.verdict),
                expected=expected,
                exit_code=code,
                text=describe(judgement),
                directory=str(path),
                replay=f"{self.again}   (the same plan, not the same timing)",
            )
        )
        return Outcome(self._scenario.name, code, judgement, path, interrupted, expected)

    def _as_expected(self, judgement: Judgement) -> bool:
        """Whether the verdict is the scenario's, with every anomaly that it names."""
        header = self._scenario.scenario
        return str(judgement.verdict) == header.expect and set(header.anomalies) <= set(judgement.names())

    def _phase(self, name: str, detail: str = "", watch: Monitor | None = None) -> None:
        if watch is not None:
            watch.enter(name)
        self._tell(PhaseEvent(name=name, detail=detail))

    def _pause(self, seconds: float) -> None:
        """Let the run go on for so long, or until it is interrupted."""
        if self._stop.wait(max(0.0, seconds)):
            raise _Interrupted

    def _tell(self, event: Event) -> None:
        event = redacted(msgspec.structs.replace(event, at=round(time.monotonic() - self._began, 3)))
        with self._lock:
            for listener in self._listeners:
                listener(event)


class _Interrupted(Exception):  # noqa: N818  # not an error: the way out of a phase
    """The user asked the run to end."""
