"""A partition on other brokers for a while: a coordinator that outlives what it coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.base.errors import HealError, NoBiteError
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.faults.injection import Measured
from harness.faults.undo import UndoStep


@dataclass(frozen=True)
class Placement:
    """Keep a partition on the brokers `on` alone, leader first; healed, it is on those of `back` again."""

    name: ClassVar[str] = "placement"
    capability: ClassVar[Capability] = Capability.LINK
    moves_roles: ClassVar[bool] = False
    topic: str
    partition: int
    on: tuple[int, ...]
    back: tuple[int, ...]

    def undo_steps(self, names: list[str], ident: str) -> list[UndoStep]:  # noqa: ARG002
        """Move it back."""
        return [
            {"do": "place", "topic": self.topic, "partition": self.partition, "replicas": list(self.back)}
        ]

    def before(self, cluster: Cluster, names: list[str], memory: Measured) -> None:  # noqa: ARG002
        """It is where it is taken back to."""
        found = cluster.partition(self.topic, self.partition).replicas
        if set(found) != set(self.back):
            raise NoBiteError(f"{self.topic}-{self.partition} is on {found}", f"expected {self.back}")

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:  # noqa: ARG002
        """Move it, and wait until it has moved."""
        cluster.reassign(self.topic, {self.partition: self.on})

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """It is there, and the first of them leads."""
        found = cluster.partition(self.topic, self.partition)
        if set(found.replicas) != set(self.on) or found.leader not in self.on:
            raise NoBiteError(f"{self.topic}-{self.partition} is on {found.replicas}", f"expected {self.on}")
        return {"leader": found.leader, "replicas": list(found.replicas)}

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """It is where it was."""
        found = cluster.partition(self.topic, self.partition)
        if set(found.isr) != set(self.back):
            raise HealError(f"{self.topic}-{self.partition} has ISR {found.isr}", f"expected {self.back}")
        return {"leader": found.leader, "isr": list(found.isr)}
