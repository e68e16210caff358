"""Fixtures for the tests of the transactional producer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from harness.tap.tap_client import ensure_tap
from tests.transactional.transactional_case import TransactionalCase


@pytest.fixture
def make_case(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[[str], TransactionalCase]]:
    """Yield a function that makes a case in a new folder. Each case has its own histories and check."""
    ensure_tap(cluster)
    cases: list[TransactionalCase] = []

    def make(name: str) -> TransactionalCase:
        folder = tmp_path / name
        folder.mkdir()
        cases.append(TransactionalCase(cluster, folder))
        return cases[-1]

    yield make
    for case in cases:
        case.end()


@pytest.fixture
def case(make_case: Callable[[str], TransactionalCase]) -> TransactionalCase:
    """Return a case: transactional producers with their histories and topics, and a check of their work."""
    return make_case("case")
