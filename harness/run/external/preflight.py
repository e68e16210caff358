"""Checks before a run on an external cluster. All reasons to refuse the run are reported together."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from harness.base import processes
from harness.base.errors import HarnessError, RefusedError, describe_error
from harness.cluster.external.cluster_file import NODE_CAPABILITIES, ClusterFile
from harness.cluster.external.external_cluster import ExternalCluster
from harness.faults.intents import unhealed
from harness.kafka.admin import PartitionInfo
from harness.kafka.coordinators import coordinated_groups, coordinated_transactions
from harness.kafka.errors import KafkaAnswerError
from harness.run.external.write_budget import bytes_per_second
from harness.scenario import Scenario
from harness.scenario.plan import Plan, PlannedFault

# Client settings that only the cluster file may determine. If a scenario could set them, its clients could
# use names without the prefix of the cluster file, or connect to other brokers.
_NOT_TO_SET: Final = (
    "transactional.id",
    "group.id",
    "group.instance.id",
    "bootstrap.servers",
    "metadata.broker.list",
)
_SECURITY: Final = ("security.", "sasl.", "ssl.", "enable.ssl", "enable.sasl")
_MOST_LISTED: Final = 3
_LEFT: Final = "an earlier run left something behind"
_HEAL: Final = "run `eos heal --cluster FILE`"
_PASSED_BY: Final = "clients would be redirected past the proxies: {}"


class Consent(NamedTuple):
    """The user's consent to a run on an external cluster, given on the command line.

    `cluster_id` is the id that the user typed. `moves_foreign` permits node faults that move resources of
    other users to other brokers.
    """

    cluster_id: str = ""
    moves_foreign: bool = False


class Moved(NamedTuple):
    """Resources of other users on one broker; they move or become unavailable if a fault hits the broker.

    These are the partitions that the broker leads, its replicas, and the groups and transactional ids that it
    coordinates. Resources whose names begin with the prefix in the cluster file belong to the harness and are
    left out.
    """

    broker: str
    leaders: list[str]
    replicas: int
    groups: list[str]
    transactional_ids: list[str]

    def lines(self, most: int | None = _MOST_LISTED) -> list[str]:
        """Return human-readable lines. Each line lists at most `most` names; with None it lists all names."""
        led, groups, ids = self.leaders, self.groups, self.transactional_ids
        return [
            f"{self.broker}: leads {len(led)} foreign partitions{_some(led, most)}",
            f"{self.broker}: has {self.replicas} foreign replicas, which would be missing",
            f"{self.broker}: coordinates {len(groups)} foreign groups{_some(groups, most)}",
            f"{self.broker}: coordinates {len(ids)} foreign transactional ids{_some(ids, most)}",
        ]

    @property
    def nothing(self) -> bool:
        """True if no resource of another user would move or become unavailable."""
        return not (self.leaders or self.replicas or self.groups or self.transactional_ids)


def check_typed(file: ClusterFile, consent: Consent) -> None:
    """Raise RefusedError unless the user typed the cluster id that the cluster file contains.

    This check needs no connection.
    """
    if consent.cluster_id != file.cluster.id:
        typed = f"is {consent.cluster_id!r}" if consent.cluster_id else "is missing"
        raise RefusedError(
            f"--i-understand {typed}; the cluster is {file.cluster.id}",
            f"read the output of --dry-run, then type --i-understand {file.cluster.id}",
        )


def refusals(
    cluster: ExternalCluster, scenario: Scenario, plan: Plan, moved: Sequence[Moved], consent: Consent
) -> list[str]:
    """Return the reasons to refuse this run; empty if there are none."""
    return [
        *_unwanted(cluster),
        *_unsuitable(scenario),
        *_faults(cluster, plan),
        *_caps(cluster.file, scenario, plan),
        *_moves(cluster, plan, moved, consent),
        *_state(cluster, scenario),
    ]


def refusals_of_dry_run(
    cluster: ExternalCluster, scenario: Scenario, plan: Plan, moved: Sequence[Moved], consent: Consent
) -> tuple[list[str], list[str]]:
    """Return the reasons to refuse this run, and what a dry run cannot check.

    A dry run does not start Toxiproxy. If the run would start it, the brokers are asked at the addresses to
    which the proxies will forward.
    """
    refused = [*_in_use(cluster)]
    if not cluster.starts_toxiproxy:
        return refused + refusals(cluster, scenario, plan, moved, consent), []
    refused += refusals(cluster.without_links(), scenario, plan, moved, consent)
    try:
        return refused + [_PASSED_BY.format(place) for place in cluster.passed_by(upstream=True)], []
    except ConnectionError as error:
        if isinstance(error.__cause__, ssl.SSLCertVerificationError):
            # The certificate must be valid for the host in `listen`, and not for the upstream address.
            return refused, [f"whether clients would be redirected past the proxies: {error}"]
        return [*refused, f"a proxy would not reach its broker: {error}"], []


def _in_use(cluster: ExternalCluster) -> Iterator[str]:
    """Yield why a run would not begin: another command uses the state directory, or a run left something."""
    try:
        with cluster.locked("run --dry-run"):
            left = left_over(cluster)
    except RefusedError as error:
        yield error.message
        return
    if left:
        yield f"{_LEFT}: {left}: {_HEAL}"


def foreign_moves(cluster: ExternalCluster, plan: Plan) -> list[Moved]:
    """Return one `Moved` per broker: the resources of other users that a fault on it may move elsewhere.

    The list is empty if the plan has no node faults.
    """
    if not any(step.entry.capability in NODE_CAPABILITIES for step in plan.injections):
        return []
    with _refused("cannot determine what its node faults would move"):
        foreign = cluster.foreign()
        return [_moved(cluster, broker, foreign) for broker in cluster.broker_ids]


def _moved(cluster: ExternalCluster, broker: int, foreign: Sequence[PartitionInfo]) -> Moved:
    def others(names: list[str]) -> list[str]:
        return [name for name in names if not name.startswith(cluster.prefix)]

    return Moved(
        cluster.name_of(broker),
        [f"{p.topic}-{p.partition}" for p in foreign if p.leader == broker],
        sum(broker in p.replicas for p in foreign),
        others(coordinated_groups(cluster.admin, broker)),
        others(coordinated_transactions(cluster.admin, broker)),
    )


def check_left_over(cluster: ExternalCluster) -> None:
    """Raise RefusedError if an earlier run left something behind. The user must remove it first."""
    if left := left_over(cluster):
        raise RefusedError(f"{_LEFT}: {left}", _HEAL)


def left_over(cluster: ExternalCluster) -> str:
    """Describe the unhealed faults, client processes, topics and groups that an earlier run left behind.

    The text is empty if there are none.
    """
    clients = len(processes.find(cluster.state.client_mark))
    with _refused("cannot determine what an earlier run left behind"):
        made = [*cluster.made.topics(), *cluster.made.groups()]
    left = [
        *([f"{len(found)} faults were not healed"] if (found := unhealed(cluster.state)) else []),
        *([f"{clients} client processes still run"] if clients else []),
        *([f"{len(made)} topics and groups were not deleted{_some(made)}"] if made else []),
    ]
    return ", ".join(left)


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Raise RefusedError if a broker returns an error, or does not answer, during the `with` block."""
    try:
        yield
    except (OSError, EOFError) as error:
        denied = isinstance(error, KafkaAnswerError) and error.denied
        hint = "--dry-run prints the required rights" if denied else "try again when the brokers answer"
        raise RefusedError(f"{what}: {error}", hint) from error


def _unwanted(cluster: ExternalCluster) -> Iterator[str]:
    if Path(cluster.file.limits.abort_file).exists():
        yield f"the abort file {cluster.file.limits.abort_file} exists: remove it when it is safe to continue"


def _unsuitable(scenario: Scenario) -> Iterator[str]:
    if scenario.walkthrough is not None or scenario.verify.frames:
        yield "walkthroughs and frame faults need the wire tap; an external cluster has none"
    if scenario.verify.metrics:
        yield "verify.metrics reads the processes of brokers, which an external cluster does not show"
    for index, workload in enumerate(scenario.workload):
        for key in workload.settings:
            name = key.replace("_", ".").removeprefix("consumer.")
            if name in _NOT_TO_SET or name.startswith(_SECURITY):
                yield f"workload[{index}].settings.{key} belongs in the cluster file or leaves the prefix"


def _faults(cluster: ExternalCluster, plan: Plan) -> Iterator[str]:
    allowed = cluster.file.faults.allowed
    for name in sorted({step.entry.fault for step in plan.injections} - set(allowed)):
        yield f"{name} is not allowed: faults.allowed has {', '.join(allowed) or 'none'}"
    for step in plan.injections:
        target = step.entry.target
        if target.hits_controllers:
            yield f"{step.entry.fault} on {target}: external controllers cannot be controlled"
        if target.broker is not None and target.broker not in cluster.broker_ids:
            yield f"there is no {target}: the brokers are {', '.join(map(str, cluster.broker_ids))}"
    most = cluster.file.faults.most_targets
    if (at_once := most_at_once(plan, len(cluster.broker_ids))) > most:
        yield f"{at_once} brokers would be under fault at once; faults.most_targets is {most}"


def is_transactional(kind: str) -> bool:
    """Return whether clients of this kind of workload may write transactions."""
    return kind in ("transactional", "pipeline")


def most_at_once(plan: Plan, brokers: int) -> int:
    """Return the maximum number of brokers that may be under a fault at the same time.

    This is the number of brokers of all faults that last for the whole plan, plus those of one other fault.
    The other faults are injected one after another.
    """

    def hit(step: PlannedFault) -> int:
        return step.entry.target.most_brokers(brokers)

    lasting = sum(map(hit, plan.throughout))
    return min(brokers, lasting + max(map(hit, plan.steps), default=0))


def _caps(file: ClusterFile, scenario: Scenario, plan: Plan) -> Iterator[str]:
    limits = file.limits
    rate = bytes_per_second(scenario)
    lasts = float(scenario.plan.steady) + plan.duration
    stored = rate * lasts * file.topics.replication
    if rate > limits.bytes_per_second:
        yield f"its clients would write {rate:.0f} B/s: limits.bytes_per_second is {limits.bytes_per_second}"
    if stored > limits.storage:
        yield f"it would store {stored:.0f} B on disk: limits.storage is {limits.storage}"
    if lasts >= limits.deadline:
        yield f"it lasts {lasts:g} s plus recovery; limits.deadline is {limits.deadline}"


def _moves(cluster: ExternalCluster, plan: Plan, moved: Sequence[Moved], consent: Consent) -> Iterator[str]:
    if all(one.nothing for one in moved):
        return
    if not consent.moves_foreign:
        yield "its node faults would move foreign resources (listed above): --move-foreign permits it"
    at_once = most_at_once(plan, len(cluster.broker_ids))
    missing = sum(count for _, count in Counter({m.broker: m.replicas for m in moved}).most_common(at_once))
    limit = cluster.file.limits.foreign_under_replicated
    if missing > limit:
        yield (
            f"up to {missing} foreign partitions would be under-replicated: "
            f"limits.foreign_under_replicated is {limit}"
        )


def _state(cluster: ExternalCluster, scenario: Scenario) -> Iterator[str]:
    brokers, replication = len(cluster.broker_ids), cluster.file.topics.replication
    if replication > brokers:
        yield f"topics.replication is {replication}, and there are {brokers} brokers"
    try:
        ailments = cluster.ailments()
        passed_by = cluster.passed_by() if not ailments else []
        denied = cluster.denied() if replication <= brokers else ""
        missing = cluster.missing_rights(
            groups=any(w.group for w in scenario.workload),
            transactions=any(is_transactional(w.kind) for w in scenario.workload),
        )
    except (HarnessError, OSError, EOFError) as error:
        yield f"cannot inspect the cluster: {describe_error(error)}"
        return
    for ailment in ailments:
        yield f"the cluster is degraded: {ailment}"
    if denied:
        yield f"no topic with the prefix may be created: {denied}"
    for right in missing:
        yield f"this user lacks the right {right} that begin with {cluster.prefix}"
    for place in passed_by:
        yield _PASSED_BY.format(place)


def _some(names: Sequence[str], most: int | None = _MOST_LISTED) -> str:
    more = f" and {len(names) - most} more" if most is not None and len(names) > most else ""
    return f" ({', '.join(names[:most])}{more})" if names else ""
