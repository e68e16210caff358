"""Metrics of brokers and clients: what moves when exactly-once is at stake, and the samples of a run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.base.waits import wait_until
from harness.cluster.broker_metrics import PRODUCER_IDS, BrokerMetrics, Reading
from harness.cluster.cluster import Cluster
from harness.evidence.metric_samples import FILE, read_samples
from harness.evidence.run_directory import RunDirectory
from harness.faults import Kill, Pause, inject
from harness.testing.plugin import Ran
from harness.walkthroughs.metric_claims import CLAIMS, observe

pytestmark = [pytest.mark.cluster, pytest.mark.jdk]

IN_EVERY_TEST_RUN = ("duplicate", "zombie")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in IN_EVERY_TEST_RUN else pytest.mark.soak) for name in CLAIMS],
)
def test_metrics_move_as_the_documentation_claims(cluster: Cluster, name: str) -> None:
    ((_, seen),) = observe([CLAIMS[name]], cluster, print)

    assert seen
    assert [line for line in seen if not line.same] == []


def read(metrics: BrokerMetrics, *brokers: str) -> Reading:
    """Read until the metrics of these brokers are complete, and of no other ones."""

    def complete() -> list[Reading]:
        reading = metrics.read()
        return [reading] if set(reading.values) == set(brokers) else []

    return wait_until(complete, 60, f"the metrics of {', '.join(brokers)}")[0]


def test_a_broker_is_read_again_after_its_restart_and_a_frozen_one_stops_no_other(cluster: Cluster) -> None:
    with BrokerMetrics(cluster) as metrics:
        whole = read(metrics, "kafka-1", "kafka-2", "kafka-3")
        assert whole.problems == {}
        assert all(PRODUCER_IDS in values for values in whole.values.values())
        with inject(cluster, Pause(), "kafka-2"):
            assert "kafka-2" in read(metrics, "kafka-1", "kafka-3").problems
        with inject(cluster, Kill(), "kafka-3"):
            assert "kafka-3" in read(metrics, "kafka-1", "kafka-2").problems
        assert read(metrics, "kafka-1", "kafka-2", "kafka-3").problems == {}


@pytest.mark.soak
def test_a_run_samples_the_metrics_and_draws_them(run_scenario: Callable[..., Ran]) -> None:
    changes = {"plan__duration": "10s", "plan__steady": "2s", "verify__witnesses": '["reader", "raw-log"]'}
    ran = run_scenario("leader-kills", seed=7, verify__metrics="true", **changes)

    assert ran.verdict == "valid", ran.judgement
    samples = list(read_samples(ran.directory))
    assert {name for sample in samples for name in sample.brokers} == {"kafka-1", "kafka-2", "kafka-3"}
    assert any("requests Produce" in values for sample in samples for values in sample.brokers.values())
    assert any(values.get("acknowledged") for sample in samples for values in sample.clients.values())
    assert "producer ids of brokers" in (ran.directory / "report.html").read_text()
    assert FILE in RunDirectory.open(ran.directory).read("manifest.json", dict)["files"]
