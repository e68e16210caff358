"""One run on an external cluster, from the first check to the deletion of the last topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from harness.base.errors import HarnessError, RefusedError, describe_error
from harness.base.events import Event, EventHandler, EventListener, ProgressEvent
from harness.base.secrets import beware
from harness.cluster.external.attach import attach, external_state
from harness.cluster.external.cluster_file import ClusterFile
from harness.cluster.external.cluster_file_loader import load_cluster_file
from harness.cluster.external.external_cluster import ExternalCluster
from harness.cluster.state_directory import State
from harness.faults.catalogue import external_faults
from harness.faults.heal import heal
from harness.kafka.errors import KafkaAnswerError
from harness.run import Outcome, make_run
from harness.run.external.broker_log_capture import LogEvidence
from harness.run.external.dry_run_report import format_dry_run
from harness.run.external.guard import Guard
from harness.run.external.preflight import Consent, check_left_over, check_typed, foreign_moves, refusals
from harness.run.run import Run
from harness.scenario import Scenario
from harness.scenario.plan import Plan

_RIGHTS = "--dry-run prints the required rights"
Report = Callable[[str], None]


class Session(NamedTuple):
    """Options of a run on an external cluster."""

    file: ClusterFile
    state: State
    consent: Consent
    keep: bool = False
    replay_command: str = ""
    """Shell command that repeats the run; empty for the default one."""


def open_session(
    path: Path, state: State | None, consent: Consent, *, keep: bool = False, replay_command: str = ""
) -> Session:
    """Read the cluster file and open the state directory of that cluster."""
    beware()  # redact output of the cluster's nodes, commands and brokers from now on
    file = load_cluster_file(path, external_faults())
    return Session(file, state or external_state(file), consent, keep, replay_command)


def dry_run(session: Session, scenario: Scenario, plan: Plan) -> tuple[list[str], list[str]]:
    """Describe the run and the reasons to refuse it; send read-only requests."""
    cluster = attach(session.file, session.state)
    moved = foreign_moves(cluster, plan)
    # Start nothing for a dry run: the harness's own Toxiproxy does not exist yet.
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
    """Check all preconditions, run, and leave nothing behind except the run directory."""
    check_typed(session.file, session.consent)
    cluster = attach(session.file, session.state)
    # Take the lock before checking anything another run may have created, and hold it until cleanup.
    with cluster.locked(f"run {scenario.name}"):
        check_left_over(cluster)
        with _proxies(cluster):
            _check(cluster, scenario, plan, session.consent, report)
            run = make_run(cluster, scenario, plan, root, listeners(), replay_command=session.replay_command)
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
    """Report and record foreign partitions that the run may move; refuse the run with all reasons."""
    moved = foreign_moves(cluster, plan)
    for one in moved:
        cluster.audit.note("may move", **one._asdict())
        for line in one.lines():
            report(line)
    if found := refusals(cluster, scenario, plan, moved, consent):
        cluster.audit.note("refused", reasons=found)
        reasons = found[0] if len(found) == 1 else "\n  ".join([f"{len(found)} reasons:", *found])
        raise RefusedError(reasons, "--dry-run shows every action and the required rights")


def _ended(error: KafkaAnswerError) -> HarnessError:
    """Convert a broker error that ended a run: a missing right, or any other error."""
    if error.denied:
        return RefusedError(f"the cluster refused a request that the run needs: {error}", _RIGHTS)
    return HarnessError(
        f"a broker's answer ended the run: {error}", "run it again; the audit log lists every action so far"
    )


class ExternalRunHandler(EventHandler):
    """Guards a run, audits its events, and afterwards captures the broker logs."""

    def __init__(self, cluster: ExternalCluster, run: Run, report: Report) -> None:
        self._cluster = cluster
        self._run = run
        self._report = report
        self._logs = LogEvidence(cluster, run.scenario)
        self._guard: Guard | None = None
        self._directory = Path()

    @property
    def stopped_because(self) -> str:
        """The reason why the guard stopped the run; empty if it did not."""
        return self._guard.stopped_because if self._guard is not None else ""

    def start(self, directory: Path) -> None:
        """Start auditing, log capture and guard."""
        self._directory = directory
        self._cluster.audit.also(directory / "audit.jsonl")
        self._logs.begin()
        self._guard = Guard(self._cluster, self._run.scenario, self._run.stop)

    def handle(self, event: Event) -> None:
        """Audit an event, except progress, which is sent every second and changes nothing."""
        if not isinstance(event, ProgressEvent):
            self._cluster.audit.note("event", event=str(event.__struct_config__.tag), fields=_short(event))

    def shutdown(self) -> None:
        """Stop the guard, then capture the logs: a failure there must not stop the run."""
        if self._guard is None:
            return
        self._guard.close()
        try:
            self._logs.collect(self._directory)
        except OSError as error:
            self._report(f"could not write the captured broker logs: {error}")


def _guarded(cluster: ExternalCluster, run: Run, report: Report) -> Outcome:
    handler = ExternalRunHandler(cluster, run, report)
    run.add_handler(handler)
    outcome = run.execute()
    # If the guard fires after the verdict, the run was not cut short: do not refuse it.
    if handler.stopped_because and outcome.interrupted:
        report(f"stopped by the guard: {handler.stopped_because}")
    return outcome


def _short(event: Event) -> dict[str, object]:
    kept = ("name", "detail", "fault", "names", "reason", "client", "verdict", "exit_code")
    return {name: getattr(event, name) for name in kept if hasattr(event, name)}


@contextmanager
def _proxies(cluster: ExternalCluster) -> Iterator[None]:
    """Run the harness's own Toxiproxy while the run lasts."""
    try:
        cluster.start_proxies()
        yield
    finally:
        cluster.end_proxies()


def _clear(cluster: ExternalCluster, report: Report) -> None:
    """Delete what the run created; report what remains, which `eos heal` deletes later."""
    try:
        if names := cluster.made.delete_topics():
            report(f"deleted {', '.join(names)} (--keep would keep them)")
        cluster.made.delete_groups()
    except (HarnessError, OSError, EOFError) as error:
        report(f"some resources were not deleted: {describe_error(error)}; `eos heal --cluster FILE` retries")


def heal_external(path: Path, state: State | None, report: Report) -> int:
    """Undo what a killed run left behind: clients, faults, topics, groups, Toxiproxy."""
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
