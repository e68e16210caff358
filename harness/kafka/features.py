"""Feature levels of the cluster, such as the transaction version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harness.kafka.admin import Admin
from harness.kafka.connection import CLIENT_ID
from harness.kafka.errors import check

TRANSACTION_VERSION: Final = "transaction.version"
_UPGRADE, _SAFE_DOWNGRADE = 1, 2


def levels(admin: Admin, broker: int | None = None) -> Mapping[str, int]:
    """Return the finalized level of each feature, as reported by `broker` (None: any broker).

    A feature at level 0 may be missing from the result.
    """
    from kafka.protocol.metadata import ApiVersionsRequest

    request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1", version=3)
    answer = admin.call_any(request) if broker is None else admin.call(broker, request)
    check("features", answer.error_code)
    return {feature.name: int(feature.max_version_level) for feature in answer.finalized_features or ()}


def supported(admin: Admin, broker: int) -> Mapping[str, int]:
    """Return the highest level of each feature that a broker supports."""
    from kafka.protocol.metadata import ApiVersionsRequest

    request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1", version=3)
    answer = admin.call(broker, request)
    check("features", answer.error_code)
    return {feature.name: int(feature.max_version) for feature in answer.supported_features or ()}


def change(admin: Admin, feature: str, *, now: int, level: int) -> None:
    """Request a change of a feature from level `now` to `level`. The brokers apply it shortly afterwards."""
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
    check(f"{feature} {level}", answer.error_code)
    for result in answer.results or ():
        check(f"{feature} {level}", result.error_code)
