"""An application without a consumer group, slow to start: the run learns how long it may be silent."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness.base.errors import ExitCode
from harness.cluster.cluster import Cluster
from harness.run import make_run
from harness.scenario import load
from harness.scenario.plan import draw

pytestmark = [pytest.mark.cluster, pytest.mark.soak]
APP = '''
"""Copy each partition of a topic. The copies contain the offsets, so they also show where to continue."""
import json, os, time

from confluent_kafka import Consumer, Producer, TopicPartition

time.sleep(6)  # a large application starts slowly
common = {"bootstrap.servers": os.environ["BOOTSTRAP"], "client.id": "copy"}
reader = common | {"group.id": "none", "enable.auto.commit": False, "isolation.level": "read_committed"}
source, target = os.environ["ORDERS"], os.environ["COPIES"]
producer = Producer(common | {"transactional.id": target, "transaction.timeout.ms": 10000})
producer.init_transactions(60)  # ends a transaction of the process before this one
copies, positions = Consumer(reader), {partition: 0 for partition in range(3)}
for partition in positions:
    place = TopicPartition(target, partition, 0)
    _, end = copies.get_watermark_offsets(place, timeout=30)
    copies.assign([place])
    while end and copies.position([place])[0].offset < end:
        for message in copies.consume(500, 0.2):
            if message.error() is None:
                positions[partition] = json.loads(message.value())["offset"] + 1
orders = Consumer(reader)
orders.assign([TopicPartition(source, partition, offset) for partition, offset in positions.items()])
while True:
    messages = [message for message in orders.consume(100, 0.2) if message.error() is None]
    if messages:
        producer.begin_transaction()
        for message in messages:
            copy = {"order": message.value().decode(), "offset": message.offset()}
            producer.produce(target, json.dumps(copy), partition=message.partition())
        producer.commit_transaction(30)
'''
SCENARIO = """
[scenario]
name = "copy"
shows = "an application that keeps its positions in its outputs copies each order once"

[app]
command = ["{python}", "app.py"]
env = { BOOTSTRAP = "{bootstrap}", ORDERS = "{topic:orders}", COPIES = "{topic:copies}" }
ready = { fetch = true }

[[input]]
topic = "orders"
rate = 100
value = "{id}"

[[output]]
topic = "copies"
each = 1

[plan]
steady = "2s"
duration = "3s"

[[fault]]
fault = "kill_app"
target = "app(*)"
at = "1s"
lasts = "1s"

[verify]
witnesses = ["reader"]
"""


def test_the_end_of_a_slow_application_without_a_group_is_awaited(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "copy.toml").write_text(SCENARIO)
    scenario = load(tmp_path / "copy.toml")
    outcome = make_run(cluster, scenario, draw(scenario, 1), tmp_path / "runs").execute()

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    events = [json.loads(line) for line in (outcome.directory / "events.jsonl").read_text().splitlines()]
    details = [event["detail"] for event in events if event["event"] == "phase"]
    (awaited,) = [int(m[1]) for d in details if (m := re.match(r"the outputs stop growing for (\d+) s", d))]
    assert awaited >= 2 * 6, "twice the time of its start"
    (recovery,) = [limit for limit in outcome.judgement.limits if limit.name == "recovery"]
    assert recovery.measured > 5, "the application is ready when it fetches again"
