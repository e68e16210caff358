"""The cluster's features, such as the transaction version: what is in force, and another level of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harness.kafka.admin import Admin
from harness.kafka.connection import KafkaAnswerError

TRANSACTION_VERSION: Final = "transaction.version"
_UPGRADE, _SAFE_DOWNGRADE = 1, 2


def levels(admin: Admin, broker: int) -> Mapping[str, int]:
    """The levels of the features as a broker acts by them; one at level 0 may be left out."""
    from kafka.protocol.metadata import ApiVersionsRequest

    request = ApiVersionsRequest(client_software_name="eos-harness", client_software_version="1", version=3)
    answer = admin.call(broker, request)
    _check(f"features of broker {broker}", answer.error_code)
    return {feature.name: feature.max_version_level for feature in answer.finalized_features or ()}


def change(admin: Admin, feature: str, *, now: int, level: int) -> None:
    """Take a feature from the level that it has to another; the brokers follow within a moment."""
    from kafka.protocol.admin import UpdateFeaturesRequest

    update = UpdateFeaturesRequest.FeatureUpdateKey
    direction = _UPGRADE if level > now else _SAFE_DOWNGRADE
    request = UpdateFeaturesRequest(
        feature_updates=[update(feature=feature, max_version_level=level, upgrade_type=direction)],
        timeout_ms=10_000,
        validate_only=False,
        version=1,
    )
    answer = admin.call_any(request)
    _check(f"{feature} {level}", answer.error_code)
    for result in answer.results or ():
        _check(f"{feature} {level}", result.error_code)


def _check(what: str, code: int) -> None:
    if code:
        raise KafkaAnswerError(what, code)
