"""Fixtures of the tests on real nodes: the topics and client processes of each test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.clients.client_process import ClientProcess
from harness.clients.client_spec import IdempotentSpec
from harness.cluster.cluster import Cluster
from tests.client_case import ClientCase

_numbers = itertools.count(1)


@pytest.fixture
def topic(cluster: Cluster) -> Iterator[str]:
    """Yield a topic of three partitions with three replicas each; broker i + 1 leads partition i."""
    name = f"t{next(_numbers)}"
    cluster.create_topic(name, 3)
    yield name
    cluster.delete_topics([name])


@pytest.fixture
def start_client(cluster: Cluster, topic: str, tmp_path: Path) -> Iterator[Callable[..., ClientProcess]]:
    """Yield a function that starts idempotent producers; those that still run at the end are killed."""
    started: list[ClientProcess] = []

    def start(**changes: object) -> ClientProcess:
        number = len(started) + 1
        folder = tmp_path / f"client-{number}"
        spec = {
            "run": "tests001",
            "client": f"p{number}",
            "number": number,
            "bootstrap": cluster.bootstrap(),
            "topic": topic,
            "partitions": 3,
            "history": str(folder / "history.jsonl"),
            "seconds": 120.0,
        }
        client = ClientProcess(IdempotentSpec(**(spec | changes)), folder)  # type: ignore[arg-type]
        started.append(client)
        client.start()
        return client

    yield start
    for client in started:
        client.kill()


@pytest.fixture
def case(cluster: Cluster, tmp_path: Path) -> Iterator[ClientCase]:
    """Yield the client processes and topics of one test."""
    case = ClientCase(cluster, tmp_path)
    yield case
    case.end()
