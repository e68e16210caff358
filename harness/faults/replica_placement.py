"""Fault that moves a partition to other brokers. Heal moves it back.

A walkthrough uses this fault to move a partition of __transaction_state, and with it a transaction
coordinator, to one broker. The walkthrough then kills brokers that lead the transaction's partitions, and the
coordinator keeps running.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec

from harness.base.errors import HealError, NoBiteError
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.faults.injection import Fault, FaultContext, Measured
from harness.faults.undo import UndoStep, undo_verb


@undo_verb
def place(cluster: Cluster, topic: str, partition: int, replicas: list[int]) -> None:
    cluster.reassign(topic, {partition: replicas})


@dataclass(frozen=True)
class Placement(Fault[None]):
    """Fault that moves the replicas of a partition to the brokers `on`.

    Heal moves them to the brokers `back`. The first broker of each list is the preferred leader.
    """

    name: ClassVar[str] = "placement"
    capability: ClassVar[Capability] = Capability.LINK
    topic: str
    partition: int
    on: Annotated[tuple[int, ...], msgspec.Meta(min_length=1)]
    back: Annotated[tuple[int, ...], msgspec.Meta(min_length=1)]

    def undo_steps(self, context: FaultContext[None]) -> list[UndoStep]:  # noqa: ARG002
        return [place.step(topic=self.topic, partition=self.partition, replicas=list(self.back))]

    def before(self, context: FaultContext[None]) -> None:
        replicas = context.cluster.partition(self.topic, self.partition).replicas
        if set(replicas) != set(self.back):
            raise NoBiteError(f"{self.topic}-{self.partition} is on {replicas}", f"expected {self.back}")

    def apply(self, context: FaultContext[None]) -> None:
        """Move the partition, and wait until the move is complete."""
        context.cluster.reassign(self.topic, {self.partition: self.on})

    def bite(self, context: FaultContext[None]) -> Measured:
        """Check that only the brokers `on` have replicas of the partition, and that one of them leads it."""
        now = context.cluster.partition(self.topic, self.partition)
        if set(now.replicas) != set(self.on) or now.leader not in self.on:
            raise NoBiteError(f"{self.topic}-{self.partition} is on {now.replicas}", f"expected {self.on}")
        return {"leader": now.leader, "replicas": list(now.replicas)}

    def health(self, context: FaultContext[None]) -> Measured:
        now = context.cluster.partition(self.topic, self.partition)
        if set(now.isr) != set(self.back):
            raise HealError(f"{self.topic}-{self.partition} has ISR {now.isr}", f"expected {self.back}")
        return {"leader": now.leader, "isr": list(now.isr)}
