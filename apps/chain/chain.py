"""One hop of the chain, which is one instance.

    app-1   PostgreSQL, and the loader that writes the orders into a table
    app-2   Debezium, in a worker of Kafka Connect: the table to the topic of changes
    app-3   Kafka Streams: the topic of changes to the topic of totals
    app-4   Iceberg's sink, in a worker of Kafka Connect: the topic of totals to a table of Iceberg

    python chain.py                 run the hop of this instance
    python chain.py rows SHARED     print the table of PostgreSQL as JSON lines, after PostgreSQL has ended

SIGHUP ends the database and the sink only after the sink has read all totals, and its files are in the table.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "iceberg"))

import sink
from stack import Database, java

ENV = os.environ
APPS = Path(__file__).resolve().parents[1]
TIMEOUT_S = 10


def has_read_all(group: str, topic: str) -> bool:
    """Return whether no readable record of a topic is behind the committed positions of a group."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

    settings = {"bootstrap.servers": ENV["BOOTSTRAP"], "group.id": group, "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    try:
        partitions = consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions
        places = consumer.committed([TopicPartition(topic, number) for number in partitions], TIMEOUT_S)
        for place in places:
            place.offset = place.offset if place.offset >= 0 else OFFSET_BEGINNING
        consumer.assign(places)
        ended: set[int] = set()
        while len(ended) < len(places):
            message = consumer.poll(TIMEOUT_S)
            if message is None:
                return False
            error = message.error()
            if error is None or error.code() != KafkaError._PARTITION_EOF:
                return False
            ended.add(message.partition())
    except KafkaException as error:
        print(f"no positions of {group}: {error}", flush=True)
        return False
    else:
        return True
    finally:
        consumer.close()


def settle() -> bool:
    """Wait until the sink has read all totals, and the coordinator has committed them."""
    deadline = time.monotonic() + sink.SETTLE_LIMIT_S
    while not has_read_all(ENV["GROUP"], ENV["TOTALS"]):
        if time.monotonic() > deadline:
            print(f"the sink has not read all totals after {sink.SETTLE_LIMIT_S:g} s", flush=True)
            return False
        time.sleep(0.5)
    return sink.settle()


def run_loader(shared: Path, port: str) -> list[str]:
    """Return the command of the loader."""
    ENV["JARS"] = ENV["SOURCE_JARS"]
    url = f"jdbc:postgresql://127.0.0.1:{port}/postgres"
    return [*java(), str(APPS / "debezium" / "Loader.java"), url, str(shared / "ready")]


def run_totals() -> NoReturn:
    """Become an instance of Kafka Streams, which reads the changes."""
    ENV["JARS"] = ENV["STREAMS_JARS"]
    own = {"ORDERS": ENV["CHANGES"], "GROUP": ENV["STREAMS_GROUP"], "INSTANCE": ENV["EOS_INSTANCE"]}
    command = [*java(), str(APPS / "streams" / "Totals.java")]
    os.execve(command[0], command, {**ENV, **own})


def run_worker(shared: Path, name: str, **more: str) -> NoReturn:
    """Become a worker of Kafka Connect."""
    ENV["JARS"] = ENV[f"{name}_JARS"]
    ENV["CONNECTOR"], ENV["WORKER"] = ENV[f"{name}_CONNECTOR"], ENV[f"{name}_WORKER"]
    ENV.update(more)
    sink.run_worker(shared)


def main() -> int:
    if sys.argv[1:]:
        print(Database(Path(sys.argv[2])).rows("select row_to_json(o) from orders o order by id"), end="")
        return 0
    shared, number = Path(ENV["SHARED"]), ENV["EOS_INSTANCE"].rpartition("-")[2]
    if number == "1":
        return sink.run_database(shared, settle, lambda port: run_loader(shared, port))
    if number == "2":
        run_worker(shared, "SOURCE", CONNECT_WHEN=str(shared / "ready"))
    if number == "3":
        run_totals()
    run_worker(shared, "SINK")


if __name__ == "__main__":
    sys.exit(main())
