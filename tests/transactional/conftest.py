"""What these cases share: producers that act when told, and the judge of what they did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from harness.tap.tap_client import ensure_tap
from tests.transactional.bench import Bench


@pytest.fixture
def make_bench(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[[str], Bench]]:
    """Benches by name, each with its own histories, for what is to be judged apart."""
    ensure_tap(cluster)
    made: list[Bench] = []

    def make(name: str) -> Bench:
        folder = tmp_path / name
        folder.mkdir()
        made.append(Bench(cluster, folder))
        return made[-1]

    yield make
    for bench in made:
        bench.end()


@pytest.fixture
def bench(make_bench: Callable[[str], Bench]) -> Bench:
    """Transactional producers with their histories, topics of their own, and the judge of what they did."""
    return make_bench("bench")
