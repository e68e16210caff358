"""The run of a flow: steps of a few producers, each told when it has been seen, then judged like any run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import msgspec

from harness.base.errors import HarnessError, describe_error
from harness.base.events import EventListener
from harness.base.waits import wait_until
from harness.clients.client import CannotGoOnError
from harness.clients.producer_lifecycle import BrokenTransactionError
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.evidence.checkers.verdict import Judgement, Limit
from harness.evidence.history import HistoryWriter
from harness.evidence.step_report import FILE, WalkthroughStep
from harness.report.diagram import diagram_file
from harness.report.diagram.sequence import SequenceFilter
from harness.run.run import Outcome, Run, _Interrupted
from harness.run.shutdown import FAILURES
from harness.run.verification import expectation
from harness.scenario import Scenario
from harness.scenario.plan import Plan
from harness.tap import coordinator_entries
from harness.tap.tap_client import ensure_tap
from harness.walkthroughs import walkthrough_page
from harness.walkthroughs.stage import Stage, Walkthrough, walkthrough_of
from harness.witness.plain_consumer import group_positions

MOST_DRAWN: Final = 200
LOOK_LIMIT_S: Final = 30.0
# What ends a flow and is no bug: the cluster, or the client library, did not do what a step needs.
_ENDED: Final = (HarnessError, OSError, EOFError, BrokenTransactionError, CannotGoOnError)


class WalkthroughRun(Run):
    """One execution of a flow on a cluster that is up."""

    def __init__(
        self, cluster: Cluster, scenario: Scenario, plan: Plan, root: Path, listeners: list[EventListener]
    ) -> None:
        super().__init__(cluster, scenario, plan, root, listeners)
        assert self._scenario.flow is not None
        self._part = self._scenario.flow
        self._flow: Walkthrough = walkthrough_of(self._scenario.flow.steps)
        self._steps: list[WalkthroughStep] = []
        self._since = time.time_ns()
        self._ids: list[str] = []

    def _phases(self, journal: HistoryWriter, observer: HistoryWriter) -> list[Limit]:
        expect = msgspec.structs.replace(expectation(self._scenario), flow_steps=len(self._flow.TITLES))
        # A flow that ends early has shown less than it promised here, and cannot be valid.
        self.directory.write("expect.json", expect)
        stage = Stage(
            self._cluster,
            self._part.topic,
            len(self._flow.PLACEMENT),
            self.run,
            self.directory.path,
            journal,
            self._part.source,
            self._part.group,
            self._part.tries,
            self._part.libraries,
        )
        self._ids = stage.transactional_ids
        limits: list[Limit] = []
        try:
            self._phase("settle", f"topic {self._part.topic}, the wire tap")
            self._cluster.create_topic(self._part.topic, self._flow.PLACEMENT)
            if self._part.source:
                self._cluster.create_topic(self._part.source, 1)
            ensure_tap(self._cluster).log_to(self.directory.path)
            folder = self._cluster.state.path / "clients" / self.run / "spark"
            self._verification.start_live(folder, lambda text: self._phase("spark", text))
            for step in self._flow.steps(stage):
                self._told(step)
            self._phase("recover", "the cluster is whole again")
            limits = self._recover(lambda _: None)
        except _Interrupted:
            self._phase("interrupted", "healing, then judging what there is")
        except _ENDED as error:
            self._phase("aborted", f"{describe_error(error)}: healing, then judging what there is")
        except BaseException:
            self._clear(stage)
            raise
        self._clear(stage)
        self._ending.each(lambda: self._sample(observer), lambda: self._ending.keep_logs([]))
        return limits

    def _told(self, step: WalkthroughStep) -> None:
        """Store a step, and tell it."""
        self._steps.append(step)
        self.directory.write(FILE, msgspec.json.format(msgspec.json.encode(self._steps), indent=1))
        self._phase(f"step {step.number}", step.text)
        if self._stop.is_set():
            raise _Interrupted

    def _clear(self, stage: Stage) -> None:
        """End the producers, and leave nothing injected."""
        self._ending.each(stage.close)
        self._ending.heal(stage.heal)

    def _sample(self, observer: HistoryWriter) -> None:
        topic, group = self._part.topic, self._part.group
        what = f"the leaders of {topic} to say where it ends"
        ends = wait_until(lambda: self._cluster.end_offsets(topic), LOOK_LIMIT_S, what)
        observer.sample([(topic, p, 0, end.last_stable, end.high_watermark) for p, end in ends.items()])
        if group:
            positions = group_positions(self._cluster.bootstrap(BrokerListener.DIRECT), group)
            observer.sample(group=group, positions=[(*place, at) for place, at in positions.items()])

    def _as_expected(self, judgement: Judgement) -> bool:
        """An anomaly of one step must not hide that another has not seen what it was to see."""
        whole = len(self._steps) == len(self._flow.TITLES) and not any(s.missing for s in self._steps)
        return whole and super()._as_expected(judgement)

    def _verify(self, limits: list[Limit]) -> Outcome:
        """Judge, then make the diagram and the document, which has the verdict in it."""
        outcome = super()._verify(limits)
        path = self.directory.path
        try:
            ensure_tap(self._cluster).stop_log()
            coordinator_entries.collect(
                self._cluster,
                path,
                topics=[],
                transactional_ids=self._ids,
                since=self._since,
                marked=[self._part.topic, coordinator_entries.OFFSETS_TOPIC] if self._part.group else [],
            )
            diagram_file.write(path, SequenceFilter(clients=frozenset(self._flow.DRAWN), most=MOST_DRAWN))
        except FAILURES as error:  # such as a flow that was interrupted before its first frame
            self._phase("diagram", describe_error(error))
        self.directory.write(walkthrough_page.NAME, walkthrough_page.document(path))
        return outcome


def make_run(
    cluster: Cluster, scenario: Scenario, plan: Plan, root: Path, listeners: list[EventListener]
) -> Run:
    """The run of a scenario: of its workload, or of its flow."""
    kind = WalkthroughRun if scenario.flow is not None else Run
    return kind(cluster, scenario, plan, root, listeners)
