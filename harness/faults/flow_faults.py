"""Faults of the connections between two brokers: packets are lost although new connections work.

A firewall or a load balancer that has forgotten a connection behaves like this. The faults drop the packets
of connections that another broker has open to the target, in the direction to the target. They need root and
iptables; on the compose back end also nsenter, and an engine on this machine.

    lose_flows   connections that are drawn, or the first one that carries a type of request
    lose_flow    one connection, given by its ports
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal

from harness.base.errors import HealError, NoBiteError, WaitTimeoutError
from harness.base.waits import wait_until
from harness.cluster import broker_flows, packet_filter
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.cluster.packet_filter import LOOPBACK, Flow
from harness.faults.injection import Fault, FaultContext, Measured, Positive
from harness.faults.undo import UndoStep, undo_verb

PACKETS_HINT: Final = (
    "run it as root with iptables, on a cluster of this machine without a tap between brokers"
)
API_KEYS: Final = {"Fetch": 1, "WriteTxnMarkers": 27}


@undo_verb
def restore_flow(cluster: Cluster, broker: int, source: int, destination: int, address: str) -> None:
    """Let the packets of a connection to a broker pass again."""
    containers = broker_flows.in_containers(cluster)
    receiver = broker_flows.process_of(cluster, broker)
    # The rules of a container end with it.
    if (receiver or not containers) and not packet_filter.unavailable(containers=containers):
        packet_filter.restore(Flow(source, destination, address, receiver=receiver))


@dataclass
class FlowsBefore:
    """State before the fault: the brokers whose packets will be lost, and their chosen connections."""

    senders: list[str] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    brokers: list[int] = field(default_factory=list)
    """The broker that receives the packets of each flow."""


class FlowFault(Fault[FlowsBefore]):
    """Base class of the faults that lose the packets of connections."""

    within_s: float

    @staticmethod
    def check_possible(cluster: Cluster) -> None:
        """Raise NoBiteError if packets between the nodes of this cluster cannot be dropped."""
        if problem := broker_flows.packets_problem(cluster):
            raise NoBiteError(problem, PACKETS_HINT)

    def undo_steps(self, context: FaultContext[FlowsBefore]) -> list[UndoStep]:
        return [
            restore_flow.step(
                broker=broker, source=flow.source, destination=flow.destination, address=flow.address
            )
            for flow, broker in zip(context.state.flows, context.state.brokers, strict=True)
        ]

    def apply(self, context: FaultContext[FlowsBefore]) -> None:
        for flow in context.state.flows:
            packet_filter.drop(flow)

    def bite(self, context: FaultContext[FlowsBefore]) -> Measured:
        """Wait until a packet was lost."""
        flows = context.state.flows
        try:
            lost = wait_until(
                lambda: sum(map(packet_filter.dropped_packets, flows)), self.within_s, "a lost packet"
            )
        except WaitTimeoutError as error:
            raise NoBiteError(error.message, "the connections may have been closed") from error
        return {"from": context.state.senders, "connections": len(flows), "lost_packets": lost}

    def health(self, context: FaultContext[FlowsBefore]) -> Measured:
        """Check that no packet is dropped any more."""
        if left := [flow for flow in context.state.flows if packet_filter.is_dropped(flow)]:
            raise HealError(f"packets are still dropped: {left}", "`eos heal` removes the rules")
        return {"listener": str(BrokerListener.INTERNAL), "connections": len(context.state.flows)}


@dataclass(frozen=True)
class LoseFlows(FlowFault):
    """Fault that loses the packets of open connections to each target broker.

    For each target, another broker and `connections` of its connections are drawn from the id of the
    injection. With `carries`, the fault takes the first connection on which such a request passes.
    Connections that are opened later are not affected.
    """

    name: ClassVar[str] = "lose_flows"
    capability: ClassVar[Capability] = Capability.KILL
    connections: Positive = 1
    carries: Literal["", "WriteTxnMarkers", "Fetch"] = ""
    within_s: float = 30.0
    """Time limit for the first lost packet. An idle connection has none."""

    def before(self, context: FaultContext[FlowsBefore]) -> FlowsBefore:
        """Choose the connections. Raise NoBiteError if there are none, or if packets cannot be dropped."""
        cluster = context.cluster
        self.check_possible(cluster)
        found = FlowsBefore()
        for broker in context.brokers:
            sender, flows = self._choose(cluster, broker, random.Random(f"{context.mark} {broker}"))
            if not flows:
                raise NoBiteError(f"{sender} has no connection to {cluster.name_of(broker)}", "`eos status`")
            found.senders.append(sender)
            found.flows += flows
            found.brokers += [broker] * len(flows)
        return found

    def _choose(self, cluster: Cluster, broker: int, draw: random.Random) -> tuple[str, list[Flow]]:
        """Return the broker whose packets to the target will be lost, and its chosen connections."""
        # A coordinator sends its markers over the network even to itself.
        senders = [b for b in cluster.broker_ids if b != broker or self.carries]
        others = [cluster.name_of(other) for other in senders]
        of = {cluster.name_of(s): broker_flows.open_flows(cluster, s, broker) for s in senders}
        if not self.carries:
            sender = draw.choice(others)
            return sender, draw.sample(of[sender], min(self.connections, len(of[sender])))
        seen = packet_filter.flow_with(API_KEYS[self.carries], self.within_s, itertools.chain(*of.values()))
        owner = next((name for name, flows in of.items() if seen in flows), "no broker")
        return owner, [seen] if seen else []


@dataclass(frozen=True, kw_only=True)
class LoseFlow(FlowFault):
    """Fault that loses the packets of one open connection to the target broker, given by its ports.

    On the compose back end, `address` is the address of the container that has opened the connection.
    """

    name: ClassVar[str] = "lose_flow"
    capability: ClassVar[Capability] = Capability.KILL
    source: int
    destination: int
    address: str = LOOPBACK
    within_s: float = 30.0
    """Time limit for the first lost packet. An idle connection has none."""

    def before(self, context: FaultContext[FlowsBefore]) -> FlowsBefore:
        """Check that the connection exists. Raise NoBiteError if not, or if packets cannot be dropped."""
        cluster = context.cluster
        self.check_possible(cluster)
        (broker,) = context.brokers
        receiver = broker_flows.process_of(cluster, broker)
        flow = Flow(self.source, self.destination, self.address, receiver, receiver)
        if not packet_filter.is_open(flow):
            raise NoBiteError(f"no connection has the ports {self.source} and {self.destination}", "see `ss`")
        return FlowsBefore([], [flow], [broker])
