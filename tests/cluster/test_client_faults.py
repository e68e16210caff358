"""Client faults: a crash leaves intents without an outcome, and a frozen client continues as a zombie."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.base.errors import NoBiteError
from harness.base.processes import ProcessState
from harness.base.waits import wait_until
from harness.clients.client_process import ClientProcess
from harness.cluster.cluster import Cluster
from harness.evidence.history import HistoryClosed, HistoryFile, Invoke, Ok
from harness.faults import CrashClient, Jitter, Kill, Zombie, inject

pytestmark = pytest.mark.cluster
StartClient = Callable[..., ClientProcess]


def acknowledged(client: ClientProcess) -> int:
    path = Path(client.spec.history)
    if not path.exists():
        return 0
    return sum(
        last - first + 1
        for _, line in HistoryFile(path).read()
        if isinstance(line, Ok)
        for _, first, last, _ in line.acked
    )


def working(client: ClientProcess, more_than: int = 0) -> None:
    wait_until(lambda: acknowledged(client) > more_than, 30, f"more than {more_than} acknowledged records")


def test_a_crashed_client_leaves_its_intents(cluster: Cluster, start_client: StartClient) -> None:
    client = start_client(rate=20_000)
    working(client)

    with inject(cluster, CrashClient(), "client(client)", process=client) as injection:
        assert injection.bite == {"pid": client.pid, "state": "gone"}

    # The client's parent process writes the exit code a moment after the client ends.
    wait_until(lambda: client.exit_code() is not None, 10, "the exit code of the client to be written")
    assert client.exit_code() == 137
    lines = [line for _, line in HistoryFile(Path(client.spec.history)).read()]
    assert not any(isinstance(line, HistoryClosed) for line in lines)
    assert sum(isinstance(line, Invoke) for line in lines) >= sum(isinstance(line, Ok) for line in lines)


def test_a_frozen_client_continues_when_it_is_resumed(cluster: Cluster, start_client: StartClient) -> None:
    client = start_client()
    working(client)

    with inject(cluster, Zombie(), "client(client)", process=client) as injection:
        assert injection.bite["state"] == "stopped"
        frozen_at = acknowledged(client)
        assert client.state() is ProcessState.STOPPED

    working(client, more_than=frozen_at)
    assert client.stop() == 0


def test_a_client_that_has_ended_cannot_be_faulted(cluster: Cluster, start_client: StartClient) -> None:
    client = start_client(seconds=0.5)
    wait_until(lambda: client.exit_code() is not None, 30, "the client to end")

    with pytest.raises(NoBiteError, match="is gone already"):
        inject(cluster, Zombie(), "client(client)", process=client).start()


def test_a_process_without_the_mark_is_never_signalled(cluster: Cluster, start_client: StartClient) -> None:
    client = start_client()
    working(client)

    other = SimpleNamespace(pid=client.pid, mark="/somewhere/else")
    with pytest.raises(NoBiteError, match="is gone already"):
        inject(cluster, CrashClient(), "client(other)", process=other).start()

    assert client.state() is ProcessState.RUNNING


def test_an_idempotent_producer_survives_jitter_and_a_leader_kill(
    cluster: Cluster, topic: str, start_client: StartClient
) -> None:
    client = start_client(rate=2000)
    working(client)

    with inject(cluster, Jitter(latency_ms=50, jitter_ms=40), "all"):
        working(client, more_than=acknowledged(client) + 1000)
    with inject(cluster, Kill(), f"leader_of({topic}, 0)"):
        working(client, more_than=acknowledged(client) + 3000)
    assert client.stop() == 0

    sent = acknowledged(client)
    # Only this idempotent producer writes to the topic. So the high watermarks add up to the number of
    # acknowledged records: the log has neither markers nor duplicates.
    assert sum(ends.high_watermark for ends in cluster.end_offsets(topic).values()) == sent
