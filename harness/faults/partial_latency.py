"""Latency on a share of the connections: a retry on another connection overtakes what it repeats."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

from harness.base.errors import NoBiteError
from harness.cluster.cluster import Cluster
from harness.cluster.toxiproxy_client import Stream
from harness.faults.injection import Measured
from harness.faults.link_probe import Link
from harness.faults.linkbase import HINT, ToxicFault

PROBES = 16
"""Connections that are measured: with a share of a half, one in 32,768 times all of them are alike."""


@dataclass(frozen=True)
class SlowShare(ToxicFault):
    """Delay what clients send by `latency_ms`, on a share of their connections, drawn for each of them."""

    name: ClassVar[str] = "slow_some"
    kind: ClassVar[str] = "latency"
    latency_ms: int
    share: float = 0.5
    stream: Stream = "upstream"

    def attributes(self) -> Mapping[str, int]:
        """The latency, always the same."""
        return {"latency": self.latency_ms, "jitter": 0}

    @property
    def toxicity(self) -> float:
        """Of how many connections Toxiproxy makes it a toxic."""
        return self.share

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """Some connections are slow and some are not."""
        links: list[Link] = [
            link for link in memory["links"] for _ in range(PROBES // len(memory["links"]) + 1)
        ]
        with ThreadPoolExecutor(len(links)) as pool:
            took = list(pool.map(_one_answer_ms, links))
        slow = sum(ms >= self.latency_ms for ms in took)
        if not 0 < slow < len(took):
            raise NoBiteError(f"{slow} of {len(took)} connections are slow", HINT)
        return {"slow": slow, "of": len(took)}


def _one_answer_ms(link: Link) -> float:
    with link.connect(30.0) as connection:
        start = time.monotonic()
        connection.send_api_versions()
        connection.read_frame()
        return (time.monotonic() - start) * 1000
