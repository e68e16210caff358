"""One run on a live cluster, from the first question to the last topic deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from harness.base.errors import HarnessError, RefusedError, describe_error
from harness.base.events import Event, EventListener, ProgressEvent
from harness.base.secrets import beware
from harness.cluster.external.attach import attach, external_state
from harness.cluster.external.cluster_file import ClusterFile
from harness.cluster.external.cluster_file_loader import load_cluster_file
from harness.cluster.external.external_cluster import ExternalCluster
from harness.cluster.state_directory import State
from harness.faults.catalogue import external_faults
from harness.faults.heal import heal
from harness.kafka.connection import KafkaAnswerError
from harness.report.recorder import Recorder
from harness.run import Outcome, make_run
from harness.run.external.broker_log_capture import LogEvidence
from harness.run.external.dry_run_report import format_dry_run
from harness.run.external.guard import Guard
from harness.run.external.preflight import Consent, check_left_over, check_typed, foreign_moves, refusals
from harness.run.run import Run
from harness.scenario import Scenario
from harness.scenario.plan import Plan

_RIGHTS = "--dry-run prints the rights that it needs"
Report = Callable[[str], None]


class Session(NamedTuple):
    """What a run on a live cluster is asked for."""

    file: ClusterFile
    state: State
    consent: Consent
    keep: bool = False
    again: str = ""
    """The command that does the same once more; empty if there is none."""


def open_session(
    path: Path, state: State | None, consent: Consent, *, keep: bool = False, again: str = ""
) -> Session:
    """Read the file, and take the state directory that belongs to its cluster."""
    beware()  # what nodes, commands and brokers of others say is told too
    file = load_cluster_file(path, external_faults())
    return Session(file, state or external_state(file), consent, keep, again)


def dry_run(session: Session, scenario: Scenario, plan: Plan) -> tuple[list[str], list[str]]:
    """What would be done, and why it would be refused; asks, and changes nothing."""
    cluster = attach(session.file, session.state)
    moved = foreign_moves(cluster, plan)
    # Nothing is started for it: a Toxiproxy of our own is not there to be looked at.
    spared = cluster.without_links() if cluster.starts_toxiproxy else cluster
    return format_dry_run(cluster, scenario, plan, moved), refusals(
        spared, scenario, plan, moved, session.consent
    )


def execute(
    session: Session,
    scenario: Scenario,
    plan: Plan,
    root: Path,
    *,
    listeners: Callable[[], list[EventListener]],
    report: Report,
) -> Outcome:
    """Check everything, run, and leave nothing behind but the verdict."""
    check_typed(session.file, session.consent)
    cluster = attach(session.file, session.state)
    # Before anything is looked at that another run may have made, and until all of this one is gone.
    with cluster.locked(f"run {scenario.name}"):
        check_left_over(cluster)
        with _proxies(cluster):
            _check(cluster, scenario, plan, session.consent, report)
            run = make_run(cluster, scenario, plan, root, listeners())
            run.again = session.again or run.again
            cluster.audit.also(run.directory.path / "audit.jsonl")
            cluster.made.note_groups(sorted({w.group for w in run.scenario.workload if w.group}))
            try:
                return _guarded(cluster, run, report)
            except KafkaAnswerError as error:
                raise _ended(error) from error
            finally:
                if session.keep:
                    cluster.made.keep()
                else:
                    _clear(cluster, report)


def _check(
    cluster: ExternalCluster, scenario: Scenario, plan: Plan, consent: Consent, report: Report
) -> None:
    """Tell and note what the run may move of others; refuse it for every reason that there is."""
    moved = foreign_moves(cluster, plan)
    for one in moved:
        cluster.audit.note("may move", **one._asdict())
        for line in one.lines():
            report(line)
    if found := refusals(cluster, scenario, plan, moved, consent):
        cluster.audit.note("refused", reasons=found)
        reasons = found[0] if len(found) == 1 else "\n  ".join([f"{len(found)} reasons:", *found])
        raise RefusedError(reasons, "--dry-run shows all that would be done, and what it needs")


def _ended(error: KafkaAnswerError) -> HarnessError:
    """What a broker's answer means that ended a run: a right that is missing, or anything else."""
    if error.denied:
        return RefusedError(f"the cluster refused what a run needs: {error}", _RIGHTS)
    return HarnessError(
        f"a broker's answer ended the run: {error}", "try again; the audit log has what was done until then"
    )


def _guarded(cluster: ExternalCluster, run: Run, report: Report) -> Outcome:
    def listen(event: Event) -> None:
        if not isinstance(event, ProgressEvent):  # it tells nothing that was done, about once a second
            cluster.audit.note("event", event=str(event.__struct_config__.tag), told=_short(event))

    with Recorder(run.directory.path) as recorder:
        run.listen(recorder)
        run.listen(listen)
        logs = LogEvidence(cluster, run.scenario)
        logs.begin()
        with Guard(cluster, run.scenario, run.stop) as guard:
            outcome = run.execute()
        # What it stopped for when all was judged kept nothing from going on.
        if guard.stopped_because and outcome.interrupted:
            report(f"refused to go on: {guard.stopped_because}")
        try:
            logs.collect(run.directory.path)
        except OSError as error:
            report(f"what the logs of the brokers show could not be written: {error}")
    return outcome


def _short(event: Event) -> dict[str, object]:
    kept = ("name", "detail", "fault", "names", "reason", "client", "verdict", "exit_code")
    return {name: getattr(event, name) for name in kept if hasattr(event, name)}


@contextmanager
def _proxies(cluster: ExternalCluster) -> Iterator[None]:
    """The Toxiproxy of our own for as long as the run lasts."""
    try:
        cluster.start_proxies()
        yield
    finally:
        cluster.end_proxies()


def _clear(cluster: ExternalCluster, report: Report) -> None:
    """Delete what the run has made; what cannot be deleted is told, and `eos heal` tries again."""
    try:
        if names := cluster.made.delete_topics():
            report(f"deleted {', '.join(names)} (--keep leaves them)")
        cluster.made.delete_groups()
    except (HarnessError, OSError, EOFError) as error:
        report(f"not all could be deleted: {describe_error(error)}; `eos heal --cluster FILE` tries again")


def heal_external(path: Path, state: State | None, report: Report) -> int:
    """Undo what a run that was killed has left: clients, faults, topics, groups, a Toxiproxy of our own."""
    beware()
    file = load_cluster_file(path, external_faults())
    cluster = attach(file, state or external_state(file))
    with cluster.locked("heal"), _proxies(cluster):
        cluster.audit.note("heal")
        done = heal(cluster, report)
        deleted = [f"topic {name}" for name in cluster.made.delete_topics()]
        deleted += [f"group {name}" for name in cluster.made.delete_groups()]
        for what in deleted:
            report(f"deleted {what}")
    return done + len(deleted)
