"""What a scenario needs of the version of Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from harness.faults.feature_level import FeatureLevel
from harness.kafka.features import TRANSACTION_VERSION
from harness.provision.kafka_versions import KafkaFeature, require_features
from harness.scenario.model import Scenario
from harness.scenario.parameters import make_fault
from harness.walkthroughs.catalogue import WALKTHROUGHS

_OF_FEATURE: Final = {
    TRANSACTION_VERSION: KafkaFeature.TRANSACTION_VERSION,
    "group.version": KafkaFeature.CONSUMER_PROTOCOL,
    "share.version": KafkaFeature.SHARE_COORDINATOR,
}
"""What a version of Kafka must support for a fault that changes this feature of the cluster."""


def check_kafka(scenario: Scenario, version: str) -> None:
    """Raise CapabilityError if a version of Kafka lacks something that the scenario needs.

    The error names the part of the scenario that needs it.
    """
    for part, feature in kafka_needs(scenario):
        require_features(version, [feature], f"{part} of {scenario.name}")


def kafka_needs(scenario: Scenario) -> Iterator[tuple[str, KafkaFeature]]:
    """Return each part of a scenario that not every version of Kafka supports, with the feature it needs."""
    for index, workload in enumerate(scenario.workload):
        if workload.protocol == "consumer":
            yield f"workload[{index}].protocol", KafkaFeature.CONSUMER_PROTOCOL
    for index, entry in enumerate(scenario.fault):
        fault = make_fault(entry)
        if isinstance(fault, FeatureLevel) and fault.feature in _OF_FEATURE:
            yield f"fault[{index}]", _OF_FEATURE[fault.feature]
    if scenario.walkthrough is not None:
        for feature in sorted(WALKTHROUGHS[scenario.walkthrough.steps].needs):
            yield f"the walkthrough {scenario.walkthrough.steps}", feature
