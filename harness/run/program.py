"""Interface of the program of a run: its actions between the check of the cluster and the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from harness.base.errors import WaitTimeoutError
from harness.base.events import EventStream
from harness.cluster.cluster import Cluster
from harness.evidence.checkers.client_ends import PHASES
from harness.evidence.checkers.model import Expect
from harness.evidence.checkers.verdict import Limit
from harness.evidence.client_list import ClientListWriter
from harness.evidence.history import Error, HistoryWriter
from harness.evidence.run_directory import RECOVERY, RunDirectory
from harness.run.shutdown import Shutdown, StopRequest
from harness.run.spark_stream import SparkStream
from harness.scenario import Scenario
from harness.scenario.plan import Plan

OBSERVER_HISTORY: Final = "observer.jsonl"
"""Name of the history of the run itself."""


@dataclass(frozen=True)
class RunContext:
    """Objects that a run passes to its program. The names in `scenario` and `plan` contain the run id."""

    cluster: Cluster
    scenario: Scenario
    plan: Plan
    run_id: str
    directory: RunDirectory
    events: EventStream
    stop: StopRequest
    spark: SparkStream
    shutdown: Shutdown
    clients: ClientListWriter


class Program(Protocol):
    """Interface of the program of one kind of run: its expectation, its actions, and its documents."""

    def expectation(self) -> Expect:
        """Return the properties and limits that the checkers apply to this run.

        The run stores the result before the program acts on the cluster.
        """
        ...

    def carry_out(self, journal: HistoryWriter, observer: HistoryWriter) -> list[Limit]:
        """Act on the cluster, heal it, and return measurements with their limits."""
        ...

    def is_complete(self) -> bool:
        """Return whether the program carried out everything that it planned."""
        ...

    def write_documents(self) -> None:
        """Write the documents that only this kind of run has. The run calls this after the verdict."""
        ...


def measure_recovery(run: RunContext, wait_resumed: Callable[[float], None] | None = None) -> list[Limit]:
    """Measure the time until the cluster is healthy and all clients make progress again.

    After the limit, continue to wait until the time from which a wait counts as `stalled`, so that a breached
    limit shows the time that was needed. Raise InterruptedRun if the run was asked to stop, because it may
    not have waited to the end.
    """
    start = time.monotonic()
    limits, given_up = run.scenario.limits, ""
    try:
        run.cluster.wait_healthy(limits.stall, enough=run.stop.is_set)
        if wait_resumed is not None:
            wait_resumed(limits.stall)
    except WaitTimeoutError as error:
        given_up = error.message
        run.events.phase("recover", f"not recovered: {given_up}")
    run.stop.pause(0)
    took = round(time.monotonic() - start, 2)
    return [Limit(name=RECOVERY, measured=took, limit=float(limits.recovery), unit="s", where=given_up)]


def note_skipped_phases(observer: HistoryWriter, problem: str) -> None:
    """Record in the observer's history why the run does not carry out its remaining phases.

    The coverage check then lists the problem as a reason, so that the run cannot be valid.
    """
    observer.info(observer.invoke(PHASES), Error(code=0, name="SKIPPED", message=problem))
