"""Consume, transform and produce with aiokafka: one invoice for each order, in transactions.

The loop is the one of aiokafka's documentation: a batch of orders, its invoices and the new positions of the
group are one transaction. After an error the program ends, and is started again.

ABORT_SHARE is the share of transactions that the program aborts by itself, as one with a failing database
would.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

ENV = os.environ
GROUP = ENV["GROUP"]


def invoice(order: bytes) -> bytes:
    content = json.loads(order)
    return json.dumps({"invoice_for": content["order"], "total": content["amount"] * 2}).encode()


async def process(producer: AIOKafkaProducer, batches: dict[Any, list[Any]]) -> bool:
    """Process a batch in one transaction. Return whether it was committed."""
    await producer.begin_transaction()
    for orders in batches.values():
        for order in orders:
            await producer.send(ENV["INVOICES"], invoice(order.value), order.key)
    positions = {place: orders[-1].offset + 1 for place, orders in batches.items()}
    await producer.send_offsets_to_transaction(positions, GROUP)
    if random.random() < float(ENV["ABORT_SHARE"]):
        await producer.abort_transaction()
        return False
    await producer.commit_transaction()
    return True


async def main() -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    common = {"bootstrap_servers": ENV["BOOTSTRAP"], "client_id": ENV["INSTANCE"]}
    consumer = AIOKafkaConsumer(
        ENV["ORDERS"],
        group_id=GROUP,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
        **common,
    )
    producer = AIOKafkaProducer(
        transactional_id=ENV["TRANSACTIONAL_ID"],
        transaction_timeout_ms=int(ENV["TRANSACTION_TIMEOUT_MS"]),
        **common,
    )
    await consumer.start()
    await producer.start()
    print("started", flush=True)
    while not stopped.is_set():
        batches = await consumer.getmany(timeout_ms=200, max_records=50)
        if batches and not await process(producer, batches):
            for place, orders in batches.items():
                consumer.seek(place, orders[0].offset)
    await producer.stop()
    await consumer.stop()


asyncio.run(main())
