"""Records of the transaction log: both versions of their format, as Kafka writes them."""

from __future__ import annotations

import struct

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
