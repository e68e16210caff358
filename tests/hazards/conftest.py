"""Helpers of the tests of hazards: a walkthrough with its steps, a late request, and what can be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.base.events import Event
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.evidence.run_directory import RunDirectory
from harness.evidence.step_report import FILE, WalkthroughStep
from harness.faults.frame_faults import ArmedFrameFault
from harness.kafka.transactions import describe_transactions
from harness.run import Outcome, make_run
from harness.run.run_names import Names
from harness.scenario import find, load
from harness.scenario.plan import draw
from harness.walkthroughs.late_request import Outcome as LateOutcome

LIMIT_S = 30.0
CHANGED = (
    "a client or a broker has changed: read the step, then update docs/hazards.md and reverse this assertion"
)


@dataclass
class WalkedThrough:
    """A walkthrough that has finished: its outcome and its events."""

    outcome: Outcome
    events: list[Event]

    @cached_property
    def steps(self) -> list[WalkthroughStep]:
        """The steps with their claims and evidence."""
        return RunDirectory.open(self.outcome.directory).read(FILE, list[WalkthroughStep])

    @property
    def topic(self) -> str:
        """The name of the topic that this run of the walkthrough created."""
        run = RunDirectory.open(self.outcome.directory)
        names, scenario = run.read("names.json", Names), run.read("scenario.json", dict[str, Any])
        return names.scoped(scenario["walkthrough"]["topic"])

    def tries(self, step: int) -> list[dict[str, Any]]:
        """Return one dictionary with the results of each attempt of a step. The first step is 1."""
        attempts: list[dict[str, Any]] = self.steps[step - 1].evidence["tries"]
        return attempts

    def missing(self, step: int) -> str:
        """Return a message that lists the missing evidence of a step, or "" if none is missing."""
        missing = self.steps[step - 1].missing
        return f"{'; '.join(missing)}. {CHANGED}" if missing else ""


def run_walkthrough(cluster: Cluster, folder: Path, scenario: str, **changes: str) -> WalkedThrough:
    """Run a walkthrough's scenario. The argument `walkthrough__tries="20"` sets `walkthrough.tries` to 20."""
    events: list[Event] = []
    loaded = load(find(scenario), {key.replace("__", "."): value for key, value in changes.items()})
    run = make_run(cluster, loaded, draw(loaded, 1), folder, [events.append])
    return WalkedThrough(run.execute(), events)


def check_attempts(
    walked: WalkedThrough, titles: Sequence[str], outcomes: Sequence[LateOutcome], tries: int, later: int
) -> None:
    """Check that each attempt of each step has shown what it must.

    The first step has made `tries` attempts, and each later step `later`.
    """
    assert [step.title for step in walked.steps] == list(titles)
    for number, expected in enumerate(outcomes, 1):
        attempts = walked.tries(number)
        assert len(attempts) == (tries if number == 1 else later)
        for attempt in attempts:
            error = attempt["error"].split(":")[0]
            seen = (attempt["late_answer"], error, attempt["position"], attempt["found"], attempt["damage"])
            wanted = (expected.late_answer, expected.error, expected.position)
            assert seen == (*wanted, [*expected.found], [*expected.damage]), f"{attempt}: {CHANGED}"
    assert walked.outcome.expected, CHANGED


def committed(cluster: Cluster, topic: str) -> list[bytes]:
    """Return the records that a read_committed reader gets, partition after partition.

    The name of the topic is also the transactional id of its producer, whose last transaction must be
    complete.
    """
    from confluent_kafka import Consumer, TopicPartition

    wait_complete(cluster, topic, ("Complete", "Empty"))
    config = {"bootstrap.servers": cluster.bootstrap("DIRECT"), "group.id": "alone"}
    reader = Consumer(config | {"isolation.level": "read_committed", "enable.partition.eof": True})
    values: list[bytes] = []
    for partition in sorted(cluster.end_offsets(topic)):
        reader.assign([TopicPartition(topic, partition, 0)])
        while (message := reader.poll(LIMIT_S)) is not None and message.error() is None:
            values.append(message.value() or b"")
        assert message is not None, "the reader did not reach the end"
    reader.close()
    return values


def answer_of(held: ArmedFrameFault) -> str:
    """Release the held request, and return the broker's answer to it."""
    held.release()
    return wait_until(lambda: held.wait().hits[0].answer or "", LIMIT_S, "the answer to the late request")


def wait_complete(cluster: Cluster, ident: str, state: str | tuple[str, ...] = "CompleteCommit") -> None:
    """Wait until the state of a transactional id begins with `state`, or with one of several."""
    coordinator = cluster.txn_coordinator(ident)
    wait_until(
        lambda: describe_transactions(cluster.admin, coordinator, [ident])[0].state.startswith(state),
        LIMIT_S,
        f"the transaction of {ident} to be in state {state}",
    )
