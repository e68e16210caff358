"""The program of all runs without a walkthrough: clients under load while faults are injected and healed."""

from __future__ import annotations

from contextlib import ExitStack

import msgspec

from harness.base.errors import HarnessError, WaitTimeoutError, describe_error
from harness.base.waits import wait_until
from harness.evidence.checkers.model import Expect
from harness.evidence.checkers.verdict import Limit
from harness.evidence.history import HistoryWriter
from harness.evidence.run_directory import IDLE_PHASES
from harness.run.app_runner import AppRunner, describe_use, is_there
from harness.run.fault_runner import FaultRunner
from harness.run.fleet import Fleet
from harness.run.frame_capture import FrameCapture
from harness.run.metrics_capture import MetricsCapture
from harness.run.monitor import Monitor
from harness.run.program import RunContext, measure_recovery, note_skipped_phases
from harness.run.shutdown import FAILURES, InterruptedRun
from harness.run.verification import expectation

DRAIN_EXTRA_S = 30.0
"""The drain phase waits at most for the longest transaction time-out plus this many seconds, until all
transactions have ended. The extra time is necessary because the coordinator looks for expired
transactions only periodically.
"""


class FaultProgram:
    """Program that starts the clients, carries out the plan, heals, and lets the clients finish."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._planned = run.plan.injections
        self._app = AppRunner(run)
        self._capture = FrameCapture(run.cluster, run.scenario, run.directory)
        self._fleet = Fleet(
            run.cluster,
            run.scenario,
            run.run_id,
            run.plan.seed,
            run.directory.histories,
            run.cluster.state.path / "clients" / run.run_id,
            run.clients,
        )
        self._metrics = MetricsCapture(run, self._fleet)

    def expectation(self) -> Expect:
        """Return the properties and limits that the checkers apply to this run.

        The result includes the number of planned faults, so that a run that ends early is not valid.
        """
        capabilities = frozenset(step.entry.capability for step in self._planned)
        return msgspec.structs.replace(
            expectation(self._run.scenario),
            faults=len(self._planned),
            caveats=self._run.cluster.caveats(capabilities),
        )

    def carry_out(self, journal: HistoryWriter, observer: HistoryWriter) -> list[Limit]:
        """Carry out the phases of the run. Even after an error, heal the faults and stop the clients."""
        run, fleet = self._run, self._fleet
        groups = [w.group for w in run.scenario.workload if w.kind == "pipeline"]
        groups += [self._app.group] if self._app.group else []
        monitor = Monitor(
            run.cluster,
            fleet,
            observer,
            run.events.emit,
            run.spark,
            groups=groups,
            note_bounds=self._app.note_outputs,
            app_pids=lambda: self._app.pids,
        )
        faults = FaultRunner(run.cluster, fleet, journal, monitor, run.events.emit, app=self._app)
        with ExitStack() as cleanup:
            cleanup.callback(monitor.stop)
            cleanup.callback(self._app.kill)
            cleanup.callback(self._metrics.stop)
            cleanup.callback(fleet.kill)
            with ExitStack() as healing:
                healing.callback(run.shutdown.heal, faults.heal_all)
                limits = self._phases(monitor, faults, observer)
            self._enter(monitor, "drain", "clients finish what is in flight")
            run.shutdown.each(
                self._drain,
                fleet.kill,
                lambda: monitor.stop(last_sample=True),
                self._app.kill,
                lambda: self._note_undeclared(observer),
                lambda: run.shutdown.keep_logs(fleet.clients),
                lambda: self._capture.stop(fleet),
                self._metrics.stop,
            )
            if monitor.failure:
                note_skipped_phases(observer, f"its monitor failed: {monitor.failure}")
                self._enter(monitor, "drain", f"the monitor failed: {monitor.failure}")
            self._enter(monitor, "drain", monitor.usage.describe())
        idle = [phase for phase in ("steady", "faults") if not monitor.acknowledged_in.get(phase)]
        where = " and ".join(f"phase {phase}" for phase in idle)
        return [*limits, Limit(name=IDLE_PHASES, measured=len(idle), limit=0, unit="phases", where=where)]

    def is_complete(self) -> bool:
        """Return True: this program does not check itself whether the plan was completed.

        The checkers compare the number of injected faults with the number of planned faults.
        """
        return True

    def write_documents(self) -> None:
        """Write nothing: this kind of run has no documents besides the report."""

    def _phases(self, monitor: Monitor, faults: FaultRunner, observer: HistoryWriter) -> list[Limit]:
        run, fleet = self._run, self._fleet
        try:
            self._enter(monitor, "settle", "topics, clients, first records")
            for topic, partitions in fleet.topics.items():
                self._make_topic(topic, partitions)
            self._capture.start(fleet)
            self._metrics.start()
            run.spark.start(
                fleet.folder / "spark", lambda text: run.events.phase("spark", text), run.directory.path
            )
            self._app.start(fleet, self._capture)
            fleet.start()
            monitor.start()
            fleet.wait_progress(run.stop.is_set)
            self._enter(monitor, "steady", f"{run.scenario.plan.steady:g} s without faults")
            run.stop.pause(run.scenario.plan.steady)
            self._app.report_learned()
            planned = [f"{len(self._planned)} planned", *filter(None, [run.plan.waiting])]
            self._enter(monitor, "faults", "; ".join(planned))
            faults.carry_out(run.plan, run.stop.pause)
            self._enter(monitor, "recover", "every client makes progress again")
            return measure_recovery(run, self._wait_resumed)
        except InterruptedRun:
            note_skipped_phases(observer, f"it was interrupted in phase {monitor.phase}")
            self._enter(monitor, "interrupted", run.stop.describe())
        except FAILURES as error:
            if not fleet.clients and not isinstance(error, HarnessError):
                raise  # no client has started: there is nothing to heal and nothing to check
            problem = describe_error(error)
            note_skipped_phases(observer, f"it was aborted in phase {monitor.phase}: {problem}")
            self._enter(monitor, "aborted", f"{problem}: healing, then checking what was recorded")
        return []

    def _make_topic(self, topic: str, partitions: int) -> None:
        """Create a topic; one of an application that already runs may exist, if nothing has used it yet."""
        run, app = self._run, self._run.scenario.app
        if app is not None and app.running and is_there(run.cluster, topic):
            if problem := describe_use(run.cluster, topic, partitions, app.group):
                run.stop.make(problem)
                run.stop.pause(0)
            return
        compacted = {"cleanup.policy": "compact"} if topic in run.scenario.changelogs else {}
        run.cluster.create_topic(topic, partitions, compacted)

    def _wait_resumed(self, limit: float) -> None:
        """Wait until every client makes progress and the application is ready."""
        self._fleet.wait_progress(self._run.stop.is_set, limit)
        self._app.wait_ready(limit)

    def _note_undeclared(self, observer: HistoryWriter) -> None:
        """Record topics that the application wrote without a declaration, so that the run cannot be valid."""
        for problem in self._app.undeclared_topics():
            note_skipped_phases(observer, problem)
            self._run.events.phase("drain", problem)

    def _enter(self, monitor: Monitor, phase: str, detail: str) -> None:
        monitor.enter(phase)
        self._run.events.phase(phase, detail)

    def _drain(self) -> None:
        run, fleet = self._run, self._fleet
        self._stop_clients(readers=False)
        self._app.finish()
        limit = expectation(run.scenario).transaction_timeout_ms / 1000 + DRAIN_EXTRA_S
        try:
            wait_until(self._all_stable, limit, "every transaction to end", every=0.2)
        except WaitTimeoutError as error:
            # Report the time-out without raising an error, because the verdict covers this case. The monitor
            # has recorded the end offsets, so the checkers find a last stable offset that does not advance.
            run.events.phase("drain", error.message)
        # Readers stop last, so that they can read to the end of what the others wrote.
        self._stop_clients(readers=True)
        fleet.kill()

    def _stop_clients(self, *, readers: bool) -> None:
        for client in self._fleet.stop(readers=readers):
            self._run.events.phase("drain", f"client {client.spec.client} ended with {client.exit_code()}")

    def _all_stable(self) -> bool:
        return all(
            end.last_stable == end.high_watermark
            for topic in self._fleet.topics
            for end in self._run.cluster.end_offsets(topic).values()
        )
