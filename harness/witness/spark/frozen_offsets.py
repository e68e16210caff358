"""Frozen end offsets of a verification. The brokers report them once, and every witness reads up to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from harness.base.errors import WaitTimeoutError
from harness.base.partition_id import PartitionId
from harness.base.waits import NOT_YET_ERRORS, wait_until
from harness.evidence.observation import Window
from harness.kafka.security import PLAINTEXT, Security
from harness.witness.plain_consumer import freeze

STABLE_LIMIT_S: Final = 90.0
"""Time limit for all transactions to end: the harness's transaction time-out of 60 s, plus 30 s in which the
coordinators abort timed-out transactions.
"""


class Frozen(NamedTuple):
    """The frozen windows of all partitions.

    `hanging` lists the windows in which a transaction was open during the whole wait: the last stable offset
    did not advance. While clients write, other transactions may be open; they are not listed.
    """

    windows: list[Window]
    hanging: list[Window]


def freeze_ends(
    bootstrap: str, topics: Iterable[str], limit: float = STABLE_LIMIT_S, security: Security = PLAINTEXT
) -> Frozen:
    """Wait until all transactions in these topics have ended, then freeze the end offsets and return them.

    If transactions are still open after `limit` seconds, freeze the end offsets anyway. Call this function
    after the clients have finished. While transactional clients write, the last stable offset is usually
    behind the high watermark, so the wait would reach its time limit.
    """
    names = sorted(topics)
    windows: list[Window] = []
    first_stable: dict[PartitionId, int] = {}

    def stable() -> bool:
        windows[:] = freeze(bootstrap, names, security)
        for window in windows:
            first_stable.setdefault((window.topic, window.partition), window.lso)
        return all(window.lso >= window.hw for window in windows)

    try:
        wait_until(
            stable,
            limit,
            f"every transaction in {', '.join(names)} to end",
            every=0.2,
            not_yet=(*NOT_YET_ERRORS, WaitTimeoutError),  # an outage can outlast the retries in freeze()
        )
    except WaitTimeoutError:
        if not windows:
            raise
    stuck = [w for w in windows if w.lso < w.hw and w.lso <= first_stable[w.topic, w.partition]]
    return Frozen(list(windows), stuck)
