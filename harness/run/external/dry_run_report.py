"""Report of a dry run on an external cluster: every action of the run, and the rights it needs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from harness.cluster.external.cluster_file import NODE_CAPABILITIES, NODE_LOGS, UNDONE_BY, VERBS, ClusterFile
from harness.cluster.external.external_cluster import ExternalCluster
from harness.cluster.external.external_nodes import CommandNode
from harness.cluster.layout import BrokerListener
from harness.run.external.broker_log_capture import WHAT
from harness.run.external.preflight import Moved, is_transactional, most_at_once
from harness.run.external.write_budget import bytes_per_second
from harness.scenario import Scenario
from harness.scenario.plan import Plan, faults_left_out

# For each kind of resource: the operations that the run needs on the resources whose names begin with the
# prefix in the cluster file. The operations have the names that kafka-acls.sh uses.
_RIGHTS: Final = (
    ("--topic", ("Create", "Delete", "Describe", "Read", "Write")),
    ("--group", ("Describe", "Read", "Delete")),
    ("--transactional-id", ("Describe", "Write")),
)

_UNCHECKED: Final = (
    "not checked: the rights Write and Delete on topics, and Write on transactional ids, which brokers do "
    "not report"
)


def format_dry_run(
    cluster: ExternalCluster, scenario: Scenario, plan: Plan, moved: Sequence[Moved]
) -> list[str]:
    """Return every action of the run in order, then the rights that the run needs."""
    return [
        *_where(cluster),
        *_clients(cluster, scenario, plan),
        *_faults(cluster, plan),
        *filter(None, [faults_left_out(scenario, plan)]),
        *(line for one in moved for line in one.lines(most=None)),
        *_limits(cluster.file),
        *_logs(cluster.file),
        "required rights (the last three make foreign resources visible, so that the guard can watch them);",
        "an administrator adds --bootstrap-server, and --command-config on a cluster with a login:",
        *(f"  {line}" for line in acls(cluster.file)),
        _UNCHECKED,
    ]


def _where(cluster: ExternalCluster) -> Iterator[str]:
    brokers = ", ".join(f"{b} at {':'.join(map(str, where))}" for b, where in cluster.addresses.items())
    security = cluster.security
    user = f" as {security.username} ({security.mechanism})" if security.sasl else ""
    yield f"cluster {cluster.file.cluster.id}, {security.protocol}{user}: brokers {brokers}"
    yield f"clients through {cluster.bootstrap(BrokerListener.PROXIED)}"
    yield f"observer through {cluster.bootstrap(BrokerListener.DIRECT)}" + (
        "" if cluster.unfaulted else ", which link faults hit too: the verdict is then unknown"
    )
    if cluster.file.links and cluster.file.proxy:
        ways = ", ".join(f"{p.broker}: {p.listen} -> {p.upstream or p.name}" for p in cluster.file.proxy)
        yield f"Toxiproxy {cluster.file.links.toxiproxy}: {ways}"


def _clients(cluster: ExternalCluster, scenario: Scenario, plan: Plan) -> Iterator[str]:
    topics = {w.topic: w.partitions for w in scenario.workload if w.kind != "reader"}
    topics |= {log: topics[source] for log, source in scenario.changelogs.items()}
    for topic, partitions in topics.items():
        part = cluster.file.topics
        yield (
            f"create {cluster.prefix}{topic}.RUN: {partitions} partitions, {part.replication} replicas, "
            f"min.insync.replicas {part.min_insync}; deleted after the verdict unless --keep"
        )
    for w in scenario.workload:
        group = f", group {cluster.prefix}{w.group}.RUN" if w.group else ""
        ids = f", transactional ids {cluster.prefix}{w.topic}-1.RUN ..." if is_transactional(w.kind) else ""
        yield f"start {w.clients} {w.kind} clients on {cluster.prefix}{w.topic}.RUN{group}{ids}"
    lasts = float(scenario.plan.steady) + plan.duration
    yield f"write at most {bytes_per_second(scenario):.0f} B/s for {lasts:g} s (uncompressed)"


def _faults(cluster: ExternalCluster, plan: Plan) -> Iterator[str]:
    for step in plan.injections:
        yield f"inject {step.text}"
    yield f"brokers hit at once: at most {most_at_once(plan, len(cluster.broker_ids))}"
    part = cluster.file.nodes
    if part is None or not any(step.entry.capability in NODE_CAPABILITIES for step in plan.injections):
        return
    if part.docker_label:
        yield f"nodes: containers with the label {part.docker_label}"
        return
    used = {str(step.entry.capability) for step in plan.injections} & set(NODE_CAPABILITIES)
    used |= {UNDONE_BY[verb] for verb in used}
    entries = [step.entry for step in plan.injections]
    targets = [entry.target.broker for entry in entries if entry.capability in NODE_CAPABILITIES]
    for broker, where in cluster.addresses.items():
        if None not in targets and broker not in targets:
            continue
        node = CommandNode(cluster.name_of(broker), broker, part, where, cluster.answers)
        for verb in VERBS:
            if verb in used:
                yield f"{verb} {node.name}: {shlex.join(node.command(verb))}"


def _limits(file: ClusterFile) -> Iterator[str]:
    limits = file.limits
    yield (
        f"stopped and healed at once: after {limits.deadline}, when {limits.abort_file} exists, "
        f"over {limits.storage} stored, over {limits.bytes_per_second} written, "
        f"over {limits.foreign_under_replicated} foreign partitions under-replicated"
    )


def _logs(file: ClusterFile) -> Iterator[str]:
    yield f"outside {file.cluster.prefix}*, only metadata is read" + (
        "" if file.evidence.logs else " (evidence.logs lists no log)"
    )
    for log in file.evidence.logs:
        yield f"and {WHAT[log]}, after the run ({log})"


def acls(file: ClusterFile) -> list[str]:
    """Return the required rights as kafka-acls.sh commands."""
    who = f"kafka-acls.sh --add --allow-principal {shlex.quote(file.security.who)}"
    name = shlex.quote(file.cluster.prefix)

    def operations(names: Sequence[str]) -> str:
        return " ".join(f"--operation {operation}" for operation in names)

    ours = [
        f"{who} {operations(rights)} --resource-pattern-type prefixed {kind} {name}"
        for kind, rights in _RIGHTS
    ]
    logs = [log for log in file.evidence.logs if log != NODE_LOGS]
    ours += [f"{who} {operations(('Describe', 'Read'))} --topic {log}" for log in logs]
    return ours + [f"{who} --operation Describe {kind} '*'" for kind, _ in _RIGHTS]
