"""Records of the transaction log: both versions of their format, as Kafka writes them."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from harness.kafka.coordinators import java_hash
from harness.kafka.log import coordinator_log
from harness.kafka.log.coordinator_log import LogEntry, TransactionLogTail
from harness.kafka.log.transaction_log import TransactionState, decode_state

HEAD = struct.pack(">qhib", 7, 3, 20_000, 1)
TIMES = struct.pack(">qq", 2, 1)


def test_a_state_without_partitions() -> None:
    expected = TransactionState(7, 3, 20_000, "Ongoing", ())
    assert decode_state(struct.pack(">h", 0) + HEAD + struct.pack(">i", -1) + TIMES) == expected
    assert decode_state(struct.pack(">h", 1) + HEAD + b"\x00" + TIMES + b"\x00") == expected


def test_the_partitions_of_the_old_format() -> None:
    topics = struct.pack(">ih2siiih1sii", 2, 2, b"bb", 2, 1, 0, 1, b"a", 1, 4)
    value = struct.pack(">h", 0) + HEAD + topics + TIMES
    assert decode_state(value).partitions == (("a", 4), ("bb", 0), ("bb", 1))


def test_the_partitions_of_the_flexible_format_with_unknown_tags() -> None:
    long = "t" * 200  # the length of this topic name is encoded in two bytes
    tags = bytes([1, 9, 2]) + b"xy"  # one tagged field: number 9, two bytes
    first = bytes([0xC9, 0x01]) + long.encode() + b"\x02" + struct.pack(">i", 5) + tags
    second = b"\x02b\x03" + struct.pack(">ii", 1, 2) + b"\x00"
    value = struct.pack(">h", 1) + HEAD + b"\x03" + first + second + TIMES + b"\x00"
    assert decode_state(value).partitions == (("b", 1), ("b", 2), (long, 5))


class Log:
    """The ends of the 50 partitions of __transaction_state. Each grows by one with each look."""

    def __init__(self) -> None:
        self.looks = 0

    def list_offsets(self, topic: str, timestamp: int, *, partitions: Any = range(50)) -> dict[int, int]:
        assert (topic, timestamp) == ("__transaction_state", -1)
        self.looks += 1
        return {number: 100 * number + self.looks for number in partitions}


def test_the_tail_contains_the_later_states_of_the_wanted_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    value = struct.pack(">h", 0) + HEAD + struct.pack(">i", -1) + TIMES
    read: list[tuple[object, ...]] = []

    def entries(_: object, *span: object) -> list[LogEntry]:
        read.append(span[:3])
        return [
            LogEntry(7, 0, 1, 0, False, None, struct.pack(">hh2s", 0, 2, name), value)
            for name in (b"t1", b"xx")
        ]

    monkeypatch.setattr(coordinator_log, "AddedEntries", entries)
    log: Any = Log()
    tail = TransactionLogTail(log, ["t1"])
    states = [(name, state.state) for _, name, state in tail.states()]

    number = java_hash("t1") % 50
    assert read == [(("__transaction_state", number), 100 * number + 1, 100 * number + 2)]
    assert states == [("t1", "Ongoing")]
