"""Frozen ends: where a verification reads to, told by the brokers once and passed on as numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from harness.base.errors import WaitTimeoutError
from harness.base.waits import NOT_YET_ERRORS, wait_until
from harness.evidence.observation import Window
from harness.witness.plain_consumer import freeze

STABLE_LIMIT_S: Final = 90.0
"""The harness's transaction timeout of 60 s, and half of it for the coordinator to end what timed out."""


class Frozen(NamedTuple):
    """The ends, and the partitions whose last stable offset stayed behind: something hangs there."""

    windows: list[Window]
    hanging: list[Window]


def freeze_ends(bootstrap: str, topics: Iterable[str], limit: float = STABLE_LIMIT_S) -> Frozen:
    """Wait until every transaction has ended, then freeze; what never ends is named and not waited for.

    Call it when the clients are done: while they write the last stable offset is always behind.
    """
    names = sorted(topics)
    seen: list[Window] = []

    def stable() -> bool:
        seen[:] = freeze(bootstrap, names)
        return all(window.lso >= window.hw for window in seen)

    try:
        wait_until(
            stable,
            limit,
            f"every transaction in {', '.join(names)} to end",
            every=0.2,
            not_yet=(*NOT_YET_ERRORS, WaitTimeoutError),  # an outage may outlast one freeze
        )
    except WaitTimeoutError:
        if not seen:
            raise
    return Frozen(list(seen), [window for window in seen if window.lso < window.hw])
