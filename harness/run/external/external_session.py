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
from harness.cluster.external.cluster_file import OFFSETS_LOG, TRANSACTION_LOG, ClusterFile
from harness.cluster.external.cluster_file_loader import load_cluster_file
from harness.cluster.external.external_cluster import ExternalCluster
from harness.cluster.state_directory import State
from harness.faults.catalogue import external_faults
from harness.faults.heal import heal
from harness.kafka.admin import Admin
from harness.kafka.errors import KafkaAnswerError
from harness.run import Outcome, make_run
from harness.run.external.broker_log_capture import LogEvidence
from harness.run.external.dry_run_report import format_dry_run
from harness.run.external.guard import Guard
from harness.run.external.preflight import (
    Consent,
    check_left_over,
    check_typed,
    foreign_moves,
    refusals,
    refusals_of_dry_run,
)
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
    """Shell command that repeats the run. If it is empty, the run uses a command with only the scenario and
    the seed.
    """


def open_session(
    path: Path, state: State | None, consent: Consent, *, keep: bool = False, replay_command: str = ""
) -> Session:
    """Read the cluster file and open the state directory of that cluster."""
    beware()  # from now on, redact secrets in all output of this process
    file = load_cluster_file(path, external_faults())
    return Session(file, state or external_state(file), consent, keep, replay_command)


def dry_run(session: Session, scenario: Scenario, plan: Plan) -> tuple[list[str], list[str]]:
    """Return the actions that the run would take, and the reasons to refuse it.

    The function sends only requests that read. It changes nothing on the cluster.
    """
    cluster = attach(session.file, session.state)
    moved = foreign_moves(cluster, plan)
    refused, unchecked = refusals_of_dry_run(cluster, scenario, plan, moved, session.consent)
    if not refused:
        try:
            make_run(cluster, scenario, plan, Path())  # nothing begins before the run is executed
        except HarnessError as error:
            refused = [error.message]
    lines = format_dry_run(cluster, scenario, plan, moved)
    return lines + [f"not checked: {what}" for what in unchecked], refused


def execute(
    session: Session,
    scenario: Scenario,
    plan: Plan,
    root: Path,
    *,
    listeners: Callable[[], list[EventListener]],
    report: Report,
) -> Outcome:
    """Check all preconditions and carry out the run.

    Afterwards, delete what the run created unless `session.keep` is set.
    """
    check_typed(session.file, session.consent)
    cluster = attach(session.file, session.state)
    # Another run may create topics at any time. Take the lock before the checks, and hold it until the
    # cleanup is done.
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
                    _keep(cluster, report)
                else:
                    _clear(cluster, report)


def _check(
    cluster: ExternalCluster, scenario: Scenario, plan: Plan, consent: Consent, report: Report
) -> None:
    """Report the resources of other users that node faults may move to other brokers or make unavailable.

    Raise RefusedError with all reasons to refuse the run, if there are any.
    """
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
    """Return the exception with which the run ends after a broker has returned an error.

    It is RefusedError if the cluster denies a right that the run needs. It is HarnessError after any other
    error.
    """
    if error.denied:
        return RefusedError(f"the cluster refused a request that the run needs: {error}", _RIGHTS)
    return HarnessError(
        f"a broker's answer ended the run: {error}", "run it again; the audit log lists every action so far"
    )


class ExternalRunHandler(EventHandler):
    """Event handler of a run on an external cluster.

    It runs the guard, writes the audit log, and captures the run's records from Kafka's internal topics.
    """

    def __init__(self, cluster: ExternalCluster, run: Run, report: Report) -> None:
        self._cluster = cluster
        self._run = run
        self._report = report
        self._logs = LogEvidence(cluster, run.scenario)
        self._guard: Guard | None = None
        self._directory = Path()

    @property
    def stopped_because(self) -> str:
        """The reason why the guard stopped the run; empty if the guard did not stop it."""
        return self._guard.stopped_because if self._guard is not None else ""

    def start(self, directory: Path) -> None:
        """Start the audit log of the run, the capture from Kafka's internal topics, and the guard."""
        self._directory = directory
        self._cluster.audit.also(directory / "audit.jsonl")
        self._logs.begin()
        self._guard = Guard(self._cluster, self._run.scenario, self._run.stop)

    def handle(self, event: Event) -> None:
        """Write an event to the audit log.

        Progress events are left out: the run sends one every second, and they describe no action on the
        cluster.
        """
        if not isinstance(event, ProgressEvent):
            self._cluster.audit.note("event", event=str(event.__struct_config__.tag), fields=_short(event))

    def shutdown(self) -> None:
        """Stop the guard, then capture the run's records from Kafka's internal topics.

        If the captured records cannot be written to the run directory, report this instead of raising an
        error.
        """
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
    # The guard may find a reason to stop the run after the verdict. The run was then not interrupted, so do
    # not report it as stopped.
    if handler.stopped_because and outcome.interrupted:
        report(f"stopped by the guard: {handler.stopped_because}")
    return outcome


def _short(event: Event) -> dict[str, object]:
    kept = ("name", "detail", "fault", "names", "reason", "client", "verdict", "exit_code")
    return {name: getattr(event, name) for name in kept if hasattr(event, name)}


@contextmanager
def _proxies(cluster: ExternalCluster) -> Iterator[None]:
    """Run Toxiproxy during the `with` block, if the cluster file requests that the harness starts one."""
    try:
        cluster.start_proxies()
        yield
    finally:
        cluster.end_proxies()


def _keep(cluster: ExternalCluster, report: Report) -> None:
    """Leave the topics and groups that the run created to the user, and report their names."""
    try:
        names = [*cluster.made.topics(), *cluster.made.groups()]
    except (HarnessError, OSError, EOFError) as error:
        names = [f"what the run created, which cannot be listed now: {describe_error(error)}"]
    cluster.made.keep()
    if names:
        report(f"kept {', '.join(names)}: yours now; Kafka's own tools delete topics and groups")


def _clear(cluster: ExternalCluster, report: Report) -> None:
    """Delete the topics and groups that the run created.

    If that fails, report that the user can try again with `eos heal --cluster FILE`.
    """
    try:
        if names := cluster.made.delete_topics():
            report(f"deleted {', '.join(names)} (--keep would keep them)")
        cluster.made.delete_groups()
    except (HarnessError, OSError, EOFError) as error:
        report(f"some resources were not deleted: {describe_error(error)}; `eos heal --cluster FILE` retries")


def open_logs(path: Path, state: State | None = None) -> tuple[Admin, str, bool]:
    """Return read access to the logs of an external cluster for a search that starts nothing.

    The result also contains the prefix of the topics that may be read, and whether the cluster file permits
    to read the positions of groups. Raise RefusedError if it does not permit to read the transactions.
    """
    beware()
    file = load_cluster_file(path, external_faults(), only_reads=True)
    if TRANSACTION_LOG not in file.evidence.logs:
        raise RefusedError(
            f"{path}: evidence.logs does not list {TRANSACTION_LOG}",
            "to permit reading the transactions of all clients and the positions of all groups, add the "
            f'table [evidence] with logs = ["{TRANSACTION_LOG}", "{OFFSETS_LOG}"]',
        )
    cluster = attach(file, state or external_state(file))
    cluster.audit.note("audit", logs=list(file.evidence.logs))
    return cluster.admin, cluster.prefix, OFFSETS_LOG in file.evidence.logs


def heal_external(path: Path, state: State | None, report: Report) -> int:
    """Undo what a killed run left behind: clients, faults, topics, groups, and Toxiproxy."""
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
