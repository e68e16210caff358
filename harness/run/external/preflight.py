"""Before anything is done on a live cluster: every reason not to, all at once."""

from __future__ import annotations

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
from harness.kafka.connection import KafkaAnswerError
from harness.kafka.coordinators import coordinated_groups, coordinated_transactions
from harness.run.external.write_budget import bytes_per_second
from harness.scenario import Scenario
from harness.scenario.plan import Plan, PlannedFault

# What belongs to the file of the cluster, and would lead out of the prefix if a scenario could set it.
_NOT_TO_SET: Final = (
    "transactional.id",
    "group.id",
    "group.instance.id",
    "bootstrap.servers",
    "metadata.broker.list",
)
_SECURITY: Final = ("security.", "sasl.", "ssl.", "enable.ssl", "enable.sasl")
_MOST_TOLD: Final = 3


class Consent(NamedTuple):
    """What the user has agreed to on the command line."""

    cluster_id: str = ""
    moves_foreign: bool = False


class Moved(NamedTuple):
    """What of others a fault of a node would move away from a broker."""

    broker: str
    leaders: list[str]
    replicas: int
    groups: list[str]
    transactional_ids: list[str]

    def lines(self, most: int | None = _MOST_TOLD) -> list[str]:
        """The same for a person; of many names so many, or all of them."""
        led, groups, ids = self.leaders, self.groups, self.transactional_ids
        return [
            f"{self.broker}: leads {len(led)} foreign partitions{_some(led, most)}",
            f"{self.broker}: has {self.replicas} foreign replicas, which would be missing",
            f"{self.broker}: coordinates {len(groups)} foreign groups{_some(groups, most)}",
            f"{self.broker}: coordinates {len(ids)} foreign transactional ids{_some(ids, most)}",
        ]

    @property
    def nothing(self) -> bool:
        """Whether nobody else would notice."""
        return not (self.leaders or self.replicas or self.groups or self.transactional_ids)


def check_typed(file: ClusterFile, consent: Consent) -> None:
    """The cluster's id, typed in full: before so much as a connection is made."""
    if consent.cluster_id != file.cluster.id:
        typed = f"says {consent.cluster_id!r}" if consent.cluster_id else "is missing"
        raise RefusedError(
            f"--i-understand {typed}, the cluster is {file.cluster.id}",
            f"read what --dry-run shows, then type --i-understand {file.cluster.id}",
        )


def refusals(
    cluster: ExternalCluster, scenario: Scenario, plan: Plan, moved: Sequence[Moved], consent: Consent
) -> list[str]:
    """Why this run is refused; empty if nothing speaks against it."""
    return [
        *_unwanted(cluster),
        *_unsuitable(scenario),
        *_faults(cluster, plan),
        *_caps(cluster.file, scenario, plan),
        *_moves(cluster, plan, moved, consent),
        *_state(cluster),
    ]


def foreign_moves(cluster: ExternalCluster, plan: Plan) -> list[Moved]:
    """What the plan's faults of nodes may move that is not ours, broker by broker."""
    if not any(step.entry.capability in NODE_CAPABILITIES for step in plan.injections):
        return []
    with _refused("what its faults of nodes would move could not be asked"):
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
    """What an earlier run has left is healed first: nothing of it is touched here."""
    clients = len(processes.find(cluster.state.client_mark))
    with _refused("what an earlier run has left could not be asked"):
        made = [*cluster.made.topics(), *cluster.made.groups()]
    left = [
        *([f"{len(found)} faults were never healed"] if (found := unhealed(cluster.state)) else []),
        *([f"{clients} processes of clients still run"] if clients else []),
        *([f"{len(made)} topics and groups were not deleted{_some(made)}"] if made else []),
    ]
    if left:
        raise RefusedError(
            f"something is left of an earlier run: {', '.join(left)}", "`eos heal --cluster FILE` heals it"
        )


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """A broker that does not answer, or not now (a coordinator that loads), keeps the run from beginning."""
    try:
        yield
    except (OSError, EOFError) as error:
        denied = isinstance(error, KafkaAnswerError) and error.denied
        hint = "--dry-run prints the rights that it needs" if denied else "try again when the brokers answer"
        raise RefusedError(f"{what}: {error}", hint) from error


def _unwanted(cluster: ExternalCluster) -> Iterator[str]:
    if Path(cluster.file.limits.abort_file).exists():
        yield f"the abort file {cluster.file.limits.abort_file} is there: remove it when it is safe to go on"


def _unsuitable(scenario: Scenario) -> Iterator[str]:
    if scenario.flow is not None or scenario.verify.frames:
        yield "flows and frames need the wire tap, which a live cluster does not have"
    for index, workload in enumerate(scenario.workload):
        for key in workload.settings:
            name = key.replace("_", ".").removeprefix("consumer.")
            if name in _NOT_TO_SET or name.startswith(_SECURITY):
                yield f"workload[{index}].settings.{key} is for the cluster's file, or leaves the prefix"


def _faults(cluster: ExternalCluster, plan: Plan) -> Iterator[str]:
    allowed = cluster.file.faults.allowed
    for name in sorted({step.entry.fault for step in plan.injections} - set(allowed)):
        yield f"{name} is not allowed: faults.allowed has {', '.join(allowed) or 'none'}"
    for step in plan.injections:
        target = step.entry.target
        if target.hits_controllers:
            yield f"{step.entry.fault} on {target}: controllers of a live cluster are not reached"
        if target.broker is not None and target.broker not in cluster.broker_ids:
            yield f"{target} is not there: the brokers are {', '.join(map(str, cluster.broker_ids))}"
    most = cluster.file.faults.most_targets
    if (at_once := most_at_once(plan, len(cluster.broker_ids))) > most:
        yield f"{at_once} brokers would be hit at once: faults.most_targets is {most}"


def most_at_once(plan: Plan, brokers: int) -> int:
    """How many brokers may be under a fault at the same time: what lasts throughout, and one step."""

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
        yield f"it would store {stored:.0f} B on the disks: limits.storage is {limits.storage}"
    if lasts >= limits.deadline:
        yield f"it lasts {lasts:g} s and then recovers: limits.deadline is {limits.deadline}"


def _moves(cluster: ExternalCluster, plan: Plan, moved: Sequence[Moved], consent: Consent) -> Iterator[str]:
    if all(one.nothing for one in moved):
        return
    if not consent.moves_foreign:
        yield "its faults of nodes would move what is not ours (listed above): --move-foreign agrees to it"
    at_once = most_at_once(plan, len(cluster.broker_ids))
    missing = sum(count for _, count in Counter({m.broker: m.replicas for m in moved}).most_common(at_once))
    limit = cluster.file.limits.foreign_under_replicated
    if missing > limit:
        yield (
            f"up to {missing} foreign partitions would be under-replicated: "
            f"limits.foreign_under_replicated is {limit}"
        )


def _state(cluster: ExternalCluster) -> Iterator[str]:
    brokers, replication = len(cluster.broker_ids), cluster.file.topics.replication
    if replication > brokers:
        yield f"topics.replication is {replication}, and there are {brokers} brokers"
    try:
        ailments = cluster.ailments()
        passed_by = cluster.passed_by() if not ailments else []
        denied = cluster.denied() if replication <= brokers else ""
    except (HarnessError, OSError, EOFError) as error:
        yield f"the cluster could not be looked at: {describe_error(error)}"
        return
    for ailment in ailments:
        yield f"the cluster is degraded: {ailment}"
    if denied:
        yield f"no topic of the prefix could be made: {denied}"
    for place in passed_by:
        yield f"clients would be sent past the proxies: {place}"


def _some(names: Sequence[str], most: int | None = _MOST_TOLD) -> str:
    more = f" and {len(names) - most} more" if most is not None and len(names) > most else ""
    return f" ({', '.join(names[:most])}{more})" if names else ""
