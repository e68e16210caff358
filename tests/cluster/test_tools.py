"""Kafka's tools, run on the cluster and on the files of its nodes without an installed Kafka."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from harness.cluster.cluster import Cluster
from tests.cluster.test_cluster_api import partition_of

pytestmark = pytest.mark.cluster


def tool(cluster: Cluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    eos = str(Path(sys.executable).with_name("eos"))
    command = [eos, "tool", "--state", str(cluster.state.path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_cluster_runs_the_newest_transaction_protocol(cluster: Cluster) -> None:
    shown = tool(cluster, "features", "describe")

    assert shown.returncode == 0, shown.stderr
    assert re.search(r"transaction\.version.*FinalizedVersionLevel: 2\b", shown.stdout)


def test_the_transaction_log_of_a_replica_is_decoded(cluster: Cluster, topic: str) -> None:
    config = {"bootstrap.servers": cluster.bootstrap("DIRECT"), "transactional.id": f"dumped-{topic}"}
    producer = Producer(config)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"one", partition=0)
    producer.commit_transaction(30)
    coordinator = f"kafka-{cluster.txn_coordinator(f'dumped-{topic}')}"
    partition = partition_of(cluster, "__transaction_state", f"dumped-{topic}")

    dumped = tool(cluster, "dump-log", coordinator, f"__transaction_state-{partition}")

    assert dumped.returncode == 0, dumped.stderr
    assert f'"transactionalId":"dumped-{topic}"' in dumped.stdout
    assert f'"topic":"{topic}","partitionIds":[0]' in dumped.stdout


def test_a_failing_tool_is_an_error_with_a_hint(cluster: Cluster) -> None:
    unknown = tool(cluster, "no-such-tool")
    assert unknown.returncode == 4
    assert "the tools are configs, " in unknown.stderr
    elsewhere = tool(cluster, "dump-log", "kafka-1", "no-such-topic-0")
    assert elsewhere.returncode == 4
    assert "kafka-1 has no replica of no-such-topic-0" in elsewhere.stderr
