"""Removal of a cluster ends its tap, even if the nodes are containers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.base import processes
from harness.cluster import lifecycle
from harness.cluster.state_directory import ClusterRecord, State


class Containers:
    """Stub of a back end that runs no nodes."""

    def destroy(self) -> None:
        """Do nothing, because the stub has no nodes to remove."""


def test_removing_a_compose_cluster_ends_the_tap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = State(tmp_path)
    record = ClusterRecord(
        name="eos-test", backend="compose", profile="quick", cluster_id="x", port_base=12_000, whole=True
    )
    state.save(record)
    monkeypatch.setattr(lifecycle, "make_backend", lambda *_: Containers())
    folder = state.nodes / "tap"
    command = [sys.executable, "-c", "import time; time.sleep(60)", f"{folder}/"]
    pid = processes.start_supervised(command, folder)
    assert processes.find(f"{state.nodes}/")

    assert lifecycle.down(state)

    assert processes.find(f"{state.nodes}/") == []
    assert processes.state_of(pid, str(folder)) is processes.ProcessState.GONE
    assert not state.nodes.exists()
