"""Metrics of brokers and clients: what moves when exactly-once is at stake, and the samples of a run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.cluster.broker_metrics import PRODUCER_IDS, BrokerMetrics
from harness.cluster.cluster import Cluster
from harness.evidence.metric_samples import FILE, read_samples
from harness.evidence.run_directory import RunDirectory
from harness.faults import Kill, Pause, inject
from harness.report.metric_curves import metric_curves
from harness.report.prometheus import export
from harness.testing.plugin import Ran
from harness.walkthroughs.metric_claims import CLAIMS, observe

pytestmark = [pytest.mark.cluster, pytest.mark.jdk]

IN_EVERY_TEST_RUN = ("duplicate", "zombie")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in IN_EVERY_TEST_RUN else pytest.mark.soak) for name in CLAIMS],
)
def test_metrics_move_as_the_documentation_says(cluster: Cluster, name: str) -> None:
    ((_, seen),) = observe([CLAIMS[name]], cluster, print)

    assert seen
    assert [line for line in seen if not line.same] == []


def test_a_broker_is_read_again_after_its_restart_and_a_frozen_one_delays_no_other(cluster: Cluster) -> None:
    with BrokerMetrics(cluster) as metrics:
        whole = metrics.read()
        assert (set(whole.values), whole.problems) == ({"kafka-1", "kafka-2", "kafka-3"}, {})
        assert all(PRODUCER_IDS in values for values in whole.values.values())
        with inject(cluster, Pause(), "kafka-2"):
            frozen = metrics.read()
            assert (set(frozen.values), set(frozen.problems)) == ({"kafka-1", "kafka-3"}, {"kafka-2"})
        with inject(cluster, Kill(), "kafka-3"):
            killed = metrics.read()
            assert "kafka-3" in killed.problems
        # The first reading may find the connection to the old process broken.
        readings = [metrics.read() for _ in range(3)]
        assert set(readings[-1].values) == {"kafka-1", "kafka-2", "kafka-3"}, readings


def test_a_run_samples_the_metrics_and_draws_them(run_scenario: Callable[..., Ran]) -> None:
    changes = {"plan__duration": "10s", "plan__steady": "2s", "verify__witnesses": '["reader", "raw-log"]'}
    ran = run_scenario("leader-kills", seed=7, verify__metrics="true", **changes)

    assert ran.verdict == "valid", ran.judgement
    samples = list(read_samples(ran.directory))
    assert len(samples) > 5
    assert {name for sample in samples for name in sample.brokers} == {"kafka-1", "kafka-2", "kafka-3"}
    curves = metric_curves(ran.directory, 0)
    # The leader is killed: clients and followers ask it in vain, or ask a broker that no longer leads.
    assert curves.counted, samples
    assert 'request="' in export([ran.directory])
    assert "producer ids of brokers" in (ran.directory / "report.html").read_text()
    assert FILE in RunDirectory.open(ran.directory).read("manifest.json", dict)["files"]
