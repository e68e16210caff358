"""The raw-log witness: what makes its reading complete, and what it records about transactions."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from harness.base.errors import UsageError
from harness.base.partition_id import PartitionId
from harness.evidence import observation
from harness.evidence.observation import Observation, Window
from harness.evidence.record import Identity, Origin, encode, input_checksum
from harness.kafka.admin import Admin, Metadata, PartitionInfo
from harness.kafka.log.batches import ABORT, COMMIT, NO_PRODUCER, Batch, decode_batches
from harness.witness.raw_log import committed_of, fetch_logs, observe_raw

RUN = "r7k2m9qa"


def window(hw: int, *, start: int = 0, lso: int | None = None, partition: int = 0) -> Window:
    stable = hw if lso is None else lso
    return Window(topic="t", partition=partition, start=start, lso=stable, hw=hw, read_to=stable)


def batch(base: int, pid: int = 1, *, count: int = 1, epoch: int = 0, seq: int | None = None) -> Batch:
    first = base if seq is None else seq
    values = tuple((base + i, encode(Identity(RUN, max(pid, 0), 0, first + i, 1, "c"))) for i in range(count))
    transactional = pid != NO_PRODUCER
    return Batch(base, base + count - 1, pid, epoch, first, transactional, None, values)


def marker(base: int, pid: int, control: int = COMMIT, *, epoch: int = 0) -> Batch:
    return Batch(base, base, pid, epoch, -1, True, control, (), 5)


def plain(base: int, count: int = 1) -> Batch:
    return batch(base, NO_PRODUCER, count=count)


def raw(*logs: tuple[Window, list[Batch]]) -> Observation:
    return observe_raw(logs, RUN)


@pytest.mark.parametrize(
    ("read", "batches", "complete"),
    [
        (window(5), [plain(0, 5)], True),
        (window(0), [], True),
        (window(5), [plain(0, 3)], False),
        (window(5), [plain(0, 4)], False),
        (window(5), [], False),
        (window(5), [plain(0, 2), plain(3, 2)], False),
        (window(5), [plain(1, 4)], False),
        (window(5), [plain(0, 5), plain(5, 2)], True),
        (window(5, start=2), [plain(2, 3)], False),
        (window(5, start=5), [], False),
        (window(3, lso=0), [batch(0), batch(1), batch(2)], True),
    ],
    ids=[
        "whole",
        "empty log",
        "its end is missing",
        "its last record is missing",
        "nothing arrived",
        "a gap",
        "its start is missing",
        "longer than the frozen end",
        "records were deleted",
        "all records were deleted",
        "an open transaction",
    ],
)
def test_the_raw_log_is_complete_only_if_it_has_every_offset(
    read: Window, batches: list[Batch], complete: bool
) -> None:
    assert raw((read, batches)).meta.complete is complete


def test_one_short_partition_makes_the_reading_incomplete_and_is_named() -> None:
    observed = raw((window(2), [plain(0, 2)]), (window(9, partition=1), [plain(0, 2)]))

    assert not observed.meta.complete
    assert observed.meta.detail == "t-1: not read from 2 to its high watermark 9"
    assert [w.read_to for w in observed.meta.windows] == [2, 0]


def test_the_record_at_the_frozen_end_is_not_read() -> None:
    observed = raw((window(4, lso=3), [plain(0, 4)]))

    assert observed.meta.records == 3


def test_records_between_two_open_transactions_are_not_readable() -> None:
    log = [batch(0, 1), batch(1, 2), plain(2), batch(3, 3), plain(4)]

    assert [each.base_offset for each in committed_of(log)] == []
    assert [each.base_offset for each in committed_of([plain(0), *log[1:]])] == [0]


def test_an_epoch_is_compared_with_the_newest_one_before_it() -> None:
    log = [batch(i, 1, epoch=epoch) for i, epoch in enumerate((1, 3, 2, 3))]

    found = raw((window(4), log)).meta.epochs

    assert (found.compared, found.count) == (4, 1)
    assert (found.examples[0].offset, found.examples[0].other_offset) == (2, 1)


def test_each_part_of_a_transaction_has_its_marker(tmp_path: Any) -> None:
    log = [
        *(batch(0, 7, count=2), batch(2, 8), marker(3, 7, epoch=1), marker(4, 8, ABORT)),
        *(batch(5, 7, count=2, seq=2), plain(7)),
    ]
    observed = raw((window(8, lso=5), log))
    observation.save(observed, tmp_path)

    rows = observation.load(tmp_path).markers
    assert rows is not None
    names = ["producer", "first", "last", "n", "lo", "hi", "pid", "marker", "decision"]
    assert sorted(rows[names].tolist()) == [
        (7, 0, 1, 2, 0, 1, 7, 3, 1),
        (7, 2, 3, 2, 5, 6, 7, -1, -1),
        (8, 2, 2, 1, 2, 2, 8, 4, 0),
    ]
    ended = rows[rows["marker"] >= 0]
    assert sorted(ended[["epoch", "marker_epoch", "coordinator_epoch"]].tolist()) == [(0, 0, 5), (0, 1, 5)]
    assert set(rows["txn"].tolist()) == {1}


def test_an_output_ends_with_the_checksum_of_its_input_or_with_none() -> None:
    identity = Identity(RUN, 9, 0, 0, 1, "c", Origin(1, 0, 4))

    assert input_checksum(encode(identity, b"xxx0000beef")) == 0xBEEF
    assert input_checksum(encode(identity, b"xxxxxxxx")) == -1
    assert input_checksum(encode(identity, b"0000BEEF")) == -1
    assert input_checksum(encode(identity, b"beef")) == -1
    assert input_checksum(encode(identity)) == -1


class Broker(Admin):
    """Leader of t-0 whose answers are scripted: each is the batches of one fetch."""

    def __init__(self, answers: list[list[tuple[int, int]]]) -> None:
        super().__init__({})
        self.answers = itertools.chain(answers, itertools.repeat([]))
        self.fetches = 0
        self.leader = 3

    def metadata(self, topics: Any = (), broker: int | None = None) -> Metadata:
        assert (topics, broker) == (["t"], None)
        info = PartitionInfo("t", 0, self.leader, 0, (3,), (3,))
        return Metadata("cluster", frozenset({3}), (info,), {})

    def call(self, broker: int, request: Any) -> Any:
        assert (broker, request.topics[0].topic) == (3, "t")
        self.fetches += 1
        data = b"".join(stored(base, count) for base, count in next(self.answers))
        partition = SimpleNamespace(error_code=0, records=data)
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[partition])])


def stored(base: int, count: int) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for number in range(count):
        builder.append(number, 1, None, encode(Identity(RUN, 1, 0, base + number)), [])
    data = bytearray(builder.build())
    data[:8] = base.to_bytes(8, "big")
    return bytes(data)


def test_an_empty_answer_is_not_the_end_of_the_log() -> None:
    broker = Broker([[(0, 2)], [], [], [(2, 3)]])

    observed = observe_raw(fetch_logs(broker, [window(5)], patience_s=20.0), RUN)

    assert (observed.meta.records, observed.meta.complete, broker.fetches) == (5, True, 4)


def test_a_log_that_never_reaches_its_end_is_incomplete() -> None:
    broker = Broker([[(0, 2)]])

    observed = observe_raw(fetch_logs(broker, [window(5)], patience_s=0.2), RUN)

    assert (observed.meta.records, observed.meta.complete) == (2, False)
    assert broker.fetches > 2


def test_a_fetch_into_the_middle_of_a_batch_keeps_the_batch() -> None:
    broker = Broker([[(0, 5)]])

    (_, batches), *_ = fetch_logs(broker, [window(5, start=3)], patience_s=0.0)

    assert [each.base_offset for each in batches] == [0]


def test_a_partition_without_a_leader_is_asked_again_later() -> None:
    broker = Broker([])
    broker.leader = -1

    with pytest.raises(ConnectionError, match="t-0 has no leader"):
        list(fetch_logs(broker, [window(5)]))


def test_a_batch_that_cannot_be_decompressed_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(stored(0, 1))
    data[22] |= 4  # zstd, for which no library is installed
    monkeypatch.setattr("kafka.record.default_records.DefaultRecordBatch.validate_crc", lambda _: True)

    with pytest.raises(UsageError, match="the batch at offset 0 cannot be decompressed"):
        list(decode_batches(bytes(data)))


def test_partition_ids_of_examples_are_kept() -> None:
    place: PartitionId = ("t", 1)
    observed = raw((window(2), [plain(0, 2)]), (window(2, partition=1), [plain(0), plain(1)]))

    assert {(spot.topic, spot.partition) for spot in observed.meta.repeats.examples} == {place}


def test_a_gap_in_the_sequences_ends_a_row_of_labels() -> None:
    labels = raw((window(4), [plain(0, 2), batch(2, NO_PRODUCER, count=2, seq=3)])).labels

    assert labels is not None
    assert labels[["txn", "intent", "first", "last", "n", "lo", "hi"]].tolist() == [
        (1, 1, 0, 1, 2, 0, 1),
        (1, 1, 3, 4, 2, 2, 3),
    ]


def test_a_marker_behind_the_frozen_end_decides_nothing() -> None:
    markers = raw((window(1, lso=0), [batch(0), marker(1, 1)])).markers

    assert markers is not None
    assert markers["decision"].tolist() == [-1]


def test_batches_without_a_producer_id_have_no_epoch() -> None:
    assert raw((window(5), [plain(0, 5)])).meta.epochs.compared == 0


def test_every_epoch_below_the_newest_one_counts() -> None:
    log = [batch(i, 1, epoch=epoch) for i, epoch in enumerate((3, 1, 2))]

    found = raw((window(3), log)).meta.epochs
    assert found.count == 2
    assert [spot.other_offset for spot in found.examples] == [0, 0]


def test_the_reading_ends_after_the_last_batch_was_fetched() -> None:
    before = time.monotonic_ns()

    assert raw((window(0), [])).meta.finished >= before


def test_records_that_are_no_records_of_the_run_are_counted() -> None:
    strange = plain(0)._replace(values=((0, b"not ours"),))
    other = plain(1)._replace(values=((1, encode(Identity("another1", 1, 0, 1))),))

    observed = raw((window(3), [strange, other, plain(2)])).meta
    assert (observed.records, observed.foreign.count) == (1, 2)
    assert [spot.offset for spot in observed.foreign.examples] == [0, 1]


def test_a_record_that_is_twice_in_the_log_has_a_cause() -> None:
    repeats = raw((window(2), [plain(0), batch(1, NO_PRODUCER, seq=0)])).meta.repeats

    [spot] = repeats.examples
    assert spot.detail.startswith("no producer id")


def test_a_log_that_ends_at_its_last_stable_offset_is_incomplete() -> None:
    assert not raw((window(5, lso=3), [plain(0, 3)])).meta.complete


def test_a_row_of_labels_has_the_lowest_and_the_highest_offset() -> None:
    log = [batch(offset, NO_PRODUCER, seq=seq) for offset, seq in enumerate((2, 0, 1))]
    labels = raw((window(3), log)).labels

    assert labels is not None
    assert labels[["first", "last", "n", "lo", "hi"]].tolist() == [(0, 2, 3, 0, 2)]


def test_batches_behind_the_end_are_not_fetched() -> None:
    broker = Broker([[(0, 2), (2, 3)]])

    (_, batches), *_ = fetch_logs(broker, [window(2)], patience_s=0.0)

    assert [each.base_offset for each in batches] == [0]


def test_every_partition_that_is_not_whole_is_named() -> None:
    observed = raw((window(5), [plain(0, 2)]), (window(9, partition=1), [plain(0, 2)]))

    assert observed.meta.detail == (
        "t-0: not read from 2 to its high watermark 5; t-1: not read from 2 to its high watermark 9"
    )


def test_without_patience_the_first_empty_answer_ends_the_fetch() -> None:
    broker = Broker([[(0, 2)], [], [(2, 3)]])

    (_, batches), *_ = fetch_logs(broker, [window(5)], patience_s=0.0)

    assert [each.base_offset for each in batches] == [0]
    assert broker.fetches == 2
