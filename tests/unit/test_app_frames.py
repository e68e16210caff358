"""The reader of an application's frames learns time limits and members, and skips the harness's clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from harness.run.app_frames import AppFrames
from harness.tap.decoded_fields import BatchFields, Facts, PartitionFields
from harness.tap.frame_lines import Connection, Frame, Line, Side


class Log:
    """A frame log that grows line by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.number = 0
        path.touch()

    def write(self, line: Line, *, end: bytes = b"\n") -> None:
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(line) + end)

    def connect(self, conn: int, port: int) -> None:
        self.write(Connection(conn=conn, broker=1, client=f"127.0.0.1:{port}", mono=0, wall=0))

    def frame(self, api: str, facts: Facts | None = None, **fields: Any) -> None:
        self.number += 1
        side: Side = fields.pop("side", "request")
        whole = {"conn": 1, "correlation": self.number, "client_id": "c1", "mono": self.number * 1_000_000}
        self.write(
            Frame(
                n=self.number,
                broker=1,
                side=side,
                key=0,
                api=api,
                version=5,
                bytes=1,
                wall=0,
                facts=facts,
                **(whole | fields),
            )
        )


def reader(log: Log) -> AppFrames:
    return AppFrames(log.path, lambda: ["seeder-orders-1"], lambda: None)


def test_limits_members_and_transactions_are_learned(tmp_path: Path) -> None:
    log = Log(tmp_path / "frames.jsonl")
    frames = reader(log)
    log.connect(1, 5000)
    log.frame("JoinGroup", Facts(group="g", session_timeout_ms=6000, rebalance_timeout_ms=300_000))
    log.frame("JoinGroup", Facts(member="m1"), side="response")
    log.frame("InitProducerId", Facts(transactional_id="t", transaction_timeout_ms=9000), correlation=50)
    log.frame("InitProducerId", Facts(producer_id=7), side="response", correlation=50)
    batches = [BatchFields(topic="out", partition=0, count=1, bytes=1, transactional=True)]
    log.frame("Produce", Facts(transactional_id="t", acks=-1, request_timeout_ms=30_000, batches=batches))
    log.frame("EndTxn", Facts(transactional_id="t", committed=False), correlation=51)
    log.frame("EndTxn", Facts(), side="response", correlation=51)

    observed = frames.read()

    assert (observed.session_timeouts, observed.rebalance_timeouts) == ({"c1": 6000}, {"c1": 300_000})
    assert (observed.transaction_timeouts, observed.producer_ids) == ({"t": 9000}, {7})
    assert (observed.groups, observed.end_versions) == ({"g"}, {5})
    assert (observed.longest_transaction_ms, observed.request_timeout_ms) == (2, 30_000)
    assert observed.aborts_sent == {"t": 1}
    assert (observed.written["out"].inside, observed.written["out"].outside) == (1, 0)
    (connection,) = frames.connections_from([5000, 5001])
    assert (connection.members, connection.transactional_ids) == ({"m1"}, {"t"})


def test_the_harness_and_half_a_line_are_left_out(tmp_path: Path) -> None:
    log = Log(tmp_path / "frames.jsonl")
    frames = reader(log)
    log.connect(1, 5000)
    log.frame(
        "Fetch", Facts(partitions=[PartitionFields(topic="own", partition=0)]), client_id="seeder-orders-1"
    )
    facts = Facts(isolation="read_committed", partitions=[PartitionFields(topic="in", partition=2)])
    log.connect(2, 5001)
    log.frame("Fetch", facts, conn=2)
    later = Connection(conn=3, broker=1, client="127.0.0.1:5002", mono=0, wall=0)
    log.write(later, end=b"")

    observed = frames.read()
    assert set(observed.fetched) == {("in", 2)}
    assert observed.isolations == {"in": {"read_committed"}}
    assert set(observed.connections) == {2}

    with log.path.open("ab") as file:
        file.write(b"\n")
    assert set(frames.read().connections) == {2, 3}


def test_the_latest_connection_of_a_port_counts(tmp_path: Path) -> None:
    log = Log(tmp_path / "frames.jsonl")
    frames = reader(log)
    for conn in (1, 2):
        log.connect(conn, 5000)
        log.frame("Heartbeat", Facts(group="g", member=f"m{conn}"), conn=conn)
    frames.read()
    assert [connection.members for connection in frames.connections_from([5000])] == [{"m2"}]


def test_a_partition_is_fetched_after_a_restart_when_its_connection_fetches(tmp_path: Path) -> None:
    """Later requests of a fetch session name no partition, so the connection decides."""
    log = Log(tmp_path / "frames.jsonl")
    frames = reader(log)
    for conn, partition in ((1, 0), (2, 1)):
        log.connect(conn, 5000 + conn)
        part = PartitionFields(topic="in", partition=partition)
        log.frame("Fetch", Facts(partitions=[part]), conn=conn, mono=100)
    log.frame("Fetch", Facts(), conn=1, mono=200)

    assert frames.read().fetched_since(99) == {("in", 0), ("in", 1)}
    assert frames.read().fetched_since(100) == {("in", 0)}

    log.connect(3, 5003)
    log.frame("Fetch", Facts(partitions=[PartitionFields(topic="in", partition=1)]), conn=3, mono=300)
    assert frames.read().fetched_since(150) == {("in", 0), ("in", 1)}
