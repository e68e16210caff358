"""A feature of the cluster at another level: what its protocol was before, on the brokers of today."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.base.errors import NoBiteError, WaitTimeoutError
from harness.base.waits import wait_until
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS
from harness.faults.injection import Measured
from harness.faults.undo import UndoStep
from harness.kafka import features


@dataclass(frozen=True)
class FeatureLevel:
    """Take a feature to `level`; healed, it is at `back` again, online and without a restart."""

    name: ClassVar[str] = "feature_level"
    capability: ClassVar[Capability] = Capability.LINK
    moves_roles: ClassVar[bool] = False
    level: int
    feature: str = features.TRANSACTION_VERSION
    back: int = 2

    def undo_steps(self, names: list[str], ident: str) -> list[UndoStep]:  # noqa: ARG002
        """The level that every cluster of this harness starts with."""
        return [{"do": "set_feature", "feature": self.feature, "level": self.back}]

    def before(self, cluster: Cluster, names: list[str], memory: Measured) -> None:  # noqa: ARG002
        """It is where it is taken back to, and not where it is to go."""
        now = features.levels(cluster.admin, BROKER_IDS[0]).get(self.feature, 0)
        if now != self.back or now == self.level:
            raise NoBiteError(f"{self.feature} is at {now}, expected {self.back}", "`eos heal` sets it")

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:  # noqa: ARG002
        """Ask the controllers for the level."""
        features.change(cluster.admin, self.feature, now=self.back, level=self.level)

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """Every broker acts by it."""
        try:
            return {"level": _everywhere(cluster, self.feature, self.level)}
        except WaitTimeoutError as error:
            raise NoBiteError(error.message, "may the feature be at this level at all?") from error

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """Every broker acts by the level that it had."""
        return {"level": _everywhere(cluster, self.feature, self.back)}


def _everywhere(cluster: Cluster, feature: str, level: int) -> dict[str, int]:
    def seen() -> dict[str, int]:
        return {str(b): features.levels(cluster.admin, b).get(feature, 0) for b in BROKER_IDS}

    wait_until(lambda: set(seen().values()) == {level}, 3, f"every broker to have {feature} at {level}")
    return seen()
