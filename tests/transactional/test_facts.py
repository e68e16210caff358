"""`eos facts` on a real cluster: it reports the cluster's settings and the values that its probes measure."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from harness.base.waits import wait_until
from harness.cli.main import cli
from harness.cluster.broker_settings import settings_for
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS
from harness.kafka.brokers import change_settings, setting
from harness.walkthroughs.protocol_facts import read_facts, table
from tests.tapped import Evidence

pytestmark = pytest.mark.cluster

EXPIRATION = "producer.id.expiration.ms"


@pytest.fixture
def lowered(cluster: Cluster) -> Iterator[None]:
    """Give one of the three brokers a different setting during the test."""
    change_settings(cluster.admin, 2, {EXPIRATION: "7200000"})
    wait_until(lambda: setting(cluster.admin, 2, EXPIRATION) == "7200000", 10, "the lower setting")
    yield
    change_settings(cluster.admin, 2, {EXPIRATION: None})
    wait_until(lambda: setting(cluster.admin, 2, EXPIRATION) == "86400000", 10, "the setting to be back")


def test_the_facts_match_this_cluster(cluster: Cluster, evidence: Evidence) -> None:
    facts = read_facts(cluster)
    found = {fact.what: (fact.observed, fact.comparison) for fact in facts}
    evidence(table=table(facts).splitlines())
    ours = settings_for("broker")
    assert found["partitions of __transaction_state"] == (
        ours["transaction.state.log.num.partitions"],
        "different",
    )
    assert found["replicas of __transaction_state"] == (str(len(BROKER_IDS)), "same")
    assert found["expired transactions are aborted every"] == ("1 s", "different")
    assert found["producer ids of one block"] == ("1000", "same")
    assert found["highest epoch"] == ("32767", "different")
    assert found["sequence after the last one"] == ("0", "same")
    assert found["remembered batches per producer"] == ("5", "same")
    assert found["an older repeat is refused with"] == ("OUT_OF_ORDER_SEQUENCE_NUMBER", "different")
    assert found["transaction version"] == ("2", "same")
    assert found["most requests in flight with idempotence"] == ("5", "same")
    # Brokers acknowledge the deletion of a topic a moment before they apply it.
    wait_until(lambda: not probed(cluster), 10, "the probe topics to be deleted")


def probed(cluster: Cluster) -> list[str]:
    return [p.topic for p in cluster.admin.metadata(None).partitions if p.topic.startswith("eos-facts")]


@pytest.mark.usefixtures("lowered")
def test_facts_show_both_values_of_brokers_that_differ(cluster: Cluster, evidence: Evidence) -> None:
    result = CliRunner().invoke(cli, ["facts", "--state", str(cluster.state.path)])
    line = next(each for each in result.output.splitlines() if "an idle producer id expires" in each)
    evidence(line=line)
    assert "1 d or 120 min" in line
    assert "different" in line
