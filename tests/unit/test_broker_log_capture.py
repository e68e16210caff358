"""Capture of an external cluster's coordinator logs: only if permitted, and only the run's new entries."""

from __future__ import annotations

import json
import struct
from itertools import starmap
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from crc32c import crc32c
from kafka.record.memory_records import MemoryRecordsBuilder

from harness.cluster.external.audit_log import Audit
from harness.cluster.external.cluster_file import NodesPart
from harness.cluster.external.external_nodes import AuditedNode, CommandNode
from harness.kafka.admin import EndOffsets
from harness.kafka.coordinators import java_hash
from harness.kafka.errors import KafkaAnswerError
from harness.run.external.broker_log_capture import LogEvidence
from harness.scenario import load

STATES, POSITIONS = "__transaction_state", "__consumer_offsets"
OURS, GROUP = "eos-chaos-orders-1.ab12cd34", "eos-chaos-billing.ab12cd34"
SCENARIO = """[scenario]
name = "two"
shows = "x"
[[workload]]
kind = "transactional"
topic = "eos-chaos-orders.ab12cd34"
[[workload]]
kind = "reader"
topic = "eos-chaos-orders.ab12cd34"
group = "eos-chaos-billing.ab12cd34"
"""


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def state(ident: str, number: int) -> tuple[bytes, bytes]:
    """Return key and value of a __transaction_state record: producer id 7, epoch 2, no partitions.

    Key and value have format version 0. `number` is the code of the transaction's state.
    """
    value = struct.pack(">hqhib", 0, 7, 2, 60_000, number) + struct.pack(">i", -1) + bytes(16)
    return struct.pack(">h", 0) + text(ident), value


def position(group: str, offset: int) -> tuple[bytes, bytes]:
    """Return key and value of a __consumer_offsets record: `group` committed `offset` in orders-2.

    The key has format version 1, the value version 3.
    """
    key = struct.pack(">h", 1) + text(group) + text("orders") + struct.pack(">i", 2)
    return key, struct.pack(">hqi", 3, offset, 0) + text("") + bytes(8)


Noted = tuple[Any, ...]
"""A record to be stored: key, value, and the producer id if the record is in a transaction."""


def batch(offset: int, noted: Noted) -> bytes:
    """Return a batch with one record. A record with a four-byte key is written as a transaction marker."""
    where = {"magic": 2, "compression_type": 0, "batch_size": 1 << 20, "offset": offset}
    if len(noted) > 2:
        where |= {"transactional": True, "producer_id": noted[2], "producer_epoch": 0, "base_sequence": 0}
    builder = MemoryRecordsBuilder(**where)
    builder.append(timestamp=1_700_000_000_000, key=noted[0], value=noted[1])
    builder.close()
    data = bytearray(builder.buffer())
    if len(noted[0]) == 4:
        data[22] |= 0x20  # set the control-batch bit of the attributes
        data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")
    return bytes(data)


def marker(kind: int, producer_id: int) -> Noted:
    return struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 1), producer_id


class Fake:
    """Stub of a cluster with two coordinator logs. All partitions of a log contain the same records."""

    def __init__(self, folder: Path, allowed: list[str]) -> None:
        self.nodes: dict[str, Any] = {}
        self.audit = Audit(folder / "audit.jsonl")
        self.file = SimpleNamespace(evidence=SimpleNamespace(logs=allowed))
        self.logs: dict[str, list[Noted]] = {STATES: [], POSITIONS: []}
        self.handed_out = 1000
        self.admin = self
        self.asked: list[tuple[str, int]] = []

    def end_offsets(self, log: str) -> dict[int, EndOffsets]:
        return {p: EndOffsets(len(self.logs[log]), len(self.logs[log])) for p in range(5)}

    def partition(self, log: str, partition: int) -> Any:  # noqa: ARG002
        return SimpleNamespace(leader=1)

    def call(self, _: int, request: Any) -> Any:
        topic = request.topics[0]
        self.asked.append((topic.topic, topic.partitions[0].partition))
        noted = enumerate(self.logs[topic.topic][: self.handed_out])
        found = SimpleNamespace(error_code=0, records=b"".join(starmap(batch, noted)))
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[found])])


def read(folder: Path, log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "logs" / f"{log}.jsonl").read_text().splitlines()]


@pytest.fixture
def fake(tmp_path: Path) -> tuple[Fake, LogEvidence]:
    """Return a cluster whose cluster file permits both logs, and a log capture that has not begun."""
    (tmp_path / "two.toml").write_text(SCENARIO)
    cluster = Fake(tmp_path, [STATES, POSITIONS])
    cluster.logs[STATES].append(state(OURS, 0))
    return cluster, LogEvidence(cast(Any, cluster), load(tmp_path / "two.toml"))


def test_only_the_runs_own_new_entries_are_kept(fake: tuple[Fake, LogEvidence], tmp_path: Path) -> None:
    cluster, evidence = fake
    evidence.begin()
    cluster.logs[STATES] += [state("till-7", 1), state(OURS, 1), state("till-7", 2), state(OURS, 2)]
    cluster.logs[POSITIONS] += [position("bookkeeping", 3), position(GROUP, 8)]
    # The offsets log also contains other records of a group, in which its coordinator stores metadata of the
    # members.
    cluster.logs[POSITIONS].append((struct.pack(">h", 2) + text(GROUP), b"members"))
    evidence.collect(tmp_path)

    assert [(line["offset"], line["state"]) for line in read(tmp_path, STATES)] == [
        (2, "Ongoing"),
        (4, "PrepareCommit"),
    ]
    assert {(line["producer_id"], line["epoch"]) for line in read(tmp_path, STATES)} == {(7, 2)}
    (found,) = read(tmp_path, POSITIONS)
    assert (found["group"], found["topic"], found["of"], found["position"]) == (GROUP, "orders", 2, 8)
    assert "till-7" not in "".join(path.read_text() for path in tmp_path.rglob("*.json*"))
    assert set(cluster.asked) == {(STATES, java_hash(OURS) % 5), (POSITIONS, java_hash(GROUP) % 5)}
    captured = json.loads((tmp_path / "logs.json").read_text())
    assert "1 Ongoing, 1 PrepareCommit, in 1 partitions" in captured["shown"][0]
    assert [line.partition(":")[0] for line in captured["not_shown"]] == ["the brokers' logs (nodes)"]


def test_without_consent_nothing_is_read_and_the_report_names_what_is_missing(
    fake: tuple[Fake, LogEvidence], tmp_path: Path
) -> None:
    cluster, evidence = fake
    cluster.file.evidence.logs.clear()
    evidence.begin()
    evidence.collect(tmp_path)

    assert cluster.asked == []
    captured = json.loads((tmp_path / "logs.json").read_text())
    assert captured["shown"] == []
    assert len(captured["not_shown"]) == 3


def test_an_unreadable_log_is_reported_without_failing_the_run(
    fake: tuple[Fake, LogEvidence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, evidence = fake

    def refused(log: str) -> Any:
        raise ConnectionError(f"{log} is not for you")

    monkeypatch.setattr(cluster, "end_offsets", refused)
    evidence.begin()
    evidence.collect(tmp_path)

    captured = json.loads((tmp_path / "logs.json").read_text())
    assert captured["shown"] == []
    assert (
        f"({STATES}): its end offset before the run is unknown: ConnectionError: {STATES} is not for you"
        in captured["not_shown"][0]
    )


@pytest.mark.parametrize("error", [ConnectionError("silent"), struct.error("short"), IndexError("none")])
def test_a_log_with_an_unknown_end_before_the_run_is_not_read(
    fake: tuple[Fake, LogEvidence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    cluster, evidence = fake
    ends = cluster.end_offsets

    def failing(log: str) -> Any:
        if log == STATES:
            raise error
        return ends(log)

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "end_offsets", failing)
        evidence.begin()
    cluster.logs[POSITIONS].append(position(GROUP, 8))
    evidence.collect(tmp_path)

    assert {log for log, _ in cluster.asked} == {POSITIONS}
    captured = json.loads((tmp_path / "logs.json").read_text())
    assert "its end offset before the run is unknown" in captured["not_shown"][0]
    assert [line.partition(" (")[0] for line in captured["shown"]] == [
        "coordinator entries of its groups' positions: 1 position"
    ]


def test_a_topic_created_during_the_run_is_read_from_its_beginning(
    fake: tuple[Fake, LogEvidence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, evidence = fake

    def none(log: str) -> Any:
        raise KafkaAnswerError(f"metadata of topic {log}", 3)

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "end_offsets", none)
        evidence.begin()
    cluster.logs[POSITIONS].append(position(GROUP, 8))
    evidence.collect(tmp_path)
    assert [line["offset"] for line in read(tmp_path, POSITIONS)] == [0]


def test_an_undecodable_log_is_reported_and_the_others_are_kept(
    fake: tuple[Fake, LogEvidence], tmp_path: Path
) -> None:
    cluster, evidence = fake
    evidence.begin()
    cluster.logs[STATES].append((state(OURS, 1)[0], b"\x00"))
    foreign = struct.pack(">hh", 1, 2) + b"\xff\xfe" + text("orders") + struct.pack(">i", 2)
    cluster.logs[POSITIONS] += [(foreign, b""), (b"", b""), position(GROUP, 8)]
    evidence.collect(tmp_path)

    captured = json.loads((tmp_path / "logs.json").read_text())
    assert f"({STATES}): error: unpack_from requires" in captured["not_shown"][0]
    assert [line["position"] for line in read(tmp_path, POSITIONS)] == [8]


def test_each_position_is_stored_with_the_end_of_its_transaction(
    fake: tuple[Fake, LogEvidence], tmp_path: Path
) -> None:
    cluster, evidence = fake
    evidence.begin()
    cluster.logs[POSITIONS] += [
        (*position(GROUP, 1), 7),
        (*position(GROUP, 2), 9),
        position(GROUP, 3),
        marker(0, 7),
        marker(1, 8),
        (*position(GROUP, 4), 7),
        marker(1, 9),
        marker(1, 7),
        (*position(GROUP, 5), 7),
    ]
    evidence.collect(tmp_path)

    assert {line["position"]: line["transaction"] for line in read(tmp_path, POSITIONS)} == {
        1: "aborted",
        2: "committed",
        3: "none",
        4: "committed",
        5: "open",
    }
    captured = json.loads((tmp_path / "logs.json").read_text())
    assert (
        "1 position (aborted), 2 position (committed), 1 position (none), 1 position (open)"
        in captured["shown"][1]
    )


def test_a_log_not_read_to_its_end_is_reported_as_cut(fake: tuple[Fake, LogEvidence], tmp_path: Path) -> None:
    cluster, evidence = fake
    evidence.begin()
    cluster.logs[STATES] += [state(OURS, 1), state(OURS, 2)]
    cluster.handed_out = 2
    evidence.collect(tmp_path)

    assert [line["offset"] for line in read(tmp_path, STATES)] == [1]
    captured = json.loads((tmp_path / "logs.json").read_text())
    assert "not read from 2 to 3: the broker returned no further records" in captured["shown"][0]


def test_an_unreadable_node_log_is_named(fake: tuple[Fake, LogEvidence], tmp_path: Path) -> None:
    cluster, evidence = fake
    cluster.file.evidence.logs[:] = ["nodes"]

    def node(name: str, log: str) -> AuditedNode:
        part = NodesPart(log=log)
        inner = CommandNode(name, 1, part, ("127.0.0.1", 1), cast(Any, None))
        return AuditedNode(inner, cluster.audit, logs=True)

    cluster.nodes = {"kafka-1": node("kafka-1", "echo it serves"), "kafka-2": node("kafka-2", "false")}
    logs = {name: one.log() for name, one in cluster.nodes.items()}
    evidence.collect(tmp_path)

    assert logs["kafka-1"] == "it serves\n"
    assert logs["kafka-2"].startswith("not read: `false` exited with 1")
    captured = json.loads((tmp_path / "logs.json").read_text())
    assert captured["shown"] == ["the brokers' logs: logs/kafka-1.log"]
    assert "the brokers' logs (kafka-2): `false` exited with 1: " in captured["not_shown"]
