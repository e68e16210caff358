"""Faults of nodes: kill (SIGKILL), stop (a clean exit), pause (a freeze) and restart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.base.errors import NoBiteError
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.nodes import Condition
from harness.faults.injection import Fault, FaultContext, Measured
from harness.faults.link_probe import QUICK_S
from harness.faults.undo import UndoStep, undo_verb

KILLED = 128 + 9
# Exit codes of a clean stop. A JVM that receives SIGTERM exits with 143. The first process of a container may
# exit with 0.
ENDED_CLEANLY = (0, 128 + 15)
_HINT = "`eos status` shows the nodes"


@undo_verb
def start_node(cluster: Cluster, node: str) -> None:
    cluster.node(node).resume()
    cluster.node(node).start()


@undo_verb
def resume_node(cluster: Cluster, node: str) -> None:
    cluster.node(node).resume()


@dataclass
class NodesBefore:
    """State before a node fault: the process id of each node.

    `ended` maps each node that the fault `restart` has ended to its exit code. Other faults leave it empty.
    """

    pids: dict[str, int | None]
    ended: dict[str, int | str | None]


class NodeFault(Fault[NodesBefore]):
    """Base class of the faults of nodes.

    The nodes must run before the fault, and must serve again after heal.
    """

    moves_roles: ClassVar[bool] = True

    def undo_steps(self, context: FaultContext[NodesBefore]) -> list[UndoStep]:
        return [start_node.step(node=name) for name in context.nodes]

    def before(self, context: FaultContext[NodesBefore]) -> NodesBefore:
        pids = {}
        for name in context.nodes:
            status = context.cluster.node(name).status()
            if status.condition is not Condition.RUNNING:
                raise NoBiteError(f"{name} is {status} already", _HINT)
            pids[name] = status.pid
        return NodesBefore(pids, {})

    def health(self, context: FaultContext[NodesBefore]) -> Measured:
        """Wait until each node serves again.

        A broker serves when it answers and is in the ISR of every partition of which it has a replica. A
        controller serves when its log has reached the high watermark of the controller quorum.
        """
        return {name: f"served after {context.cluster.wait_serving(name):.1f} s" for name in context.nodes}


def _exit_code(cluster: Cluster, name: str, allowed: tuple[int, ...]) -> int | str | None:
    """Return the exit code of a node, or a description if the code of an external node is unknown.

    Raise NoBiteError if the node has not exited, or exited with a code that is not in `allowed`.
    """
    status = cluster.node(name).status()
    # The exit code of an external node may be unknown. It is then enough that the node accepts no
    # connections.
    unknown = status.exit_code is None and not cluster.owned
    if status.condition is not Condition.EXITED or not (unknown or status.exit_code in allowed):
        raise NoBiteError(f"{name} is {status}, expected exit code {' or '.join(map(str, allowed))}", _HINT)
    return "does not answer" if unknown else status.exit_code


def _exit_codes(context: FaultContext[NodesBefore], allowed: tuple[int, ...]) -> Measured:
    return {"exit_code": {name: _exit_code(context.cluster, name, allowed) for name in context.nodes}}


@dataclass(frozen=True)
class Kill(NodeFault):
    """Fault that ends a node by SIGKILL.

    Unlike after a power failure, all data that the node wrote to files survives.
    """

    name: ClassVar[str] = "kill"
    capability: ClassVar[Capability] = Capability.KILL
    allowed_on_external: ClassVar[bool] = True

    def apply(self, context: FaultContext[NodesBefore]) -> None:
        for name in context.nodes:
            context.cluster.node(name).kill()

    def bite(self, context: FaultContext[NodesBefore]) -> Measured:
        return _exit_codes(context, (KILLED,))


@dataclass(frozen=True)
class Stop(NodeFault):
    """Fault that stops a node cleanly. The node hands over its roles, closes its files and exits."""

    name: ClassVar[str] = "stop"
    capability: ClassVar[Capability] = Capability.STOP
    allowed_on_external: ClassVar[bool] = True

    def apply(self, context: FaultContext[NodesBefore]) -> None:
        for name in context.nodes:
            context.cluster.node(name).stop()

    def bite(self, context: FaultContext[NodesBefore]) -> Measured:
        return _exit_codes(context, ENDED_CLEANLY)


@dataclass(frozen=True)
class Pause(NodeFault):
    """Fault that freezes a node. Its connections stay open, but the node does not answer.

    After heal the node continues with an outdated view of the cluster.
    """

    name: ClassVar[str] = "pause"
    capability: ClassVar[Capability] = Capability.PAUSE
    allowed_on_external: ClassVar[bool] = True

    def undo_steps(self, context: FaultContext[NodesBefore]) -> list[UndoStep]:
        return [resume_node.step(node=name) for name in context.nodes]

    def apply(self, context: FaultContext[NodesBefore]) -> None:
        for name in context.nodes:
            context.cluster.node(name).pause()

    def bite(self, context: FaultContext[NodesBefore]) -> Measured:
        """Check that each node's process or container is frozen, and that no frozen broker answers."""
        for name in context.nodes:
            node = context.cluster.node(name)
            if node.status().condition is not Condition.PAUSED:
                raise NoBiteError(f"{name} is {node.status()}, expected paused", _HINT)
            if node.node_id in context.brokers and context.cluster.answers(node.node_id, QUICK_S):
                raise NoBiteError(f"{name} is paused and answers", _HINT)
        return {"state": dict.fromkeys(context.nodes, "paused")}


@dataclass(frozen=True)
class Restart(NodeFault):
    """Fault that ends a node and starts it again at once.

    With `hard`, it ends the node by SIGKILL, else cleanly.
    """

    name: ClassVar[str] = "restart"
    capability: ClassVar[Capability] = Capability.STOP
    # Do not wait for a role to move, because the node may run again before another node takes over.
    moves_roles: ClassVar[bool] = False
    hard: bool = False

    def apply(self, context: FaultContext[NodesBefore]) -> None:
        allowed = (KILLED,) if self.hard else ENDED_CLEANLY
        for name in context.nodes:
            node = context.cluster.node(name)
            if self.hard:
                node.kill()
            else:
                node.stop()
            context.state.ended[name] = _exit_code(context.cluster, name, allowed)
            node.start()

    def bite(self, context: FaultContext[NodesBefore]) -> Measured:
        """Check that each node runs as a new process, with another process id."""
        for name in context.nodes:
            status = context.cluster.node(name).status()
            if status.pid == context.state.pids[name]:
                raise NoBiteError(f"{name} is still process {status.pid}", _HINT)
        return {"exit_code": context.state.ended}
