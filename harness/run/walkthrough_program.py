"""The program of a walkthrough: scripted clients carry out its steps in order, each with evidence."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Final

import msgspec

from harness.base.errors import describe_error
from harness.base.waits import wait_until
from harness.clients.client import CannotGoOnError
from harness.clients.producer_lifecycle import BrokenTransactionError
from harness.cluster.layout import BrokerListener
from harness.evidence.checkers.model import Expect
from harness.evidence.checkers.verdict import Limit
from harness.evidence.history import HistoryWriter
from harness.evidence.step_report import FILE, WalkthroughStep
from harness.kafka.log.coordinator_log import OFFSETS_TOPIC
from harness.report.diagram import diagram_file
from harness.report.diagram.sequence import SequenceFilter
from harness.run.program import RunContext, measure_recovery, note_skipped_phases
from harness.run.shutdown import FAILURES, InterruptedRun
from harness.run.verification import expectation
from harness.tap import coordinator_entries
from harness.tap.tap_client import running_taps
from harness.walkthroughs import walkthrough_page
from harness.walkthroughs.catalogue import WALKTHROUGHS
from harness.walkthroughs.stage import Stage
from harness.witness.plain_consumer import group_positions

MOST_DRAWN: Final = 200
SAMPLE_LIMIT_S: Final = 30.0
_ENDED: Final = (*FAILURES, BrokenTransactionError, CannotGoOnError)
"""Errors that end a walkthrough but are not bugs of the harness. The cluster or a client library did not do
what a step needs.
"""


class WalkthroughProgram:
    """Program that carries out the steps of a walkthrough.

    It also writes the page of the walkthrough, with a sequence diagram of the frames.
    """

    def __init__(self, run: RunContext) -> None:
        assert run.scenario.walkthrough is not None
        self._run = run
        self._part = run.scenario.walkthrough
        self._walkthrough = WALKTHROUGHS[self._part.steps]
        self._steps: list[WalkthroughStep] = []
        self._since = time.time_ns()
        self._transactional_ids: list[str] = []

    def expectation(self) -> Expect:
        """Return the properties and limits that the checkers apply to this run.

        The result includes the number of steps, so that a run that ends early is not valid.
        """
        steps = len(self._walkthrough.titles)
        return msgspec.structs.replace(expectation(self._run.scenario), walkthrough_steps=steps)

    def carry_out(self, journal: HistoryWriter, observer: HistoryWriter) -> list[Limit]:
        """Carry out every step. Even after an error, close the clients and heal the faults."""
        run, part = self._run, self._part
        stage = Stage(
            run.cluster,
            part.topic,
            len(self._walkthrough.placement),
            run.run_id,
            run.directory.path,
            journal,
            part.source,
            part.group,
            part.tries,
            part.tries if part.control_tries is None else part.control_tries,
            part.libraries,
            run.clients,
            run.events.emit,
        )
        self._transactional_ids = stage.transactional_ids
        with ExitStack() as cleanup:
            cleanup.callback(run.shutdown.heal, stage.heal)
            cleanup.callback(run.shutdown.each, stage.close)
            limits = self._take_steps(stage, observer)
        run.shutdown.each(
            lambda: self._sample(observer), self._stop_capture, lambda: run.shutdown.keep_logs([])
        )
        return limits

    def is_complete(self) -> bool:
        """Return whether every step was carried out and recorded all the evidence that it needs."""
        return len(self._steps) == len(self._walkthrough.titles) and not any(s.missing for s in self._steps)

    def write_documents(self) -> None:
        """Draw the sequence diagram, then write the page of the walkthrough, which contains the verdict."""
        run = self._run
        path = run.directory.path
        try:
            drawn_clients = frozenset(self._walkthrough.drawn)
            diagram_file.write(path, SequenceFilter(clients=drawn_clients, most=MOST_DRAWN))
        except FAILURES as error:
            # The diagram cannot be drawn, for example if the run was interrupted before the first frame.
            run.events.phase("diagram", describe_error(error))
        run.directory.write(walkthrough_page.NAME, walkthrough_page.document(path))

    def _stop_capture(self) -> None:
        """Stop the frame log, and collect what no frame contains, before the manifest lists these files."""
        run, part = self._run, self._part
        for tap in running_taps(run.cluster):
            tap.stop_log()
        coordinator_entries.collect(
            run.cluster,
            run.directory.path,
            topics=[],
            transactional_ids=self._transactional_ids,
            since=self._since,
            marked=[part.topic, OFFSETS_TOPIC] if part.group else [],
        )

    def _take_steps(self, stage: Stage, observer: HistoryWriter) -> list[Limit]:
        run, part = self._run, self._part
        try:
            steps = len(self._walkthrough.titles)
            run.events.phase("settle", f"topic {part.topic}, the wire tap; {steps} steps follow")
            run.cluster.create_topic(part.topic, self._walkthrough.placement)
            if part.source:
                run.cluster.create_topic(part.source, 1)
            for tap in running_taps(run.cluster):
                tap.log_to(run.directory.path)
            folder = run.cluster.state.path / "clients" / run.run_id / "spark"
            run.spark.start(folder, lambda text: run.events.phase("spark", text), run.directory.path)
            for step in self._walkthrough.steps(stage):
                self._store(step)
            run.events.phase("recover", "the cluster is healthy again")
            return measure_recovery(run)
        except InterruptedRun:
            note_skipped_phases(observer, "it was interrupted")
            run.events.phase("interrupted", run.stop.describe())
        except _ENDED as error:
            problem = describe_error(error)
            note_skipped_phases(observer, f"it was aborted: {problem}")
            run.events.phase("aborted", f"{problem}: healing, then checking what was recorded")
        return []

    def _store(self, step: WalkthroughStep) -> None:
        self._steps.append(step)
        self._run.directory.write(FILE, msgspec.json.format(msgspec.json.encode(self._steps), indent=1))
        self._run.events.phase(f"step {step.number}", step.text)
        self._run.stop.pause(0)

    def _sample(self, observer: HistoryWriter) -> None:
        cluster, topic, group = self._run.cluster, self._part.topic, self._part.group
        ends = wait_until(
            lambda: cluster.end_offsets(topic), SAMPLE_LIMIT_S, f"the end offsets of {topic} from its leaders"
        )
        observer.sample([(topic, p, 0, end.last_stable, end.high_watermark) for p, end in ends.items()])
        if group:
            asked = time.monotonic_ns()
            positions = group_positions(cluster.bootstrap(BrokerListener.DIRECT), group)
            observer.sample(
                group=group, positions=[(*place, at) for place, at in positions.items()], asked=asked
            )
