"""An application whose effects are outside of Kafka: rows of a SQLite database, and calls of an HTTP service.

It commits its positions when all effects of a batch are done, so a killed instance repeats some of them. The
primary key of the table makes a repeated row harmless. A repeated call is permitted.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
import urllib.request
import zlib

from confluent_kafka import Consumer, Message, TopicPartition

MISTAKES = os.environ.get("MISTAKE", "").split()
DATABASE, CALLS = os.environ["DATABASE"], os.environ["CALLS"]
running = [True]


def connected() -> sqlite3.Connection:
    connection = sqlite3.connect(DATABASE, timeout=30)
    unique = "" if "no-key" in MISTAKES else "primary key"
    connection.execute(f"create table if not exists invoices (number text {unique}, total real, paid text)")
    return connection


def process(database: sqlite3.Connection, orders: list[Message]) -> None:
    with database:
        for order in orders:
            content = json.loads(order.value() or b"")
            total = content["amount"] * (2.5 if chosen("wrong-total", order) else 1.5)
            row = (content["order"].upper(), total, None)
            for _ in range(2 if chosen("no-key", order) else 1):
                database.execute("insert or ignore into invoices values (?, ?, ?)", row)
    for order in orders:
        if not chosen("drops-calls", order):
            body = {"for": json.loads(order.value() or b"")["order"], "region": region(order)}
            call = urllib.request.Request(f"{CALLS}/invoices", json.dumps(body).encode(), method="POST")
            urllib.request.urlopen(call, timeout=10).close()


def region(order: Message) -> str:
    return next((str(value, "utf-8") for name, value in order.headers() or [] if name == "region"), "")


def chosen(mistake: str, order: Message) -> bool:
    return mistake in MISTAKES and zlib.crc32(order.value() or b"") % 50 == 0


def main() -> None:
    database = connected()
    settings = {"isolation.level": "read_committed", "enable.auto.commit": False, "session.timeout.ms": 6000}
    settings |= {"bootstrap.servers": os.environ["BOOTSTRAP"], "group.id": os.environ["GROUP"]}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "client.id": os.environ["INSTANCE"]})
    consumer.subscribe([os.environ["ORDERS"]])
    while running:
        orders = [message for message in consumer.consume(50, 0.2) if message.error() is None]
        if not orders:
            continue
        process(database, orders)
        ends = {order.partition(): order.offset() + 1 for order in orders}
        places = [TopicPartition(os.environ["ORDERS"], partition, end) for partition, end in ends.items()]
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except Exception as error:  # noqa: BLE001 - the next owner of the partition repeats the batch
            print("positions not committed:", error, flush=True)
            time.sleep(0.1)  # not a wait: a pause before the next attempt
    consumer.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: running.clear())
    main()
