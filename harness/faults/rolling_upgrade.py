"""Fault that restarts nodes with another version of Kafka, one after the other, and then goes back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from harness.base.errors import HealError, NoBiteError
from harness.base.waits import wait_until
from harness.cluster.backend import Capability
from harness.cluster.cluster import HEALTHY_LIMIT_S, Cluster
from harness.cluster.nodes import Condition
from harness.faults.injection import FaultContext, Measured
from harness.faults.node_faults import NodeFault, NodesBefore
from harness.faults.undo import UndoStep, undo_verb
from harness.provision.kafka_versions import check_version

_LOGGED: Final = re.compile(r"Kafka version: (\S+)")
_LOG_LINES: Final = 20_000


@undo_verb
def run_version(cluster: Cluster, node: str, version: str) -> None:
    restart_with(cluster, node, version)


def restart_with(cluster: Cluster, node: str, version: str) -> None:
    """Restart a node with a version of Kafka, and wait until it serves. Do nothing if it already runs it."""
    running = cluster.node(node).status().condition is Condition.RUNNING
    if running and cluster.versions.version_of(node) == version:
        return
    cluster.node(node).stop()
    cluster.versions.set_version(node, version)
    cluster.node(node).start()
    # Kafka logs its version at the end of its start. Before, the leader of the controllers may report a
    # restarted controller with the log end that it had before its restart, as if it served.
    wait_until(
        lambda: _logged_version(cluster, node) == version, HEALTHY_LIMIT_S, f"{node} to log Kafka {version}"
    )
    cluster.wait_serving(node)


@dataclass(frozen=True)
class RollingUpgrade(NodeFault):
    """Fault that restarts each node cleanly with version `version` of Kafka, when the one before it serves.

    The nodes keep their data. On heal, each node is restarted with its version before the fault, one by one.
    Kafka allows the way back as long as no feature was raised to a level that the earlier version lacks.
    """

    name: ClassVar[str] = "rolling_upgrade"
    capability: ClassVar[Capability] = Capability.VERSION
    # Each node is back before the next one is stopped, and a role may have returned to it.
    moves_roles: ClassVar[bool] = False
    version: str

    def __post_init__(self) -> None:
        check_version(self.version)

    def undo_steps(self, context: FaultContext[NodesBefore]) -> list[UndoStep]:
        versions = context.cluster.versions
        return [run_version.step(node=name, version=versions.version_of(name)) for name in context.nodes]

    def before(self, context: FaultContext[NodesBefore]) -> NodesBefore:
        """Check that the nodes run, and that none of them has the new version."""
        state = super().before(context)
        for name in context.nodes:
            if _logged_version(context.cluster, name) == self.version:
                raise NoBiteError(
                    f"{name} runs Kafka {self.version} already", "name another version in `version`"
                )
        context.cluster.versions.provide_version(self.version)
        return state

    def apply(self, context: FaultContext[NodesBefore]) -> None:
        for name in context.nodes:
            restart_with(context.cluster, name, self.version)

    def bite(self, context: FaultContext[NodesBefore]) -> Measured:
        """Check that each node has logged the new version, in a new process."""
        for name in context.nodes:
            found = _logged_version(context.cluster, name)
            if found != self.version or context.cluster.node(name).status().pid == context.state.pids[name]:
                raise NoBiteError(
                    f"{name} runs Kafka {found}, expected {self.version}", f"see `eos logs {name}`"
                )
        return {"version": dict.fromkeys(context.nodes, self.version)}

    def health(self, context: FaultContext[NodesBefore]) -> Measured:
        """Check that each node has logged its earlier version, and wait until it serves."""
        for name in context.nodes:
            expected = context.cluster.versions.version_of(name)
            found = _logged_version(context.cluster, name)
            if found != expected or found == self.version:
                raise HealError(f"{name} runs Kafka {found} after heal", f"see `eos logs {name}`")
        return super().health(context)


def _logged_version(cluster: Cluster, node: str) -> str:
    """Return the version that Kafka logged at the latest start of a node; "" if it logged none."""
    logged: list[str] = _LOGGED.findall(cluster.node(node).log(_LOG_LINES))
    return logged[-1] if logged else ""
