"""Fault that changes the level of a cluster feature, such as the version of the transaction protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.base.errors import NoBiteError, WaitTimeoutError
from harness.base.waits import wait_until
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.faults.injection import Fault, FaultContext, Measured
from harness.faults.undo import UndoStep, undo_verb
from harness.kafka import features


@undo_verb
def set_feature(cluster: Cluster, feature: str, level: int) -> None:
    now = _level(cluster, cluster.broker_ids[0], feature)
    if now != level:
        features.change(cluster.admin, feature, now=now, level=level)


@dataclass(frozen=True)
class FeatureLevel(Fault[None]):
    """Fault that sets a cluster feature to the level `level`. Nodes are not restarted.

    Heal sets the feature to the level `back`. This is the feature's level in every cluster that the harness
    starts.
    """

    name: ClassVar[str] = "feature_level"
    capability: ClassVar[Capability] = Capability.LINK
    level: int
    feature: str = features.TRANSACTION_VERSION
    back: int = 2

    def undo_steps(self, context: FaultContext[None]) -> list[UndoStep]:  # noqa: ARG002
        return [set_feature.step(feature=self.feature, level=self.back)]

    def before(self, context: FaultContext[None]) -> None:
        now = _level(context.cluster, context.cluster.broker_ids[0], self.feature)
        if now != self.back or now == self.level:
            hint = "set `back` to the current level, and `level` to another one"
            raise NoBiteError(f"{self.feature} is at {now}, expected {self.back}", hint)

    def apply(self, context: FaultContext[None]) -> None:
        features.change(context.cluster.admin, self.feature, now=self.back, level=self.level)

    def bite(self, context: FaultContext[None]) -> Measured:
        try:
            return {"level": _wait_everywhere(context.cluster, self.feature, self.level)}
        except WaitTimeoutError as error:
            raise NoBiteError(error.message, "does the cluster support this level of the feature?") from error

    def health(self, context: FaultContext[None]) -> Measured:
        return {"level": _wait_everywhere(context.cluster, self.feature, self.back)}


def _level(cluster: Cluster, broker: int, feature: str) -> int:
    return features.levels(cluster.admin, broker).get(feature, 0)


def _wait_everywhere(cluster: Cluster, feature: str, level: int) -> dict[str, int]:
    """Wait until every broker has the feature at this level. Return the level of each broker."""

    def levels() -> dict[str, int]:
        return {str(broker): _level(cluster, broker, feature) for broker in cluster.broker_ids}

    wait_until(lambda: set(levels().values()) == {level}, 3, f"every broker to have {feature} at {level}")
    return levels()
