"""confluent-kafka waits without a limit for a group coordinator that it has removed from its brokers.

librdkafka removes a broker when the metadata no longer contain it. It removes all brokers when it has lost
every connection and bootstraps again. The removed broker stays the cached coordinator of the group. The next
`send_offsets_to_transaction` waits for a connection to it that nothing opens (docs/transactions.md). The
frames show the same as the duration of the call: no request about the group follows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from harness.base.waits import wait_until
from harness.clients.scripted.client_libraries import ProducerConfig
from harness.clients.scripted.java_client import JavaClient
from harness.cluster.cluster import Cluster
from harness.faults import Down, Kill, Sever, inject
from harness.kafka.log.coordinator_log import OFFSETS_TOPIC
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from harness.tap.frame_lines import Frame, Line
from tests.hazards.conftest import CHANGED
from tests.tapped import Evidence, Frames
from tests.transactional.transactional_case import TransactionalCase
from tests.transactional.under_faults import lead

pytestmark = [pytest.mark.cluster, pytest.mark.timing, pytest.mark.soak]

LIMIT_S: Final = 10.0
"""Limit of each call, and the transaction time-out."""
PATIENCE_S: Final = 2 * LIMIT_S
Call = Future[float]


class Place:
    """A topic that broker 1 leads, and a group that it coordinates; broker 2 coordinates the transactions."""

    def __init__(self, case: TransactionalCase) -> None:
        self._case, self.cluster = case, case.cluster
        self.bootstrap = case.cluster.bootstrap("TAPPED")
        self.topic, self.group = case.topic("t", [[1, 2, 3]]), f"{case.name}-g"
        lead(case.cluster, OFFSETS_TOPIC, self.group, 1)

    def led_by_2(self, name: str) -> str:
        """Make broker 2 the coordinator of a transactional id, and return this id."""
        lead(self.cluster, TRANSACTION_TOPIC, full := f"{self._case.name}-{name}", 2)
        return full

    def wait_gone(self) -> None:
        """Wait until no metadata contain broker 1, and other brokers have its partition and its group."""

        def gone() -> bool:
            answers = [self.cluster.admin.metadata([self.topic], broker) for broker in (2, 3)]
            return all(1 not in each.brokers and each.partitions[0].leader in (2, 3) for each in answers)

        wait_until(gone, 30, "broker 1 to be gone from the metadata")
        wait_until(lambda: self.cluster.group_coordinator(self.group) in (2, 3), 30, "a new coordinator")


@pytest.fixture
def place(case: TransactionalCase) -> Place:
    """Return the topic, the group and the coordinators of a test."""
    return Place(case)


class Application:
    """A transactional producer of confluent-kafka with default settings, which commits a group's position."""

    def __init__(self, place: Place, name: str, **settings: Any) -> None:
        self.name, self._topic, self._errors = place.led_by_2(name), place.topic, list[int]()
        common = {"bootstrap.servers": place.bootstrap, "log_level": 0}
        limits = {"transactional.id": self.name, "transaction.timeout.ms": int(LIMIT_S * 1000)}
        changed = {key.replace("_", "."): value for key, value in settings.items()}
        self._producer = Producer(
            {**common, **limits, **changed, "client.id": self.name, "error_cb": self._on_error}
        )
        self._member = Consumer({**common, "group.id": place.group})
        self._producer.init_transactions(LIMIT_S)

    def _on_error(self, error: KafkaError) -> None:
        self._errors.append(error.code())

    def lost_all_brokers(self) -> bool:
        self._producer.poll(0)
        return KafkaError._ALL_BROKERS_DOWN in self._errors

    def reconnect(self) -> None:
        self._producer.list_topics(timeout=30)

    def begin(self) -> None:
        """Begin a transaction, and write a record, which is acknowledged."""
        self._producer.begin_transaction()
        self._producer.produce(self._topic, b"output", partition=0)
        assert self._producer.flush(LIMIT_S) == 0

    def send_position(self) -> None:
        positions, member = [TopicPartition(self._topic, 0, 0)], self._member.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(positions, member, LIMIT_S)

    def commit(self) -> None:
        self._producer.commit_transaction(LIMIT_S)

    def whole(self) -> float | None:
        """Make a whole transaction, and return the seconds that its positions took."""
        self.begin()
        took = seconds(started(self.send_position), LIMIT_S)
        self.commit()
        return took


def started(call: Callable[[], None]) -> Call:
    """Make a call in a thread. The result of the future is the number of seconds that the call took."""
    future: Call = Future()

    def run() -> None:
        since = time.monotonic()
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - who reads the result gets it
            future.set_exception(error)
        else:
            future.set_result(round(time.monotonic() - since, 3))

    threading.Thread(target=run, daemon=True).start()
    return future


def seconds(call: Call, limit: float) -> float | None:
    """Return how long a call took, or None if it has not returned within the limit."""
    try:
        return call.result(limit)
    except TimeoutError:
        return None


def set_free(cluster: Cluster, call: Call) -> str:
    """Cut connections until a call returns, and return its error."""

    def returned() -> bool:
        with inject(cluster, Sever(), "all"):
            return call.done()

    wait_until(returned, 60, "the call to return", every=2.0)
    return repr(call.exception())


def after_positions(log: Sequence[Line], name: str) -> list[str]:
    """Return the requests about its group that a client has sent after its last AddOffsetsToTxn."""
    sent = [
        line for line in log if isinstance(line, Frame) and (line.side, line.client_id) == ("request", name)
    ]
    since = max(number for number, frame in enumerate(sent) if frame.api == "AddOffsetsToTxn")
    return [frame.api for frame in sent[since + 1 :] if frame.facts is not None and frame.facts.group]


def test_a_killed_group_coordinator_is_awaited_without_a_limit(
    place: Place, frames: Frames, evidence: Evidence
) -> None:
    application, fresh = Application(place, "a"), Application(place, "b")
    before = application.whole()
    with inject(place.cluster, Kill(), "kafka-1"):
        place.wait_gone()
        application.begin()  # the record goes to the new leader, so the client has the new metadata
        call = started(application.send_position)
        control = fresh.whole()  # it has not sent positions before, so it has no coordinator in its cache
        waited = seconds(call, PATIENCE_S)
    returned_later, sent = call.done(), after_positions(frames(), application.name)
    error = set_free(place.cluster, call)
    freed = after_positions(frames(), application.name)
    evidence(before=before, control=control, waited=waited, sent=sent, freed=freed, error=error)

    assert before is not None
    assert control is not None
    assert waited is None, CHANGED
    assert not returned_later, f"the broker was back: {CHANGED}"
    assert sent == [], CHANGED
    assert freed[:1] == ["FindCoordinator"], CHANGED


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
def test_a_client_that_bootstraps_again_waits_for_its_old_group_coordinator(
    place: Place, frames: Frames, evidence: Evidence, strategy: str
) -> None:
    """No broker fails here. Only with the default strategy is the coordinator removed."""
    application = Application(place, "a", metadata_recovery_strategy=strategy)
    before = application.whole()
    with inject(place.cluster, Down(), "all"):
        wait_until(application.lost_all_brokers, 30, "the client to lose all brokers")
    application.reconnect()
    application.begin()
    call = started(application.send_position)
    waited = seconds(call, PATIENCE_S)
    sent = after_positions(frames(), application.name)
    error = set_free(place.cluster, call)
    evidence(before=before, waited=waited, sent=sent, error=error)

    assert before is not None
    if strategy == "none":
        assert waited is not None, CHANGED
        assert sent[-1:] == ["TxnOffsetCommit"], CHANGED
    else:
        assert waited is None, CHANGED
        assert sent == [], CHANGED


@pytest.mark.jdk
def test_the_java_client_finds_the_new_group_coordinator(place: Place, evidence: Evidence) -> None:
    name = place.led_by_2("j")
    client = JavaClient(ProducerConfig(place.bootstrap, name, name, int(LIMIT_S * 1000)))

    def whole() -> float:
        client.begin()
        client.send(place.topic, 0, [b"output"])
        since = time.monotonic()
        client.send_offset((place.topic, 0), 0, place.group, None)
        took = round(time.monotonic() - since, 3)
        client.end("commit")
        return took

    client.init()
    before = whole()
    with inject(place.cluster, Kill(), "kafka-1"):
        place.wait_gone()
        took = whole()
    client.close()
    evidence(before=before, took=took)

    assert took < PATIENCE_S, CHANGED
