"""Fixtures for the tests of the idempotent producer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from tests.idempotent.idempotent_case import IdempotentCase


@pytest.fixture
def case(cluster: Cluster, topic: str, tmp_path: Path) -> Iterator[IdempotentCase]:
    """Yield a case: producers behind the wire tap with their histories, and a check of their records."""
    case = IdempotentCase(cluster, topic, tmp_path)
    yield case
    case.end()
