"""What is read of logs that belong to everybody: with consent, of ours alone, and from where a run began."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.record.memory_records import MemoryRecordsBuilder

from harness.cluster.live.audit import Audit
from harness.live.evidence import LogEvidence
from harness.scenario import load
from harness.tap.logsteps import java_hash
from harness.wire.admin import EndOffsets

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


def text(said: str) -> bytes:
    return struct.pack(">h", len(said)) + said.encode()


def state(ident: str, number: int) -> tuple[bytes, bytes]:
    """A record of the transaction log: version 0, producer 7 in epoch 2, no partitions."""
    value = struct.pack(">hqhib", 0, 7, 2, 60_000, number) + struct.pack(">i", -1) + bytes(16)
    return struct.pack(">h", 0) + text(ident), value


def position(group: str, offset: int) -> tuple[bytes, bytes]:
    """A record of the offsets log: version 1 of its key, version 3 of its value."""
    key = struct.pack(">h", 1) + text(group) + text("orders") + struct.pack(">i", 2)
    return key, struct.pack(">hqi", 3, offset, 0) + text("") + bytes(8)


class Fake:
    """A cluster whose two logs say what a test puts there, in whichever partition is asked for."""

    def __init__(self, folder: Path, allowed: list[str]) -> None:
        self.audit = Audit(folder / "audit.jsonl")
        self.file = SimpleNamespace(evidence=SimpleNamespace(logs=allowed))
        self.logs: dict[str, list[tuple[bytes, bytes]]] = {STATES: [], POSITIONS: []}
        self.admin = self
        self.asked: list[tuple[str, int]] = []

    def end_offsets(self, log: str) -> dict[int, EndOffsets]:
        return {p: EndOffsets(len(self.logs[log]), len(self.logs[log])) for p in range(5)}

    def partition(self, log: str, partition: int) -> Any:  # noqa: ARG002
        return SimpleNamespace(leader=1)

    def call(self, _: int, request: Any) -> Any:
        topic = request.topics[0]
        self.asked.append((topic.topic, topic.partitions[0].partition))
        builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1 << 20)
        for key, value in self.logs[topic.topic]:
            builder.append(timestamp=1_700_000_000_000, key=key, value=value)
        builder.close()
        found = SimpleNamespace(error_code=0, records=builder.buffer())
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[found])])


def read(folder: Path, log: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "logs" / f"{log}.jsonl").read_text().splitlines()]


@pytest.fixture
def fake(tmp_path: Path) -> tuple[Fake, LogEvidence]:
    """A cluster whose file allows both logs, and a run that is about to begin."""
    (tmp_path / "two.toml").write_text(SCENARIO)
    cluster = Fake(tmp_path, [STATES, POSITIONS])
    cluster.logs[STATES].append(state(OURS, 0))
    return cluster, LogEvidence(cast(Any, cluster), load(tmp_path / "two.toml"))


def test_of_what_was_added_only_what_is_ours_is_kept(fake: tuple[Fake, LogEvidence], tmp_path: Path) -> None:
    cluster, evidence = fake
    evidence.begin()
    cluster.logs[STATES] += [state("till-7", 1), state(OURS, 1), state("till-7", 2), state(OURS, 2)]
    cluster.logs[POSITIONS] += [position("bookkeeping", 3), position(GROUP, 8)]
    # A group's other records: what its coordinator knows of its members.
    cluster.logs[POSITIONS].append((struct.pack(">h", 2) + text(GROUP), b"members"))
    evidence.collect(tmp_path)

    assert [(line["offset"], line["state"]) for line in read(tmp_path, STATES)] == [
        (2, "Ongoing"), (4, "PrepareCommit"),
    ]  # fmt: skip
    assert {(line["producer_id"], line["epoch"]) for line in read(tmp_path, STATES)} == {(7, 2)}
    (found,) = read(tmp_path, POSITIONS)
    assert (found["group"], found["topic"], found["of"], found["position"]) == (GROUP, "orders", 2, 8)
    assert "till-7" not in "".join(path.read_text() for path in tmp_path.rglob("*.json*"))
    assert set(cluster.asked) == {(STATES, java_hash(OURS) % 5), (POSITIONS, java_hash(GROUP) % 5)}
    told = json.loads((tmp_path / "logs.json").read_text())
    assert "1 Ongoing, 1 PrepareCommit, in 1 partitions" in told["shown"][0]
    assert [line.partition(":")[0] for line in told["not_shown"]] == ["what the brokers have logged (nodes)"]


def test_without_consent_nothing_is_asked_and_the_report_is_told_what_is_missing(
    fake: tuple[Fake, LogEvidence], tmp_path: Path
) -> None:
    cluster, evidence = fake
    cluster.file.evidence.logs.clear()
    evidence.begin()
    evidence.collect(tmp_path)

    assert cluster.asked == []
    told = json.loads((tmp_path / "logs.json").read_text())
    assert told["shown"] == []
    assert len(told["not_shown"]) == 3


def test_what_could_not_be_read_is_told_and_is_no_error(
    fake: tuple[Fake, LogEvidence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, evidence = fake

    def refused(log: str) -> Any:
        raise ConnectionError(f"{log} is not for you")

    monkeypatch.setattr(cluster, "end_offsets", refused)
    evidence.begin()
    evidence.collect(tmp_path)

    told = json.loads((tmp_path / "logs.json").read_text())
    assert told["shown"] == []
    assert f"({STATES}): {STATES} is not for you" in told["not_shown"][0]
