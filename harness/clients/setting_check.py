"""Check of client settings by the client library itself, before a run. It connects nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from harness.clients.client_settings import (
    CONSUMER,
    GROUP,
    PRODUCER,
    Config,
    Value,
    settings,
    transaction_settings,
)

ClientLibraryUse = Literal["plain", "idempotent", "transactional", "assigned", "classic", "consumer"]
"""A kind of producer, or of consumer: assigned, or in a group with one of the two protocols."""

_PREFIX = "consumer."
"""Prefix of settings of a pipeline that belong to its consumer."""


def setting_problem(
    uses: Sequence[ClientLibraryUse], written: Mapping[str, Value], transaction_timeout_ms: int
) -> str:
    """Return why the client library refuses these settings, or "" if it accepts them."""
    from confluent_kafka import Consumer, KafkaException, Producer

    both = len(uses) > 1
    for use in uses:
        consumes = use in ("assigned", *GROUP)
        own = _settings_of(written, consumer=consumes and both, both=both)
        config = {**_config(use, own, transaction_timeout_ms), "log_level": 0}
        try:
            client = (Consumer if consumes else Producer)(config)
        except (KafkaException, TypeError, ValueError) as error:
            reason = error.args[0]
            return reason.str() if hasattr(reason, "str") else str(reason)
        if isinstance(client, Consumer):
            client.close()
    return ""


def _settings_of(written: Mapping[str, Value], *, consumer: bool, both: bool) -> Config:
    if not both:
        return dict(written)
    return {
        name.removeprefix(_PREFIX): value
        for name, value in written.items()
        if name.startswith(_PREFIX) == consumer
    }


def _config(use: ClientLibraryUse, own: Config, transaction_timeout_ms: int) -> Config:
    match use:
        case "plain" | "idempotent":
            return settings(PRODUCER) | {"enable.idempotence": use == "idempotent"} | own
        case "transactional":
            return transaction_settings("check", transaction_timeout_ms, own)
        case "assigned":
            return settings(CONSUMER) | {"group.id": "check"} | own
        case _:
            return settings(GROUP[use]) | {"group.id": "check"} | own
