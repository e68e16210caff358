"""Runs that lose packets between brokers are refused on clusters where that is not possible."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.base.errors import RefusedError
from harness.cluster import packet_filter
from harness.cluster.broker_flows import packets_problem
from harness.run import make_run
from harness.run.factory import check_machine
from harness.scenario import find, load
from harness.scenario.plan import draw


def cluster(backend: str = "process", *, owned: bool = True, internal_tap: bool = False) -> Any:
    status = SimpleNamespace(pid=os.getpid())
    return cast(
        Any,
        SimpleNamespace(
            owned=owned,
            record=SimpleNamespace(backend=backend, internal_tap=internal_tap),
            broker_ids=(1, 2, 3),
            ports=SimpleNamespace(subnet="10.9.8"),
            node=lambda _: SimpleNamespace(status=lambda: status),
        ),
    )


@pytest.fixture
def _possible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packet_filter, "unavailable", lambda **_: "")


@pytest.mark.usefixtures("_possible")
def test_packets_of_own_processes_can_be_dropped() -> None:
    assert packets_problem(cluster()) == ""


@pytest.mark.parametrize("scenario", ["lost-flows", "late-marker-packets"])
@pytest.mark.parametrize(
    ("where", "reason"),
    [
        (cluster("compose"), "are not on this machine"),
        (cluster(owned=False), "do not run on this machine"),
        (cluster(internal_tap=True), "through a tap"),
    ],
    ids=["compose", "external", "internal tap"],
)
@pytest.mark.usefixtures("_possible")
def test_a_run_that_cannot_lose_packets_is_refused(
    scenario: str, where: Any, reason: str, tmp_path: Path
) -> None:
    loaded = load(find(scenario))
    with pytest.raises(RefusedError, match=reason):
        make_run(where, loaded, draw(loaded, 1), tmp_path)


def test_without_root_a_run_that_loses_packets_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(packet_filter, "unavailable", lambda **_: "it needs root")
    loaded = load(find("lost-flows"))
    with pytest.raises(RefusedError, match="it needs root"):
        make_run(cluster(), loaded, draw(loaded, 1), tmp_path)


@pytest.mark.parametrize(("scenario", "refused"), [("lost-flows", True), ("jitter", False)])
def test_a_machine_that_cannot_lose_packets_is_found_before_a_cluster_is_started(
    monkeypatch: pytest.MonkeyPatch, scenario: str, *, refused: bool
) -> None:
    monkeypatch.setattr(packet_filter, "unavailable", lambda **_: "it needs root")
    expected = pytest.raises(RefusedError, match="it needs root") if refused else nullcontext()
    with expected:
        check_machine(load(find(scenario)))
