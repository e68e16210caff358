"""A toy application with one switch for each mistake: it bills large orders and adds up all orders.

In one transaction it writes an invoice for each order above 100, the new totals of the order's customer, and
its positions. Totals are its state. It reads them back when it gets a partition, and after an abort. It
aborts some transactions by itself, always the same ones, so that every run has aborts.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

MISTAKES = os.environ.get("MISTAKE", "").split()
SERVERS, GROUP, INSTANCE = (os.environ[name] for name in ("BOOTSTRAP", "GROUP", "INSTANCE"))
ORDERS, INVOICES, TOTALS, STATE = (os.environ[name] for name in ("ORDERS", "INVOICES", "TOTALS", "STATE"))
COMMON = {"bootstrap.servers": SERVERS, "client.id": INSTANCE, "socket.timeout.ms": 5000}
COMMITTED = {**COMMON, "group.id": GROUP, "enable.auto.commit": False, "isolation.level": "read_committed"}
TRANSACTIONAL_ID = os.environ["TRANSACTIONAL_ID"]
TRANSACTION_MS = int(os.environ.get("TRANSACTION_MS", "10000"))
FIRST_ABORT, ABORT_EVERY = 5, 20
"""The first transaction of a process that it aborts by itself, and the number of transactions to the next."""
running = [True]


class Toy:
    def __init__(self) -> None:
        self.state: dict[int, dict[int, list[int]]] = {}
        self.transactions = 0
        settings = {"transactional.id": TRANSACTIONAL_ID, "transaction.timeout.ms": TRANSACTION_MS}
        self.producer = Producer(COMMON | settings)
        self.outside = Producer(COMMON | {"message.timeout.ms": 300})
        self.consumer = Consumer(COMMITTED | {"auto.offset.reset": "earliest", "session.timeout.ms": 6000})
        self.stranger = Consumer(COMMITTED)  # of the same group, but not a member
        self.producer.init_transactions(60)
        self.consumer.subscribe([ORDERS], on_assign=self.assigned)

    def assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        consumer.committed(places, timeout=30)  # waits until no transaction has pending positions
        self.state = {place.partition: self.restored(place.partition) for place in places}

    def restored(self, partition: int) -> dict[int, list[int]]:
        """Return the totals in one partition, when no transaction is open there."""
        file = Path(STATE) / f"totals-{partition}.json"
        if "state-not-restored" in MISTAKES:
            return {}
        if "counts-twice" in MISTAKES and file.exists():
            return {int(key): total for key, total in json.loads(file.read_text()).items()}
        totals: dict[int, list[int]] = {}
        place = TopicPartition(TOTALS, partition, 0)
        ends, reader = Consumer({**COMMITTED, "isolation.level": "read_uncommitted"}), Consumer(COMMITTED)
        _, end = ends.get_watermark_offsets(place, timeout=30)
        reader.assign([place])
        while end and reader.position([place])[0].offset < end:
            for message in reader.consume(500, 0.2):
                if message.error() is None:
                    total = json.loads(message.value() or b"")
                    totals[total["customer"]] = [total["n"], total["sum"]]
        ends.close()
        reader.close()
        return totals

    def write(self, producer: Producer, orders: list[Message]) -> None:
        for order in orders:
            content: dict[str, Any] = json.loads(order.value() or b"")
            if content["amount"] > (300 if "filter-too-wide" in MISTAKES else 100):
                number = "unknown" if "id-dropped" in MISTAKES else content["order"]
                invoice = json.dumps({"for": number, "total": content["amount"] * 1.5})
                producer.produce(INVOICES, invoice, order.key())
            total = self.state[order.partition()].setdefault(content["customer"], [0, 0])
            total[:] = total[0] + 1, total[1] + content["amount"]
            written = json.dumps({"customer": content["customer"], "n": total[0], "sum": total[1]})
            self.producer.produce(TOTALS, written, order.key(), order.partition())

    def send_positions(self, positions: list[TopicPartition], member: Consumer) -> None:
        faulthandler.dump_traceback_later(40, exit=True)  # the call may ignore its limit and hang
        try:
            self.producer.send_offsets_to_transaction(positions, member.consumer_group_metadata(), 30)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def process(self, orders: list[Message]) -> None:
        ends = {order.partition(): order.offset() + 1 for order in orders}
        positions = [TopicPartition(ORDERS, partition, end) for partition, end in ends.items()]
        if "positions-first" in MISTAKES:
            self.consumer.commit(offsets=positions, asynchronous=False)
        self.producer.begin_transaction()
        self.transactions += 1
        try:
            outside = "outside" in MISTAKES or "swallows-errors" in MISTAKES
            self.write(self.outside if outside else self.producer, orders)
            self.outside.flush(5)  # without a look at the errors of single records
            if "sends-again" in MISTAKES and self.producer.flush(0.005):
                self.write(self.producer, [])
                for order in orders[:1]:
                    content = json.loads(order.value() or b"")
                    self.producer.produce(INVOICES, json.dumps({"for": content["order"], "total": 0}))
            time.sleep(0.05)  # not a wait: the work of a real application
            if "counts-twice" in MISTAKES:
                for partition, totals in self.state.items():
                    (Path(STATE) / f"totals-{partition}.json").write_text(json.dumps(totals))
            member = self.stranger if "no-metadata" in MISTAKES else self.consumer
            if "positions-first" not in MISTAKES:
                self.send_positions(positions, member)
            if self.transactions % ABORT_EVERY != FIRST_ABORT:
                self.producer.commit_transaction(30)
                return
        except KafkaException as error:
            print("aborting:", error, flush=True)
            if not error.args[0].txn_requires_abort():
                raise  # fenced, or unclear: the supervisor starts this instance again
        self.producer.abort_transaction(30)
        if "no-rewind" not in MISTAKES:
            assigned = self.consumer.assignment()
            for place in self.consumer.committed(assigned, timeout=30):
                self.consumer.seek(TopicPartition(place.topic, place.partition, max(0, place.offset)))
            self.assigned(self.consumer, assigned)

    def run(self) -> None:
        while running:
            orders = [message for message in self.consumer.consume(50, 0.2) if message.error() is None]
            if orders:
                self.process(orders)
        self.consumer.close()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: running.clear())
    Toy().run()
