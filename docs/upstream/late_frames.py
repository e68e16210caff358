"""Show a hazard of a late request, or of a lost answer, on a single broker: the program of these reports.

It needs Python, confluent-kafka 2.16.1 and a broker that advertises two ports of this program:

    process.roles=broker,controller
    node.id=1
    controller.quorum.voters=1@localhost:9093
    listeners=CLIENT://localhost:9092,INTERNAL://localhost:9094,CONTROLLER://localhost:9093
    advertised.listeners=CLIENT://localhost:19092,INTERNAL://localhost:19094
    listener.security.protocol.map=CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT
    inter.broker.listener.name=INTERNAL
    controller.listener.names=CONTROLLER
    offsets.topic.replication.factor=1
    transaction.state.log.replication.factor=1
    transaction.state.log.min.isr=1
    log.dirs=/tmp/late-frames

    python late_frames.py marker | offsets | partitions | sequence

The clients and the broker itself reach the broker through this program. All bytes pass unchanged. One request
is held, and the connection on which it came is cut, so that its sender repeats it on a new one; or one answer
is lost.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import sys
import threading
import time
import uuid
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PRODUCE, ADD_PARTITIONS, MARKERS, TXN_OFFSET_COMMIT = 0, 24, 27, 28  # API keys
RELAYS = {19092: 9092, 19094: 9094}
BOOTSTRAP = "localhost:19092"
LIMIT_S = 60
STATES = "__transaction_state"
STATE_AT = 16  # the byte of the state in a record of this topic, after version, id, epoch and time-out
COMPLETE_COMMIT, COMPLETE_ABORT = 4, 5
TOPIC = GROUP = f"t-{uuid.uuid4().hex[:8]}"


class Relay:
    """Forwards connections. It can hold the next request of an API, or lose the next answer to it."""

    def __init__(self) -> None:
        self.hold: int | None = None
        self.lose: int | None = None
        self.acted = threading.Event()
        self.late: tuple[Connection, bytes] | None = None
        for port, broker_port in RELAYS.items():
            server = socket.create_server(("localhost", port))
            threading.Thread(target=self._accept, args=(server, broker_port), daemon=True).start()

    def _accept(self, server: socket.socket, port: int) -> None:
        while True:
            client = server.accept()[0]
            try:
                upstream = socket.create_connection(("localhost", port))
            except OSError:  # the broker does not listen yet
                client.close()
            else:
                Connection(self, client, upstream)

    def wait(self) -> None:
        """Wait until a request is held, or an answer is lost."""
        if not self.acted.wait(LIMIT_S):
            raise SystemExit("no such request was sent")

    def release(self) -> None:
        """Send the held request to the broker, and print the broker's answer."""
        self.wait()
        assert self.late is not None
        connection, frame = self.late
        connection.upstream.sendall(frame)
        print("the broker answers the late request:", connection.answer.get(timeout=LIMIT_S).hex())


class Connection:
    """A connection of a client, and that of the relay to the broker."""

    def __init__(self, relay: Relay, client: socket.socket, upstream: socket.socket) -> None:
        self.client, self.upstream = client, upstream
        self.answer: queue.Queue[bytes] = queue.Queue()
        self._relay = relay
        self._api = -1
        self._holding = False
        for forward in (self._forward_requests, self._forward_answers):
            threading.Thread(target=forward, daemon=True).start()

    def _forward_requests(self) -> None:
        while frame := read_frame(self.client):
            self._api = struct.unpack_from(">h", frame, 4)[0]
            if self._api == self._relay.hold:
                self._relay.hold = None
                self._holding = True
                self._relay.late = self, frame
                cut(self.client)
                self._relay.acted.set()
                return
            self.upstream.sendall(frame)
        cut(self.upstream)

    def _forward_answers(self) -> None:
        while data := receive(self.upstream, 1 << 16):
            if self._holding:
                self.answer.put(data)
                continue
            if self._api == self._relay.lose:
                self._relay.lose = None
                self._relay.acted.set()
                break
            try:
                self.client.sendall(data)
            except OSError:
                break
        cut(self.client)


def receive(connection: socket.socket, size: int) -> bytes:
    try:
        return connection.recv(size)
    except OSError:
        return b""


def read_frame(connection: socket.socket) -> bytes:
    """Return a request with its size; b"" at the end of the connection."""
    frame, missing = b"", 4
    while data := receive(connection, missing):
        frame += data
        if len(frame) < 4:
            missing = 4 - len(frame)
        elif (missing := 4 + struct.unpack_from(">i", frame)[0] - len(frame)) == 0:
            return frame
    return b""


def cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def make_producer(timeout_ms: int = 60_000) -> Any:
    settings = {
        "bootstrap.servers": BOOTSTRAP,
        "transactional.id": TOPIC,
        "transaction.timeout.ms": timeout_ms,
    }
    producer = Producer(settings)
    producer.init_transactions(LIMIT_S)
    return producer


def send(producer: Any, value: str) -> None:
    def report(error: Any, message: Any) -> None:
        print(f"{value}: {error or f'acknowledged at offset {message.offset()}'}")

    producer.produce(TOPIC, value, partition=0, on_delivery=report)


def marker(relay: Relay) -> None:
    """A late marker (WriteTxnMarkers) of A ends the records of B."""
    producer = make_producer()
    producer.begin_transaction()
    send(producer, "A")
    producer.flush(LIMIT_S)
    relay.hold = MARKERS
    producer.abort_transaction(LIMIT_S)
    relay.wait()
    producer.begin_transaction()
    send(producer, "B")
    producer.flush(LIMIT_S)
    relay.release()
    producer.commit_transaction(LIMIT_S)
    wait_state(COMPLETE_COMMIT)
    print("B is committed. A read_committed reader reads", read(), "and should read ['B']")


def offsets(relay: Relay) -> None:
    """A late position (TxnOffsetCommit) of A replaces that of B."""
    member = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": GROUP, "enable.auto.commit": False})
    member.subscribe([TOPIC])
    while not member.assignment():
        member.poll(0.1)
    producer, group = make_producer(), member.consumer_group_metadata()
    relay.hold = TXN_OFFSET_COMMIT
    for position in (1, 4):
        producer.begin_transaction()
        producer.send_offsets_to_transaction([TopicPartition(TOPIC, 0, position)], group, LIMIT_S)
        if position == 4:
            relay.release()
        producer.commit_transaction(LIMIT_S)
    (committed,) = member.committed([TopicPartition(TOPIC, 0)], LIMIT_S)
    print(f"B is committed. The group is at {committed.offset}, and should be at 4")


def partitions(relay: Relay) -> None:
    """A late AddPartitionsToTxn of A opens a transaction, whose time-out fences the producer."""
    producer = make_producer(timeout_ms=3000)
    relay.hold = ADD_PARTITIONS
    producer.begin_transaction()
    send(producer, "A")
    producer.commit_transaction(LIMIT_S)
    wait_state(COMPLETE_COMMIT)  # the coordinator refuses requests before A is complete
    relay.release()
    with contextlib.suppress(TimeoutError):  # no transaction times out if the late request is refused
        wait_state(COMPLETE_ABORT)
    try:
        producer.begin_transaction()
        send(producer, "B")
        producer.commit_transaction(LIMIT_S)
        print("B is committed, as it should be")
    except KafkaException as error:
        print(f"B fails, although no other producer has its transactional.id: {error.args[0]}")


def sequence(relay: Relay) -> None:
    """An abort without an answer gives the sequence of A to B, and B is lost."""
    producer = make_producer()
    producer.begin_transaction()
    send(producer, "S")
    producer.commit_transaction(LIMIT_S)
    relay.lose = PRODUCE
    producer.begin_transaction()
    send(producer, "A")
    producer.poll(0)
    relay.wait()
    producer.abort_transaction(LIMIT_S)
    producer.begin_transaction()
    send(producer, "B")
    producer.commit_transaction(LIMIT_S)
    wait_state(COMPLETE_COMMIT, times=2)  # S and B
    print("B is committed. A read_committed reader reads", read(), "and should read ['S', 'B']")


def wait_state(state: int, times: int = 1) -> None:
    """Wait until the coordinator has logged this state of the transactional id as often as given."""
    reader = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": GROUP, "enable.auto.commit": False})
    partitions = reader.list_topics(STATES, LIMIT_S).topics[STATES].partitions
    reader.assign([TopicPartition(STATES, partition, 0) for partition in partitions])
    limit = time.monotonic() + LIMIT_S
    while times and time.monotonic() < limit:
        message = reader.poll(1)
        key, value = (message.key(), message.value()) if message and not message.error() else (None, None)
        times -= bool(key and value and TOPIC.encode() in key and value[STATE_AT] == state)
    reader.close()
    if times:
        raise TimeoutError(f"the coordinator did not log state {state}")


def read() -> list[str]:
    """Return the records that a read_committed reader gets."""
    settings = {"bootstrap.servers": BOOTSTRAP, "group.id": GROUP, "enable.partition.eof": True}
    reader = Consumer(settings)
    reader.assign([TopicPartition(TOPIC, 0, 0)])
    values = []
    while (message := reader.poll(LIMIT_S)) is not None and message.error() is None:
        values.append(message.value().decode())
    reader.close()
    return values


HAZARDS = {hazard.__name__: hazard for hazard in (marker, offsets, partitions, sequence)}


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1] not in HAZARDS:
        raise SystemExit(f"usage: python late_frames.py {' | '.join(HAZARDS)}")
    relay = Relay()
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    admin.create_topics([NewTopic(TOPIC, 1, 1)], operation_timeout=LIMIT_S)[TOPIC].result(LIMIT_S)
    HAZARDS[sys.argv[1]](relay)


if __name__ == "__main__":
    main()
