"""One instance of the file case: the writer of the file, or a worker of Kafka Connect that reads it.

    python lines.py FILE CONNECTOR.JSON REST_PORT -- JAVA ...

The first instance copies the orders of a topic into the file, one line each. Every other one becomes a
worker. Each line begins with the partition and the offset of its order, so a writer that starts again
continues behind it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

ENV = os.environ


def positions(file: Path) -> dict[int, int]:
    """Return the next offset of each partition, according to the lines of the file."""
    found: dict[int, int] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        partition, offset, _ = line.split(" ", 2)
        found[int(partition)] = int(offset) + 1
    return found


def batches(consumer: Consumer) -> Iterator[list[str]]:
    """Yield the lines of each batch of orders, without end."""
    while True:
        orders = [order for order in consumer.consume(200, 0.2) if order.error() is None]
        yield [f"{order.partition()} {order.offset()} {order.value().decode()}\n" for order in orders]


def write(file: Path) -> None:
    """Append the orders to the file, each exactly once."""
    consumer = Consumer(
        {"bootstrap.servers": ENV["BOOTSTRAP"], "group.id": "unused", "isolation.level": "read_committed"}
    )
    topic, begin = ENV["ORDERS"], positions(file)
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, begin.get(number, 0)) for number in partitions])
    print("writing lines", flush=True)
    with file.open("ab", buffering=0) as lines:
        for batch in batches(consumer):
            lines.write("".join(batch).encode())


if __name__ == "__main__":
    if ENV["EOS_INSTANCE"].endswith("-1"):
        write(Path(sys.argv[1]))
    worker = Path(__file__).with_name("worker.py")
    os.execv(sys.executable, [sys.executable, str(worker), *sys.argv[2:]])
