"""Program that drives a Python client library by lines; its argument is the library.

docs/matrix.md describes the commands. The answer to each is `ok`, `error NAME MESSAGE` or
`unsupported MESSAGE`.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple

from harness.base.partition_id import PartitionId
from harness.base.waits import wait_until
from harness.clients.scripted.client_libraries import (
    CALL_S,
    LIBRARIES,
    LibraryClient,
    OffsetClient,
    ProducerConfig,
    RefusedCallError,
)
from harness.walkthroughs.matrix.driver import UnsupportedCallError

JOIN_LIMIT_S: Final = 30.0
POLL_MS: Final = 5000
"""Longer than a join takes: kafka-python 3.0.12 loses its assignment if a poll ends during SyncGroup."""
AIOKAFKA: Final = "aiokafka"


class Membership(NamedTuple):
    """The group metadata that a consumer had when it joined. It does not change when the consumer leaves."""

    metadata: Any
    leave: Callable[[], None]

    def consumer_group_metadata(self) -> Any:
        """Return the metadata, as a consumer of confluent-kafka does."""
        return self.metadata


class AioKafkaClient:
    """Producer of aiokafka, which runs in an event loop of its own thread."""

    def __init__(self, config: ProducerConfig) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True).start()
        self._config = config
        self._producer: Any = None

    def init(self) -> None:
        self._wait(self._open())

    def begin(self) -> None:
        self._wait(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        self._wait(self._send(topic, partition, values))

    def send_offset(self, partition_id: PartitionId, offset: int, group: str, member: Any) -> None:
        from aiokafka import TopicPartition

        if member is not None:
            raise UnsupportedCallError("send_offsets_to_transaction of aiokafka takes no group metadata")
        positions = {TopicPartition(*partition_id): offset}
        self._wait(self._producer.send_offsets_to_transaction(positions, group))

    def end(self, how: str) -> None:
        producer = self._producer
        self._wait(producer.commit_transaction() if how == "commit" else producer.abort_transaction())

    def close(self) -> None:
        self._wait(self._producer.stop())

    async def _open(self) -> None:
        from aiokafka import AIOKafkaProducer

        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._config.bootstrap,
            transactional_id=self._config.transactional_id,
            client_id=self._config.client_id,
            transaction_timeout_ms=self._config.timeout_ms,
        )
        await self._producer.start()

    async def _send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        acks = [await self._producer.send(topic, value, partition=partition) for value in values]
        for ack in acks:
            await ack

    def _wait(self, call: Coroutine[Any, Any, Any]) -> None:
        from aiokafka.errors import KafkaError

        try:
            asyncio.run_coroutine_threadsafe(call, self._loop).result(CALL_S)
        except KafkaError as error:
            raise RefusedCallError(type(error).__name__, str(error), getattr(error, "errno", -1)) from error


LIBRARIES[AIOKAFKA] = AioKafkaClient


def join_confluent(bootstrap: str, group: str, topic: str) -> Membership:
    """Join a group with confluent-kafka, and wait for an assignment."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    )
    consumer.subscribe([topic])
    wait_until(lambda: (consumer.poll(0.1), consumer.assignment())[1], JOIN_LIMIT_S, "an assignment")
    return Membership(consumer.consumer_group_metadata(), consumer.close)


def join_kafka_python(bootstrap: str, group: str, topic: str) -> Membership:
    """Join a group with kafka-python, and wait for an assignment."""
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap.split(","), group_id=group, enable_auto_commit=False
    )
    wait_until(
        lambda: (consumer.poll(timeout_ms=POLL_MS), consumer.assignment())[1], JOIN_LIMIT_S, "an assignment"
    )
    return Membership(consumer.group_metadata(), consumer.close)


JOIN: Final = {"confluent-kafka": join_confluent, "kafka-python": join_kafka_python}


class Program:
    """The producers and memberships of one process, by their names."""

    def __init__(self, library: str) -> None:
        self._library = library
        self._producers: dict[str, LibraryClient] = {}
        self._members: dict[str, Membership] = {}

    def carry_out(self, command: str, name: str, *words: str) -> None:
        """Carry out one command."""
        match command:
            case "open":
                bootstrap, transactional_id, client_id, timeout_ms = words
                config = ProducerConfig(bootstrap, transactional_id, client_id, int(timeout_ms))
                self._producers[name] = LIBRARIES[self._library](config)
            case "init" | "begin" | "close":
                getattr(self._producers[name], command)()
            case "commit" | "abort":
                self._producers[name].end(command)
            case "send":
                topic, partition, *values = words
                self._producers[name].send(topic, int(partition), [value.encode() for value in values])
            case "join":
                self._join(name, *words)
            case "leave":
                self._members[name].leave()
            case "offset":
                self._offset(name, *words)
            case _:
                raise UnsupportedCallError(f"there is no command {command}")

    def _join(self, name: str, bootstrap: str, group: str, topic: str) -> None:
        if self._library not in JOIN:
            raise UnsupportedCallError(f"transactions of {self._library} take no group metadata")
        self._members[name] = JOIN[self._library](bootstrap, group, topic)

    def _offset(self, name: str, *words: str) -> None:
        group, topic, partition, offset, *member = words
        client = self._producers[name]
        assert isinstance(client, OffsetClient)
        membership = self._members[member[0]] if member else None
        client.send_offset((topic, int(partition)), int(offset), group, membership)


def main(library: str) -> None:
    """Carry out the commands of standard input, and print the answer to each."""
    program = Program(library)
    print("ok", flush=True)
    for line in sys.stdin:
        try:
            program.carry_out(*line.split())
            answer = "ok"
        except UnsupportedCallError as unsupported:
            answer = f"unsupported {unsupported}"
        except RefusedCallError as refused:
            answer = f"error {refused.name} {refused.error.message}"
        except Exception as failure:  # noqa: BLE001 - the answer is the error, whatever it is
            answer = f"error {type(failure).__name__} {failure}"
        print(answer.replace("\n", " "), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
