"""Training workload for the class-data archive (CDS) of a broker.

It sends the kinds of requests that occur in every run. The archive then contains the classes that a broker
needs for these requests.
"""

from __future__ import annotations

from harness.base.waits import wait_until
from harness.kafka.admin import Admin


def run_training_workload(port: int) -> None:
    """Send topic, transaction, group and offset requests to the broker whose classes are recorded."""
    from confluent_kafka import Consumer, Producer

    admin = Admin({1: ("127.0.0.1", port)}, timeout=15)
    admin.create_topic("train", [[1], [1]])
    servers = {"bootstrap.servers": f"127.0.0.1:{port}"}
    wait_until(lambda: admin.init_producer_id("train")[0] >= 0, 30, "transactions on the training node")
    producer = Producer(servers | {"transactional.id": "train", "transaction.timeout.ms": 10000})
    producer.init_transactions(30)
    for commit in (True, False):
        producer.begin_transaction()
        for value in range(20):
            producer.produce("train", str(value).encode(), partition=value % 2)
        producer.flush(30)
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    consumer = Consumer(servers | {"group.id": "train", "auto.offset.reset": "earliest"})
    consumer.subscribe(["train"])
    wait_until(lambda: consumer.poll(1.0), 30, "the training node's records")
    consumer.commit(asynchronous=False)
    consumer.close()
    admin.end_offsets("train")
    admin.quorum()
