"""The wire tap in front of real brokers: bytes pass unchanged, frame faults take effect, clients react."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from harness.base.errors import NoBiteError
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import HOST
from harness.faults import (
    ArmedFrameFault,
    CutAfterFrame,
    DelayFrame,
    DuplicateFrame,
    HoldFrame,
    Jitter,
    LoseRequestFrame,
    LoseResponseFrame,
    arm,
    inject,
)
from harness.faults.heal import heal
from harness.faults.intents import unhealed
from harness.kafka.connection import RawConnection, answers
from harness.kafka.transactions import describe_transactions
from harness.report.diagram import diagram_file
from harness.report.diagram.sequence import SequenceFilter
from harness.tap import frame_lines
from harness.tap.coordinator_entries import collect, read
from harness.tap.tap_client import Tap, ensure_tap, find_tap, stop_tap
from tests.frame_log_builder import logged

pytestmark = pytest.mark.cluster

COUNT = 2000  # number of records that the pipeline processes
_names = itertools.count(1)


@pytest.fixture
def tap(cluster: Cluster) -> Iterator[Tap]:
    """Yield the tap of the cluster; at the end, wait until its connections are closed."""
    yield ensure_tap(cluster)
    wait_until(
        lambda: ensure_tap(cluster).status().open_connections == 0,
        15,
        "every connection of the tap to be closed",
    )


@pytest.fixture
def frames(tap: Tap, tmp_path: Path) -> Iterator[Callable[[], list[frame_lines.Line]]]:
    """Yield a function that returns the frame log lines of one test."""
    with logged(tap, tmp_path) as read:
        yield read


@contextmanager
def producer(cluster: Cluster, **settings: Any) -> Iterator[Producer]:
    """Yield a producer on the TAPPED listener with short back-offs, closed at the end of the block."""
    made = Producer(
        {
            "bootstrap.servers": cluster.bootstrap("TAPPED"),
            "enable.idempotence": True,
            "linger.ms": 0,
            "client.id": f"p{next(_names)}",
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 100,
            "log_level": 2,
        }
        | settings
    )
    yield made
    made.flush(10)
    made.close()


def send(made: Producer, topic: str, value: bytes, partition: int = 0) -> int:
    """Send one record, wait for its acknowledgement, and return its offset."""
    deliveries: list[tuple[Any, int]] = []
    made.produce(
        topic, value, partition=partition, on_delivery=lambda error, m: deliveries.append((error, m.offset()))
    )
    assert made.flush(20) == 0
    assert deliveries[0][0] is None
    return deliveries[0][1]


def read_all(cluster: Cluster, topic: str) -> dict[int, list[bytes]]:
    """Return every record of a topic by partition, read to the end over the DIRECT listener.

    First wait for the markers of ended transactions, which follow the answers to their producers.
    """
    wait_until(
        lambda: all(end.last_stable == end.high_watermark for end in cluster.end_offsets(topic).values()),
        20,
        f"the last markers in {topic}",
    )
    reader = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap("DIRECT"),
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    values: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    ended: set[int] = set()
    reader.assign([TopicPartition(topic, p, 0) for p in values])
    deadline = time.monotonic() + 20
    while len(ended) < 3 and time.monotonic() < deadline:
        message = reader.poll(1.0)
        if message is not None and message.error():
            ended.add(message.partition())
        elif message is not None:
            values[message.partition()].append(message.value())
    reader.close()
    assert len(ended) == 3
    return values


def produces(log: list[frame_lines.Line], side: str = "request") -> list[frame_lines.Frame]:
    return [x for x in log if isinstance(x, frame_lines.Frame) and x.api == "Produce" and x.side == side]


# Tests of records that pass through the tap


def pipeline(cluster: Cluster, listener: str, source: str, sink: str, count: int) -> None:
    """Consume, transform and produce `count` records, in transactions of up to 100 records."""
    settings = {"bootstrap.servers": cluster.bootstrap(listener), "client.id": f"ctp-{listener}"}
    consumer = Consumer(
        settings
        | {"group.id": f"ctp-{sink}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        | {"isolation.level": "read_committed"}
    )
    out = Producer(settings | {"transactional.id": f"ctp-{sink}", "linger.ms": 2})
    out.init_transactions(20)
    consumer.subscribe([source])
    done = 0
    while done < count:
        batch = [m for m in consumer.consume(100, 1.0) if not m.error()]
        if not batch:
            continue
        out.begin_transaction()
        for message in batch:
            out.produce(sink, message.value()[::-1], partition=message.partition())
        positions = consumer.position(consumer.assignment())
        out.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 20)
        out.commit_transaction(20)
        done += len(batch)
    consumer.close()
    out.close()


def test_a_pipeline_through_the_tap_writes_the_same_records_and_the_accounts_balance(
    cluster: Cluster, topic: str, tap: Tap, frames: Callable[[], list[frame_lines.Line]]
) -> None:
    before = tap.status().stats
    with producer(cluster) as source:
        for number in range(COUNT):
            source.produce(topic, b"record %06d" % number, partition=number % 3)
    results = {}
    for listener in ("DIRECT", "TAPPED"):
        sink = f"{topic}-{listener}"
        cluster.create_topic(sink, 3)
        pipeline(cluster, listener, topic, sink, COUNT)
        results[listener] = read_all(cluster, sink)
        cluster.delete_topics([sink])

    assert results["TAPPED"] == results["DIRECT"]
    assert sum(map(len, results["TAPPED"].values())) == COUNT
    wait_until(lambda: tap.status().open_connections == 0, 15, "every connection to be closed")
    after = tap.status().stats
    for account in tap.accounts():
        assert (account.request.inside, account.response.inside) == (0, 0)
    assert after.request_bytes.taken == before.request_bytes.taken
    assert after.request_bytes.received > before.request_bytes.received + COUNT * 10
    for odd in ("malformed", "oversized", "truncated", "undecodable", "unmatched", "unaccounted"):
        assert after.odd.get(odd) == before.odd.get(odd)
    log = frames()
    decoded = [x for x in log if isinstance(x, frame_lines.Frame)]
    assert all(x.facts is not None for x in decoded)
    apis = {x.api for x in decoded}
    assert apis > {
        "InitProducerId",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "TxnOffsetCommit",
        "EndTxn",
        "Fetch",
    }
    batches = [b for x in produces(log) if x.facts for b in x.facts.batches if b.topic == f"{topic}-TAPPED"]
    # Count each base sequence once, because a client may retry a batch even without a fault.
    once = {(b.partition, b.base_sequence): b.count for b in batches}
    assert sum(once.values()) == COUNT
    assert all(b.transactional and b.producer_id >= 0 for b in batches)
    fetched = [x.facts for x in decoded if x.api == "Fetch" and x.facts]
    assert {f.isolation for f in fetched if f.isolation} == {"read_committed"}
    assert any((p.last_stable_offset or 0) > 0 for f in fetched for p in f.partitions)


def test_a_link_fault_hits_the_tap_too(cluster: Cluster, tap: Tap) -> None:  # noqa: ARG001
    with (
        inject(cluster, Jitter(latency_ms=100), "kafka-1"),
        RawConnection(HOST, cluster.ports.tapped(1), 5) as connection,
    ):
        start = time.monotonic()
        connection.send_api_versions()
        connection.read_frame()
        assert time.monotonic() - start >= 0.1


# Tests of each frame fault: its effect and the reaction of the client


@pytest.mark.parametrize(("idempotent", "records"), [(True, 1), (False, 2)], ids=["idempotent", "plain"])
def test_a_lost_answer_makes_a_duplicate_only_without_idempotence(
    cluster: Cluster, topic: str, frames: Callable[[], list[frame_lines.Line]], idempotent: bool, records: int
) -> None:
    with producer(cluster, **{"enable.idempotence": idempotent}) as client:
        first = send(client, topic, b"warm")
        with arm(cluster, LoseResponseFrame(api="Produce", topic=topic, partition=0)) as injection:
            offset = send(client, topic, b"once")
        assert injection.bite["hits"][0]["did"] == "lost"
    assert read_all(cluster, topic)[0] == [b"warm"] + [b"once"] * records
    assert offset == first + 1 if idempotent else offset == first + 2
    sent = [x.facts.batches[0].base_sequence for x in produces(frames()) if x.facts]
    assert sent == ([0, 1, 1] if idempotent else [-1, -1, -1])


def test_a_lost_request_is_retried_and_written_once(cluster: Cluster, topic: str) -> None:
    with producer(cluster, **{"enable.idempotence": False}) as client:
        with arm(cluster, LoseRequestFrame(api="Produce", topic=topic)) as injection:
            send(client, topic, b"once")
        assert injection.bite["matched"] == 1
    assert read_all(cluster, topic)[0] == [b"once"]


@pytest.mark.parametrize(("idempotent", "records"), [(True, 1), (False, 2)], ids=["idempotent", "plain"])
def test_a_frame_sent_twice_is_written_twice_only_without_idempotence(
    cluster: Cluster, topic: str, idempotent: bool, records: int
) -> None:
    with producer(cluster, **{"enable.idempotence": idempotent}) as client:
        with arm(cluster, DuplicateFrame(api="Produce", topic=topic)) as injection:
            send(client, topic, b"once")
            injection.wait("delivered")
        assert injection.bite["hits"][0]["answer"] == "NONE"  # the broker acknowledges a duplicate too
    assert read_all(cluster, topic)[0] == [b"once"] * records


def test_a_delayed_frame_makes_its_client_wait(cluster: Cluster, topic: str) -> None:
    with producer(cluster) as client:
        send(client, topic, b"warm")
        with arm(cluster, DelayFrame(api="Produce", topic=topic, delay_ms=500)) as injection:
            start = time.monotonic()
            send(client, topic, b"late")
            assert time.monotonic() - start >= 0.5
        hit = injection.bite["hits"][0]
        assert (hit["ended"] - hit["mono"]) / 1e9 >= 0.5


def test_a_request_before_a_cut_is_executed_and_the_client_retries_it(
    cluster: Cluster, topic: str, frames: Callable[[], list[frame_lines.Line]]
) -> None:
    with producer(cluster) as client:
        send(client, topic, b"warm")
        with arm(cluster, CutAfterFrame(api="Produce", topic=topic)):
            send(client, topic, b"once")
    assert read_all(cluster, topic)[0] == [b"warm", b"once"]
    log = frames()
    assert [x.facts.batches[0].base_sequence for x in produces(log) if x.facts] == [0, 1, 1]
    # The lost answer and the answer to the retry contain the same offset.
    offsets = [x.facts.partitions[0].offset for x in produces(log, "response") if x.facts]
    assert offsets == [0, 1, 1]


@pytest.mark.parametrize("ends", [("abort", "commit"), ("commit", "abort")], ids=["aC", "cA"])
def test_a_delayed_end_of_one_transaction_decides_the_next(
    cluster: Cluster,
    topic: str,
    frames: Callable[[], list[frame_lines.Line]],
    tmp_path: Path,
    ends: tuple[str, str],
) -> None:
    """Without transaction version 2, a coordinator lets a late EndTxn end the next transaction."""
    first, second = ends
    ident, since = f"tx-{topic}", time.time_ns()
    with producer(cluster, **{"transactional.id": ident}) as client:
        client.init_transactions(20)
        client.begin_transaction()
        send(client, topic, b"A", 0)
        with arm(cluster, HoldFrame(api="EndTxn", transactional_id=ident, drop_client=True)) as injection:
            end(client, first)  # the tap cuts this connection; the client retries on a new one
            client.begin_transaction()
            send(client, topic, b"B1", 1)
            assert injection.release() == 1
            held = injection.wait("released").hits[0]
            wait_until(lambda: injection.wait().hits[0].answer, 10, "the broker to answer the late EndTxn")
            send(client, topic, b"B2", 2)
            end(client, second)  # the client gets an answer without an error
        assert injection.bite["hits"][0]["answer"] == "NONE"
    a, b1, b2 = read_all(cluster, topic).values()
    answered_committed = {"A": first == "commit", "B": second == "commit"}
    assert bool(a) is answered_committed["A"]
    assert bool(b2) is answered_committed["B"]
    assert bool(b1) is not answered_committed["B"], "the first part of B shares the fate of A"
    asked = [
        x for x in frames() if isinstance(x, frame_lines.Frame) and x.api == "EndTxn" and x.side == "request"
    ]
    assert [x.fate for x in asked] == ["held", None, None]
    assert len({(x.facts.producer_id, x.facts.epoch) for x in asked if x.facts}) == 1
    assert asked[0].n == held.n
    # The coordinator logs the end of a transaction after its markers are written.
    wait_until(lambda: state_of(cluster, ident).startswith("Complete"), 20, f"{ident} to be complete")
    collect(cluster, tmp_path, topics=[topic], transactional_ids=[ident], since=since)
    steps = read(tmp_path)
    ended = {"abort": ["Ongoing", "PrepareAbort", "CompleteAbort"]}
    ended["commit"] = ["Ongoing", "PrepareCommit", "CompleteCommit"]
    # The coordinator ended three transactions although the client began two.
    decided = [step.what for step in steps if step.kind == "decision" and step.what != "Empty"]
    assert decided == ended[first] + ended[first] + ended[second]
    written = [(step.partition, step.what) for step in steps if step.kind == "marker"]
    assert sorted(written) == [(0, first), (1, first), (2, second)]
    drawn = diagram_file.draw(tmp_path, SequenceFilter(transactional_id=ident))
    assert "(held)" in drawn.mermaid
    assert "(retry of" in drawn.mermaid
    assert f"released: EndTxn {first.upper()}" in drawn.mermaid
    assert drawn.mermaid.count(f"marker {first.upper()} into") == 2


def state_of(cluster: Cluster, ident: str) -> str:
    """Return the state that the coordinator reports for a transactional id."""
    (described,) = describe_transactions(cluster.admin, cluster.txn_coordinator(ident), [ident])
    return described.state


def end(client: Producer, how: str) -> None:
    if how == "commit":
        client.commit_transaction(20)
    else:
        client.abort_transaction(20)


# Tests of faults without effect, and of faults that a killed harness leaves behind


def test_a_frame_fault_that_no_frame_met_is_an_error(cluster: Cluster, topic: str) -> None:
    fault = HoldFrame(api="EndTxn", transactional_id="unused", within_ms=200)
    with pytest.raises(NoBiteError, match="0 frames matched"), inject(cluster, fault, "all"):
        pytest.fail("an injection without effect must not reach the block")
    with producer(cluster) as client, pytest.raises(NoBiteError), arm(cluster, fault):
        send(client, topic, b"other")
    assert unhealed(cluster.state) == []
    assert ensure_tap(cluster).status().rules == []


def test_heal_disarms_what_a_killed_harness_left_and_revives_a_dead_tap(cluster: Cluster, tap: Tap) -> None:
    fault = DelayFrame(api="Produce", delay_ms=1000)
    left: ArmedFrameFault = arm(cluster, fault).start()  # not healed, as if the harness had been killed
    assert [a.rule.verb for a in tap.status().rules] == ["delay"]
    assert [i.fault for i in unhealed(cluster.state)] == ["delay_frame"]

    lines: list[str] = []
    assert heal(cluster, lines.append) == 1
    assert "delay_frame" in lines[0]
    assert tap.status().rules == []
    left.heal()  # healing twice is harmless

    stop_tap(cluster)
    assert find_tap(cluster) is None
    assert heal(cluster, lines.append) == 1
    assert answers(HOST, cluster.ports.tapped(2), timeout=5)
    assert heal(cluster, lines.append) == 0
