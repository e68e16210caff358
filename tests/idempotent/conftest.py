"""What these cases share: producers that act when told, and the judge of what they did."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from tests.idempotent.bench import Bench


@pytest.fixture
def bench(cluster: Cluster, topic: str, tmp_path: Path) -> Iterator[Bench]:
    """Producers on the TAPPED door with their histories, and the judge of what they did."""
    made = Bench(cluster, topic, tmp_path)
    yield made
    made.end()
