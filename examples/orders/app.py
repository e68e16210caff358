"""An example application: it reads orders and writes one invoice for each, exactly once.

It is one loop with confluent-kafka: read a batch, write its invoices and the new positions of the group in
one transaction, commit. After an aborted transaction it goes back to the committed positions.

The variable MISTAKE selects one wrong line, which `eos run` then finds:

    no-rewind                 it does not go back after an aborted transaction
    positions-first           it commits its positions before it writes the invoices
    output-outside            it writes the invoices without the transaction
    reads-uncommitted         it processes orders of aborted transactions
    drops-orders              it forgets one order in 200
    sends-twice               it writes one invoice in 200 a second time
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import zlib

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

MISTAKE = os.environ.get("MISTAKE", "")
SERVERS, GROUP = os.environ["BOOTSTRAP"], os.environ["GROUP"]
ORDERS, INVOICES, INSTANCE = os.environ["ORDERS"], os.environ["INVOICES"], os.environ["INSTANCE"]
ABORTED = float(os.environ.get("ABORT_SHARE", "0.05"))
"""Share of transactions that the application aborts by itself, as one with a failing database would."""
LIMIT_S, HANGS_S = 10, float(os.environ.get("HANGS_S", "20"))
"""Limit of a call, and the time after which a call that ignores its limit ends the process."""

stopped: list[int] = []


def stop(number: int, _: object) -> None:
    stopped.append(number)


def invoice(order: Message) -> bytes:
    """Return the invoice for an order."""
    content = json.loads(order.value())
    return json.dumps({"invoice_for": content["order"], "total": content["amount"] * 1.2}).encode()


def write(producer: Producer, orders: list[Message]) -> None:
    for order in orders:
        number = zlib.crc32(order.value()) % 200
        if MISTAKE == "drops-orders" and number == 0:
            continue
        for _ in range(2 if MISTAKE == "sends-twice" and number == 0 else 1):
            producer.produce(INVOICES, invoice(order), order.key())
            producer.poll(0)


def positions_after(orders: list[Message]) -> list[TopicPartition]:
    ends = {(order.topic(), order.partition()): order.offset() + 1 for order in orders}
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in ends.items()]


def send_positions(producer: Producer, positions: list[TopicPartition], consumer: Consumer) -> None:
    """Add the positions to the transaction.

    When the group coordinator fails, librdkafka 2.16 may ignore the limit of this call. A process that hangs
    in it does not react to SIGTERM. So it ends itself, and its supervisor starts it again.
    """
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    try:
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), LIMIT_S)
    finally:
        faulthandler.cancel_dump_traceback_later()


def rewind(consumer: Consumer) -> None:
    """Go back to the committed positions, so that the orders of an aborted transaction are read again."""
    for place in consumer.committed(consumer.assignment(), timeout=30):
        consumer.seek(TopicPartition(place.topic, place.partition, max(0, place.offset)))


def process(consumer: Consumer, producer: Producer, outside: Producer, orders: list[Message]) -> None:
    """Process a batch of orders in one transaction."""
    positions = positions_after(orders)
    if MISTAKE == "positions-first":
        consumer.commit(offsets=positions, asynchronous=False)
    producer.begin_transaction()
    try:
        write(outside if MISTAKE == "output-outside" else producer, orders)
        outside.flush(30)
        if MISTAKE != "positions-first":
            send_positions(producer, positions, consumer)
        if random.random() >= ABORTED:
            producer.commit_transaction(30)
            return
        print("aborting: the database refused", flush=True)
    except KafkaException as error:
        print("aborting:", error, flush=True)
        if not error.args[0].txn_requires_abort():
            raise  # fenced, or unclear: the supervisor starts this instance again
    producer.abort_transaction(30)
    if MISTAKE != "no-rewind":
        rewind(consumer)


def main() -> None:
    common = {"bootstrap.servers": SERVERS, "client.id": INSTANCE, "socket.timeout.ms": 5000}
    # A delivery time-out below the transaction time-out lets the application abort before the coordinator.
    timeouts = {"transaction.timeout.ms": 10_000, "message.timeout.ms": 8000}
    producer = Producer({**common, **timeouts, "transactional.id": f"{GROUP}-{INSTANCE}"})
    outside = Producer(common)
    producer.init_transactions(60)
    isolation = "read_uncommitted" if MISTAKE == "reads-uncommitted" else "read_committed"
    consumer = Consumer(
        {
            **common,
            "group.id": GROUP,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
        }
    )
    consumer.subscribe([ORDERS])
    print("started", INSTANCE, MISTAKE, flush=True)
    while not stopped:
        messages = [message for message in consumer.consume(50, 0.2) if message.error() is None]
        if messages:
            process(consumer, producer, outside, messages)
    consumer.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, stop)
    sys.exit(main())
