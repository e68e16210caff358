"""Hazard of a late marker without any proxy: the packets of one connection between two brokers are lost.

Every attempt takes a minute, because the broker sends a marker again after 30 s, and the kernel sends the
packets of the first one 51 s after they were lost. The attempts of a round run in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.base.errors import ExitCode
from harness.cluster.cluster import Cluster
from harness.cluster.process_backend import ProcessNode
from harness.walkthroughs.endtxn_race import ANOMALIES, ENDS, STATES
from harness.walkthroughs.late_marker import DAMAGE
from harness.walkthroughs.late_marker_packets import CURED, CURES, HAZARDS, OUTAGE_S, TITLES
from tests.hazards.conftest import CHANGED, run_walkthrough

pytestmark = [pytest.mark.cluster, pytest.mark.packets, pytest.mark.soak]

REQUEST_TIMEOUT_S = 30.0
"""Default of the brokers' setting request.timeout.ms."""


@pytest.mark.parametrize("tries", [1, 20])
def test_lost_packets_of_one_connection_make_a_marker_late(
    cluster: Cluster,
    tmp_path: Path,
    evidence: Callable[..., None],
    request: pytest.FixtureRequest,
    tries: int,
) -> None:
    cures = 1 if tries == 1 else request.config.getoption("repeats")
    settings = {"walkthrough__tries": str(tries), "walkthrough__control_tries": str(cures)}
    walked = run_walkthrough(cluster, tmp_path, "late-marker-packets", **settings)
    packets = [row for step in walked.steps for row in step.evidence["packets"]]
    evidence(claims=[claim.observed for step in walked.steps for claim in step.claims], packets=packets)
    assert [walked.missing(step.number) for step in walked.steps] == [""] * len(TITLES)
    struck = walked.tries(1)
    assert len(struck) == len(HAZARDS) * tries
    for attempt in struck:
        variant = next(case.variant for case in HAZARDS if f"-{case.variant}-" in attempt["name"])
        assert set(attempt["found"]) == ANOMALIES[variant], f"{attempt}: {CHANGED}"
        assert attempt["damage"] == DAMAGE[variant], f"{attempt}: {CHANGED}"
        # The coordinator decided what the client requested, and the client got no error.
        assert attempt["decided"] == [state for end in ENDS[variant] for state in STATES[end]]
        assert attempt["error"] == "", CHANGED
    for step, _ in enumerate(CURES, 2):
        cured = walked.tries(step)
        assert [(t["found"], t["damage"], t["error"]) for t in cured] == [([], [], "")] * len(CURED) * cures
    for row in packets:
        assert row["lost_packets"] > 0
        assert row["first_send_s"] >= REQUEST_TIMEOUT_S, "A was complete before the request timed out"
        assert row["arrived_s"] > row["healed_s"] > OUTAGE_S
    assert walked.outcome.exit_code is ExitCode.ANOMALY
    assert walked.outcome.expected, CHANGED


@contextmanager
def broker_setting(cluster: Cluster, name: str, value: str) -> Iterator[None]:
    """Give each broker a setting, and restart one after the other. Undo this at the end."""
    files = {}
    for node in cluster.brokers:
        assert isinstance(node, ProcessNode)
        file = node.folder / "server.properties"
        files[node.name] = (file, file.read_text())
    try:
        for node in cluster.brokers:
            file, before = files[node.name]
            file.write_text(f"{before}{name}={value}\n")
            restart(cluster, node.name)
        yield
    finally:
        for node in cluster.brokers:
            file, before = files[node.name]
            file.write_text(before)
            restart(cluster, node.name)


def restart(cluster: Cluster, name: str) -> None:
    cluster.node(name).stop()
    cluster.node(name).start()
    cluster.wait_serving(name)


@pytest.mark.packets("process")
def test_brokers_that_wait_longer_than_the_outage_send_no_marker_again(
    cluster: Cluster, tmp_path: Path, evidence: Callable[..., None]
) -> None:
    with broker_setting(cluster, "request.timeout.ms", "120000"):
        walked = run_walkthrough(cluster, tmp_path, "late-marker-packets", walkthrough__tries="1")
    attempts = [attempt for step in (1, 2, 3) for attempt in walked.tries(step)]
    packets = [row for step in walked.steps for row in step.evidence["packets"]]
    evidence(tries=attempts, packets=packets)
    assert len(attempts) == len(HAZARDS) + len(CURES) * len(CURED)
    assert [(t["found"], t["damage"], t["error"]) for t in attempts] == [([], [], "")] * len(attempts)
    # The transaction waits until the kernel has delivered the first marker.
    assert all(row["lost_packets"] > 0 and row["first_send_s"] > OUTAGE_S for row in packets)
