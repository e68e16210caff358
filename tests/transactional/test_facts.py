"""`eos facts` on a real cluster: what is read moves with the cluster, what is probed is what is known."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from harness.base.waits import wait_until
from harness.cli.main import cli
from harness.cluster.broker_settings import settings_for
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS
from harness.kafka.brokers import setting
from harness.walkthroughs.protocol_facts import read_facts, table
from tests.broker_requests import change_settings
from tests.tapped import Evidence

pytestmark = pytest.mark.cluster

EXPIRATION = "producer.id.expiration.ms"


@pytest.fixture
def lowered(cluster: Cluster) -> Iterator[None]:
    """One broker of three with another setting."""
    change_settings(cluster.admin, 2, {EXPIRATION: "7200000"})
    wait_until(lambda: setting(cluster.admin, 2, EXPIRATION) == "7200000", 10, "the lower setting")
    yield
    change_settings(cluster.admin, 2, {EXPIRATION: None})
    wait_until(lambda: setting(cluster.admin, 2, EXPIRATION) == "86400000", 10, "the setting to be back")


def test_the_facts_are_those_of_this_cluster(cluster: Cluster, evidence: Evidence) -> None:
    facts = read_facts(cluster)
    found = {fact.what: (fact.observed, fact.comparison) for fact in facts}
    evidence(table=table(facts).splitlines())
    ours = settings_for("broker")
    assert found["partitions of __transaction_state"] == (
        ours["transaction.state.log.num.partitions"],
        "different",
    )
    assert found["replicas of __transaction_state"] == (str(len(BROKER_IDS)), "same")
    assert found["time-outs are looked for every"] == ("1 s", "different")
    assert found["producer ids of one block"] == ("1000", "same")
    assert found["highest epoch"] == ("32767", "different")
    assert found["after the last sequence comes"] == ("0", "same")
    assert found["batches of a producer that are remembered"] == ("5", "same")
    assert found["an older one is refused with"] == ("OUT_OF_ORDER_SEQUENCE_NUMBER", "different")
    assert found["transaction version"] == ("2", "same")
    assert found["most requests in flight with idempotence"] == ("5", "same")
    # What is deleted a broker hears of a moment later.
    wait_until(lambda: not probed(cluster), 10, "nothing to be left of what was probed")


def probed(cluster: Cluster) -> list[str]:
    return [p.topic for p in cluster.admin.metadata(None).partitions if p.topic.startswith("eos-facts")]


def test_brokers_that_disagree_are_told(cluster: Cluster, lowered: None, evidence: Evidence) -> None:  # noqa: ARG001
    said = CliRunner().invoke(cli, ["facts", "--state", str(cluster.state.path)])
    line = next(each for each in said.output.splitlines() if "an idle producer id expires" in each)
    evidence(line=line)
    assert "1 d or 120 min" in line
    assert "different" in line
