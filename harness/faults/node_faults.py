"""Faults of nodes: kill (SIGKILL), stop (clean), pause (frozen), restart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.base.errors import NoBiteError
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.nodes import Condition
from harness.faults.injection import Measured
from harness.faults.link_probe import QUICK_S
from harness.faults.undo import UndoStep

KILLED = 128 + 9
# A JVM that was asked to end shuts down and reports the signal; a container's first process may report 0.
ENDED_CLEANLY = (0, 128 + 15)
_HINT = "`eos status` shows the nodes"


class _NodeFault:
    """What all node faults share: the nodes run before, and serve again after."""

    moves_roles: ClassVar[bool] = True

    def undo_steps(self, names: list[str], ident: str) -> list[UndoStep]:  # noqa: ARG002
        """Start what does not run, let go on what is frozen."""
        return [{"do": "start_node", "node": name} for name in names]

    def before(self, cluster: Cluster, names: list[str], memory: Measured) -> None:
        """Every node runs."""
        for name in names:
            status = cluster.node(name).status()
            if status.condition is not Condition.RUNNING:
                raise NoBiteError(f"{name} is {status} already", _HINT)
            memory[name] = status.pid

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """Every node serves: brokers lead or follow in every ISR, controllers keep up with the quorum."""
        return {name: f"served after {cluster.wait_serving(name):.1f} s" for name in names}


def _exit_codes(cluster: Cluster, names: list[str], allowed: tuple[int, ...]) -> Measured:
    codes = {}
    for name in names:
        status = cluster.node(name).status()
        # Of somebody else's node only the network may tell: that it is gone, and not how it ended.
        unknown = status.exit_code is None and not cluster.owned
        if status.condition is not Condition.EXITED or not (unknown or status.exit_code in allowed):
            raise NoBiteError(
                f"{name} is {status}, expected exit code {' or '.join(map(str, allowed))}", _HINT
            )
        codes[name] = "answers nobody" if unknown else status.exit_code
    return {"exit_code": codes}


@dataclass(frozen=True)
class Kill(_NodeFault):
    """SIGKILL: the process is gone at once; what it wrote to files survives, as after no power cut."""

    name: ClassVar[str] = "kill"
    capability: ClassVar[Capability] = Capability.KILL

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:  # noqa: ARG002
        """Kill the nodes, one after the other without a pause."""
        for name in names:
            cluster.node(name).kill()

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """The system reports that signal 9 ended each."""
        return _exit_codes(cluster, names, (KILLED,))


@dataclass(frozen=True)
class Stop(_NodeFault):
    """A clean stop: the node hands over its roles, closes its files and ends."""

    name: ClassVar[str] = "stop"
    capability: ClassVar[Capability] = Capability.STOP

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:  # noqa: ARG002
        """Ask each to end, and wait until it has."""
        for name in names:
            cluster.node(name).stop()

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """Each ended by itself."""
        return _exit_codes(cluster, names, ENDED_CLEANLY)


@dataclass(frozen=True)
class Pause(_NodeFault):
    """Freeze: connections stay open and nobody answers; on heal the node goes on with what it believed."""

    name: ClassVar[str] = "pause"
    capability: ClassVar[Capability] = Capability.PAUSE

    def undo_steps(self, names: list[str], ident: str) -> list[UndoStep]:  # noqa: ARG002
        """Let them go on."""
        return [{"do": "resume_node", "node": name} for name in names]

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:  # noqa: ARG002
        """Freeze the nodes."""
        for name in names:
            cluster.node(name).pause()

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """The system reports each as frozen, and a broker answers no more."""
        for name in names:
            node = cluster.node(name)
            if node.status().condition is not Condition.PAUSED:
                raise NoBiteError(f"{name} is {node.status()}, expected paused", _HINT)
            if node.node_id in cluster.broker_ids and cluster.answers(node.node_id, QUICK_S):
                raise NoBiteError(f"{name} is paused and answers", _HINT)
        return {"state": dict.fromkeys(names, "paused")}


@dataclass(frozen=True)
class Restart(_NodeFault):
    """End and start again at once: cleanly, or with `hard` by SIGKILL."""

    name: ClassVar[str] = "restart"
    capability: ClassVar[Capability] = Capability.STOP
    # It may be back before anybody noticed.
    moves_roles: ClassVar[bool] = False
    hard: bool = False

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:  # noqa: ARG002
        """One node after the other."""
        for name in names:
            node = cluster.node(name)
            if self.hard:
                node.kill()
            else:
                node.stop()
            allowed = (KILLED,) if self.hard else ENDED_CLEANLY
            memory[f"{name} ended"] = _exit_codes(cluster, [name], allowed)["exit_code"][name]
            node.start()

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:
        """Each runs again, as another process."""
        ended = {}
        for name in names:
            status = cluster.node(name).status()
            if status.pid == memory[name]:
                raise NoBiteError(f"{name} is still process {status.pid}", _HINT)
            ended[name] = memory[f"{name} ended"]
        return {"exit_code": ended}
