"""One execution of a scenario: check, program, verdict and outputs. Faults are healed after any error.

    doctor → settle → steady → faults (inject, measure the effect, heal) → recover → drain → verify

Safety is checked over the whole run. Progress is required only after the last heal.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.base.errors import ExitCode, RefusedError
from harness.base.events import EventHandler, EventListener, EventStream, Started, Timed, VerdictEvent
from harness.base.units import plain
from harness.cluster.cluster import Cluster
from harness.evidence.checkers.check_run import describe
from harness.evidence.checkers.verdict import Judgement, Limit
from harness.evidence.client_list import ClientListWriter
from harness.evidence.history import HistoryWriter
from harness.evidence.run_directory import RunDirectory, RunInfo
from harness.faults.intents import journal_in
from harness.report.outputs import FinalFiles, Recorder
from harness.run.environment import app_identity, app_packages, describe_identity, environment
from harness.run.program import OBSERVER_HISTORY, Program, RunContext
from harness.run.run_names import Names, rename_plan, rename_scenario
from harness.run.shutdown import Shutdown, StopRequest, interruptible
from harness.run.spark_stream import SparkStream
from harness.run.verification import Verification, stores_logs
from harness.scenario import Scenario
from harness.scenario.plan import Plan


@dataclass(frozen=True)
class Outcome:
    """The result of a run: its judgement, its exit code and its run directory.

    `expected` is true if the program completed its plan, the verdict is the one that the scenario expects,
    and the run found every anomaly that the scenario names.
    """

    scenario: str
    exit_code: ExitCode
    judgement: Judgement
    directory: Path
    interrupted: bool
    expected: bool

    @property
    def exit_code_as_expected(self) -> ExitCode:
        """Exit code with `--expected`: VALID only if the run ended as expected and held every limit."""
        if self.interrupted or self.exit_code is ExitCode.LIMIT:
            return self.exit_code
        return ExitCode.VALID if self.expected else max(self.exit_code, ExitCode.ANOMALY)


class Run:
    """A run on a cluster that is up. Create it with `make_run`, and call `execute` only once."""

    def __init__(
        self,
        cluster: Cluster,
        scenario: Scenario,
        plan: Plan,
        root: Path,
        *,
        program: Callable[[RunContext], Program],
        listeners: Sequence[EventListener],
        replay_command: str,
    ) -> None:
        self.run_id = uuid.uuid4().hex[:8]
        self._names = Names(
            cluster.prefix, self.run_id, plain=scenario.app is not None and scenario.app.running
        )
        self.scenario = rename_scenario(scenario, self._names.scoped)
        """The scenario, with the id of this run in all names of topics, groups and transactional ids."""
        self._plan = rename_plan(plan, self._names.scoped)
        self._as_drawn = {"scenario.json": scenario, "plan.json": plan}
        self._cluster = cluster
        self._root = root
        self._make_program = program
        self._listeners = listeners
        self._replay_command = replay_command
        self._app_identity = app_identity(scenario.app) if scenario.app else {}
        self._handlers: list[EventHandler] = []
        self.before: Callable[[str, Path, Callable[[str], None]], None] = lambda *_: None
        """Function that is called before the cluster is used, with the run's id, directory and log."""
        self._stop = StopRequest()

    def add_handler(self, handler: EventHandler) -> None:
        """Add an event handler.

        At the end of the run, the handler is shut down before the run writes its line of results.jsonl and
        its report.
        """
        self._handlers.append(handler)

    def stop(self, reason: str) -> None:
        """Make the run heal and end now. Any thread may call this."""
        self._stop.make(reason)

    def execute(self) -> Outcome:
        """Carry out the run, check it, write its outputs, and return its result."""
        packages = app_packages(self.scenario.app) if self.scenario.app else []
        info = RunInfo(
            run=self.run_id,
            scenario=self.scenario.name,
            seed=self._plan.seed,
            started=time.strftime("%Y-%m-%dT%H:%M:%S"),
            environment=environment(self._cluster)
            | ({"app": self._app_identity} if self._app_identity else {})
            | ({"app_packages": packages} if packages else {}),
            replay=self._replay_command,
        )
        # Make the path absolute: it is passed to client processes, each of which has its own working
        # directory.
        root = self._root.resolve()
        directory = RunDirectory.create(root, info)
        for name, value in self._as_drawn.items():
            directory.write(name, msgspec.to_builtins(value, enc_hook=plain))
        directory.write("names.json", self._names)
        handlers = [Recorder(), *self._handlers, FinalFiles(root)]
        events = EventStream([*(handler.handle for handler in handlers), *self._listeners])
        with ExitStack() as outputs:
            # ExitStack closes in reverse order. Therefore start the last handler first: the handlers are then
            # shut down in the order of the list.
            for handler in reversed(handlers):
                handler.start(directory.path)
                outputs.callback(handler.shutdown)
            events.emit(
                Started(
                    scenario=info.scenario,
                    run=info.run,
                    seed=info.seed,
                    directory=str(directory.path),
                    environment=info.environment,
                    mono=round(events.began * 1e9),
                    faults=len(self._plan.injections),
                    lasts_s=self._plan.duration if self.scenario.walkthrough is None else 0.0,
                )
            )
            return self._execute(directory, events)

    def _execute(self, directory: RunDirectory, events: EventStream) -> Outcome:
        context = RunContext(
            cluster=self._cluster,
            scenario=self.scenario,
            plan=self._plan,
            run_id=self.run_id,
            directory=directory,
            events=events,
            stop=self._stop,
            spark=SparkStream(self._cluster, self.scenario, self.run_id),
            shutdown=Shutdown(self._cluster, directory, events.phase),
            clients=ClientListWriter(directory, self.run_id),
        )
        self.before(self.run_id, directory.path, lambda text: events.phase("reference", text))
        with self._cluster.locked(f"run {self.scenario.name}"), interruptible(self._stop):
            events.phase("doctor", "check that the cluster is healthy")
            if ailments := self._cluster.lasting_ailments():
                raise RefusedError(f"the cluster is not healthy: {'; '.join(ailments[:3])}", "eos heal")
            program = self._make_program(context)
            audit = stores_logs(self._cluster, self.scenario)
            directory.write("expect.json", msgspec.structs.replace(program.expectation(), audit=audit))
            histories = directory.histories
            try:
                with (
                    journal_in(self._cluster.state, histories / "faults.jsonl", self.run_id) as journal,
                    HistoryWriter(
                        histories / OBSERVER_HISTORY,
                        run=self.run_id,
                        client="observer",
                        role="observer",
                        lateness=True,
                    ) as observer,
                ):
                    limits = program.carry_out(journal, observer)
                outcome = self._judge(context, program, limits)
                program.write_documents()
                return outcome
            finally:
                # Stop Spark even if a second Ctrl-C interrupts the verification.
                context.spark.stop()

    @property
    def _application(self) -> str:
        """The identity of the application, which the replay command does not contain."""
        if not self._app_identity:
            return ""
        return f"; application: {describe_identity(self._app_identity)}"

    def _judge(self, run: RunContext, program: Program, limits: list[Limit]) -> Outcome:
        run.events.phase("verify")
        verification = Verification(self._cluster, self.scenario, run.directory, self.run_id, run.spark)
        code, judgement = verification.collect_and_judge(
            limits,
            lambda text: run.events.phase("verify", text),
            self._stop.is_set,
            lambda step, seconds: run.events.emit(Timed(step=step, took_s=seconds)),
        )
        interrupted = self._stop.is_set()
        if interrupted:
            code = ExitCode.REFUSED if self._stop.reason else ExitCode.INTERRUPTED
        header = self.scenario.scenario
        expected = (
            program.is_complete()
            and str(judgement.verdict) == header.expect
            and set(header.anomalies) <= set(judgement.names())
        )
        path = run.directory.path
        run.events.emit(
            VerdictEvent(
                verdict=str(judgement.verdict),
                expected=expected,
                exit_code=code,
                text=describe(judgement),
                directory=str(path),
                breaches=[limit.breach for limit in judgement.limits if not limit.held],
                wanted=" with ".join(filter(None, [header.expect, ", ".join(header.anomalies)])),
                replay=f"{self._replay_command}   (the same plan, not the same timing{self._application})",
            )
        )
        return Outcome(self.scenario.name, code, judgement, path, interrupted, expected)
