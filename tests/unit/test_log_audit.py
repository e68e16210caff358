"""Planted logs for the search for damage, and healthy logs that look like them."""

from __future__ import annotations

from typing import Any

import pytest

from harness.base.partition_id import PartitionId
from harness.evidence import log_audit
from harness.evidence.log_audit import (
    DAMAGE,
    MEANINGS,
    SUSPICIONS,
    Audit,
    CoordinatorLog,
    Finding,
    LoggedBatch,
    LoggedPosition,
    LoggedState,
    Marker,
    PartitionLog,
    audit,
    complete_from,
)

P0, P1 = ("orders", 0), ("orders", 1)
POSITIONS = ("__consumer_offsets", 3)
PRODUCER = 7
TIMEOUT_MS = 60_000


class Logs:
    """Builder of the logs of a few partitions. Each step takes 10 ms, unless a time is given."""

    def __init__(self) -> None:
        self.now = 1_000
        self.batches: dict[PartitionId, list[LoggedBatch]] = {}
        self.positions: list[LoggedPosition] = []
        self.states: list[LoggedState] = []
        self.starts: dict[PartitionId, int] = {}
        self.complete_from = 0
        self._sequences: dict[tuple[PartitionId, int, int], int] = {}

    def _end(self, place: PartitionId) -> int:
        batches = self.batches.setdefault(place, [])
        return batches[-1].last_offset + 1 if batches else self.starts.get(place, 0)

    def records(
        self,
        place: PartitionId = P0,
        count: int = 1,
        *,
        producer: int = PRODUCER,
        epoch: int = 0,
        sequence: int | None = None,
        transactional: bool = True,
    ) -> Logs:
        """Write a batch of records."""
        self.now += 10
        key = place, producer, epoch
        base = self._sequences.get(key, 0) if sequence is None else sequence
        self._sequences[key] = base + count
        first = self._end(place)
        batch = LoggedBatch(
            first, first + count - 1, producer, epoch, base, transactional, None, at_ms=self.now
        )
        self.batches[place].append(batch)
        return self

    def position(
        self, position: int, *, group: str = "g", of: PartitionId = P1, producer: int = PRODUCER
    ) -> Logs:
        """Commit a position in the open transaction."""
        self.positions.append(LoggedPosition(self._end(POSITIONS), producer, group, *of, position))
        return self.records(POSITIONS, producer=producer, sequence=0)

    def marker(
        self, kind: Marker, place: PartitionId = P0, *, producer: int = PRODUCER, epoch: int = 0
    ) -> Logs:
        """Write a marker."""
        self.now += 10
        at = self._end(place)
        self.batches[place].append(LoggedBatch(at, at, producer, epoch, -1, True, kind, self.now))
        return self

    def state(
        self, state: str, *places: PartitionId, producer: int = PRODUCER, epoch: int = 0, wait_ms: int = 10
    ) -> Logs:
        """Store a state of the transactional id."""
        self.now += wait_ms
        offset = self.states[-1].offset + 1 if self.states else 0
        self.states.append(
            LoggedState(offset, self.now, f"t{producer}", producer, epoch, TIMEOUT_MS, state, places)
        )
        return self

    def open(self, *places: PartitionId, **of: Any) -> Logs:
        return self.state("Ongoing", *(places or (P0,)), **of)

    def decide(self, kind: Marker, *places: PartitionId, **of: Any) -> Logs:
        """Store a decision. No marker is written yet."""
        return self.state(f"Prepare{kind.capitalize()}", *(places or (P0,)), **of)

    def end(self, kind: Marker, *places: PartitionId, wait_ms: int = 10, **of: Any) -> Logs:
        """Store a decision, and write its markers."""
        places = places or (P0,)
        self.decide(kind, *places, wait_ms=wait_ms, **of)
        for place in places:
            self.marker(kind, place, **of)
        return self.state(f"Complete{kind.capitalize()}", **of)

    def audit(self, skew_ms: int = 0) -> Audit:
        logs = [
            PartitionLog(
                place, self.starts.get(place, 0), batches, self.positions if place == POSITIONS else []
            )
            for place, batches in self.batches.items()
        ]
        return audit(logs, [CoordinatorLog(self.states, self.complete_from)], skew_ms)

    def cut(self, place: PartitionId, start: int) -> Logs:
        """Delete the beginning of a partition's log."""
        self.starts[place] = start
        self.batches[place] = [b for b in self.batches[place] if b.base_offset >= start]
        return self


def kinds(logs: Logs, skew_ms: int = 0) -> list[str]:
    return [finding.kind for finding in logs.audit(skew_ms).findings]


def healthy(logs: Logs, count: int = 3) -> Logs:
    """Add transactions that commit and abort in turn, in two partitions."""
    for number in range(count):
        logs.open(P0, P1).records(P0, 2).records(P1)
        logs.end("abort" if number % 2 else "commit", P0, P1)
    return logs


def test_healthy_transactions_have_no_finding() -> None:
    found = healthy(Logs(), 6).audit()
    assert found.findings == []
    assert (found.markers, found.copies, found.not_judged) == (12, 0, 0)
    assert found.batches == 24


ENDS: list[tuple[Marker, Marker, str]] = [
    ("abort", "commit", "records_lost"),
    ("commit", "abort", "aborted_readable"),
    ("commit", "commit", "early_commit"),
    ("abort", "abort", "early_abort"),
]


@pytest.mark.parametrize(("first", "second", "kind"), ENDS)
@pytest.mark.parametrize("writes_again", [True, False], ids=["writes again", "writes no more"])
def test_a_late_marker_ends_records_of_the_next_transaction(
    first: Marker, second: Marker, kind: str, *, writes_again: bool
) -> None:
    logs = Logs().open().records().end(first)
    logs.open().records(count=2).marker(first)
    if writes_again:
        logs.records()
    found = logs.end(second).audit()

    (finding,) = found.findings
    assert (finding.kind, finding.first, finding.last) == (kind, 2, 3)
    assert (finding.transactional_id, finding.producer_id) == ("t7", 7)
    assert f"{first} marker at offset 4" in finding.detail
    assert f"decided {second}" in finding.detail
    assert (kind in DAMAGE) is (kind != "early_abort")


def test_a_late_marker_is_found_among_transactions_before_and_after() -> None:
    logs = healthy(Logs(), 5)
    logs.open().records().end("abort").open().records().marker("abort").end("commit")
    assert kinds(healthy(logs, 5)) == ["records_lost"]


def test_a_late_marker_in_a_log_whose_beginning_was_deleted() -> None:
    logs = healthy(Logs(), 5)
    logs.open().records().end("abort")
    start = logs.batches[P0][-2].base_offset
    logs.open().records().marker("abort").end("commit").cut(P0, start)
    assert kinds(logs) == ["records_lost"]


def test_a_late_marker_while_its_transaction_is_open() -> None:
    logs = Logs().open().records().end("commit").open().records().marker("commit")
    assert kinds(logs) == ["surplus_marker"]


def test_a_late_marker_moves_a_position() -> None:
    """The group keeps the position of a transaction that was aborted."""
    logs = Logs().open(POSITIONS).position(2).end("commit", POSITIONS)
    logs.open(POSITIONS).position(5).marker("commit", POSITIONS).end("abort", POSITIONS)
    (finding,) = logs.audit().findings
    assert (finding.kind, finding.topic, finding.first) == ("aborted_readable", POSITIONS[0], 2)


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("kind", ["commit", "abort"])
def test_a_repeated_marker_that_ends_no_record_is_harmless(kind: Marker, copies: int) -> None:
    logs = Logs().open().records().end(kind)
    for _ in range(copies):
        logs.marker(kind)
    found = healthy(logs).audit()
    assert found.findings == []
    assert found.copies == copies


def test_markers_of_two_producers_are_not_mixed_up() -> None:
    logs = Logs().open(producer=7).records(producer=7).open(producer=8).records(producer=8)
    logs.end("abort", producer=7).end("commit", producer=8)
    assert kinds(logs) == []


def test_records_of_a_producer_without_transactions_are_not_ended() -> None:
    logs = Logs().open().records().end("commit").records(transactional=False).marker("commit")
    assert kinds(logs) == []


def test_a_decision_for_another_partition_does_not_explain_a_marker() -> None:
    logs = Logs().open().records().end("abort")
    logs.open(P0).records(P0).marker("abort", P0).end("commit", P0)
    logs.open(P1).records(P1).end("abort", P1)
    assert kinds(logs) == ["records_lost"]


def test_an_unused_decision_for_another_partition_does_not_explain_a_marker() -> None:
    logs = Logs().open().records().end("abort").open(P1).records(P1).end("abort", P1)
    logs.open().records().marker("abort").end("commit")
    assert kinds(logs) == ["records_lost"]


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [("abort", "commit", "records_lost"), ("commit", "abort", "aborted_readable")],
)
def test_a_decision_of_the_other_type_does_not_explain_a_marker(
    first: Marker, second: Marker, kind: str
) -> None:
    """The clocks may differ so much that the decision could be older than the late marker."""
    logs = Logs().open().records().end(first).open().records().marker(first).records().end(second)
    assert kinds(logs, skew_ms=1000) == [kind]


def test_a_skipped_marker_that_is_written_later_has_a_decision() -> None:
    """The coordinator leaves a partition without a leader out, and an operator writes its marker."""
    logs = Logs().open(P0, P1).records(P0).records(P1).decide("commit", P0, P1).marker("commit", P0)
    logs.state("CompleteCommit").open(P0).records(P0).end("abort", P0).marker("commit", P1)
    assert kinds(logs) == []


@pytest.mark.parametrize(("skew_ms", "found"), [(0, ["early_commit"]), (50, [])])
def test_clocks_of_brokers_may_differ(skew_ms: int, found: list[str]) -> None:
    """The clock of the leader is 30 ms behind that of the coordinator."""
    logs = Logs().open().records().decide("commit")
    logs.now -= 40
    logs.marker("commit")
    assert kinds(logs, skew_ms) == found


def test_an_old_unused_decision_does_not_explain_a_late_marker() -> None:
    """The first transaction wrote nothing here; its abort was decided before the other markers."""
    logs = Logs().open().decide("abort").state("CompleteAbort")
    logs.open().records().end("commit").open().records().marker("abort").end("commit")
    assert kinds(logs) == ["records_lost"]


def test_markers_whose_decisions_were_compacted_are_not_judged() -> None:
    logs = healthy(Logs(), 3)
    logs.complete_from = logs.states[-2].offset
    found = healthy(logs, 2).audit()
    assert found.findings == []
    # The last decision before the gap is known, and so are its two markers.
    assert (found.not_judged, found.markers) == (4, 6)


def test_a_producer_that_is_in_no_coordinators_log_is_not_judged() -> None:
    found = Logs().records().marker("commit").audit()
    assert (found.findings, found.not_judged) == ([], 1)


def test_a_late_marker_after_the_gap_is_found() -> None:
    logs = healthy(Logs(), 3)
    logs.complete_from = logs.states[-1].offset
    logs.open().records().end("abort").open().records().marker("abort").end("commit")
    assert kinds(logs) == ["records_lost"]


# Sequences


def test_two_batches_with_the_same_sequence() -> None:
    logs = Logs().open().records(count=3).end("abort").open().records(count=3, sequence=0).end("commit")
    (finding,) = logs.audit().findings
    assert (finding.kind, finding.first, finding.last) == ("sequence_reused", 4, 6)
    assert "sequences 0 to 2, after 0 to 2 at offset 0" in finding.detail
    assert finding.transactional_id == "t7"


def test_batches_whose_sequences_overlap() -> None:
    assert kinds(Logs().open().records(count=3).records(count=3, sequence=2).end("commit")) == [
        "sequence_reused"
    ]


@pytest.mark.parametrize(
    "second",
    [
        {"sequence": 0, "epoch": 1},
        {"sequence": 0, "producer": 8},
        {"sequence": 0, "place": P1},
        {"sequence": 5},
    ],
    ids=["another epoch", "another producer", "another partition", "a gap"],
)
def test_sequences_that_are_not_reused(second: dict[str, Any]) -> None:
    logs = Logs().records(count=3, transactional=False)
    assert kinds(logs.records(transactional=False, **second)) == []


def test_the_sequence_after_the_largest_is_zero() -> None:
    logs = Logs().records(count=2, sequence=2**31 - 2, transactional=False)
    assert kinds(logs.records(sequence=0, transactional=False)) == []
    across = Logs().records(count=4, sequence=2**31 - 2, transactional=False)
    assert kinds(across.records(sequence=2, transactional=False)) == []
    assert kinds(across.records(sequence=1, transactional=False)) == ["sequence_reused"]


def test_batches_without_a_sequence_are_not_compared() -> None:
    logs = Logs()
    for _ in range(2):
        logs.records(producer=-1, sequence=-1, transactional=False)
    assert kinds(logs) == []


# Empty transactions


def test_a_committed_transaction_without_a_record_in_its_partition() -> None:
    """The broker took the only batch for a duplicate of one of the aborted transaction."""
    logs = Logs().open().records().end("abort").open(P0, P1).records(P1).end("commit", P0, P1)
    (finding,) = logs.audit().findings
    assert (finding.kind, finding.partition, finding.first) == ("empty_commit", 0, 2)
    assert finding.kind in SUSPICIONS


def test_an_empty_commit_before_another_transaction() -> None:
    logs = Logs().open().records().end("abort").open().end("commit").open().records().end("commit")
    assert kinds(logs) == ["empty_commit"]


def test_a_copy_that_may_be_the_only_marker_of_a_transaction_is_not_reported() -> None:
    """The clocks do not show whether the second marker is a copy or the marker of the second decision."""
    logs = Logs().open().records().end("commit").open().marker("commit").records()
    logs.end("commit")
    assert kinds(logs) == []
    assert kinds(logs, skew_ms=1000) == []


def test_an_empty_commit_after_a_late_marker() -> None:
    """The late marker explains why one transaction has no record at its end, but not the next one."""
    logs = Logs().open().records().end("abort").open().records().marker("abort").end("commit")
    assert kinds(logs) == ["records_lost"]
    assert kinds(logs.open().end("commit")) == ["records_lost", "empty_commit"]


def test_an_aborted_transaction_may_be_empty() -> None:
    assert kinds(Logs().open().records().end("commit").open().end("abort")) == []


def test_the_records_of_a_commit_may_have_been_deleted() -> None:
    logs = Logs().open().records().end("commit").cut(P0, 1)
    assert kinds(logs) == []
    assert kinds(logs.open().end("commit")) == ["empty_commit"], "nothing was deleted in between"


def test_the_records_of_a_commit_may_have_been_compacted() -> None:
    logs = Logs().open().records().end("commit").open().records().end("commit")
    del logs.batches[P0][2]
    assert kinds(logs) == []


def test_a_transaction_may_commit_no_position() -> None:
    assert kinds(Logs().open(POSITIONS).end("commit", POSITIONS)) == []


def test_a_ghost_transaction() -> None:
    """A late AddPartitionsToTxn opens a transaction of which the client does not know."""
    logs = Logs().open().records().end("commit").open()
    logs.end("abort", epoch=1, wait_ms=TIMEOUT_MS + 500)
    (finding,) = logs.audit().findings
    assert (finding.kind, finding.transactional_id, finding.partition) == ("ghost_transaction", "t7", 0)
    assert f"open for {TIMEOUT_MS + 500} ms in orders-0" in finding.detail


@pytest.mark.parametrize(
    ("records", "end"),
    [
        (False, {"epoch": 1, "wait_ms": TIMEOUT_MS - 500}),
        (False, {"epoch": 0, "wait_ms": TIMEOUT_MS + 500}),
        (True, {"epoch": 1, "wait_ms": TIMEOUT_MS + 500}),
    ],
    ids=["ended before its time-out", "ended by its client", "has records"],
)
def test_transactions_that_are_no_ghosts(end: dict[str, Any], *, records: bool) -> None:
    logs = Logs().open().records().end("commit").open()
    if records:
        logs.records()
    assert kinds(logs.end("abort", **end)) == []


def test_a_transaction_with_records_in_another_partition_is_no_ghost() -> None:
    logs = Logs().open(P0, P1).records(P1).end("abort", P0, P1, epoch=1, wait_ms=TIMEOUT_MS + 500)
    assert kinds(logs) == []


# Positions


def test_a_position_that_goes_back_within_one_transaction() -> None:
    """A late TxnOffsetCommit of the transaction before arrives while the next one is open."""
    logs = Logs().open(POSITIONS).position(1).end("commit", POSITIONS)
    logs.open(POSITIONS).position(4).position(1).end("commit", POSITIONS)
    (finding,) = logs.audit().findings
    assert (finding.kind, finding.first, finding.last) == ("position_went_back", 2, 3)
    assert "group g, orders-1: from 4 to 1" in finding.detail
    assert finding.transactional_id == "t7"


@pytest.mark.parametrize(
    "second",
    [{"of": P0}, {"group": "h"}, {"producer": 8}],
    ids=["another partition", "another group", "another producer"],
)
def test_a_lower_position_of_something_else_is_fine(second: dict[str, Any]) -> None:
    logs = Logs().open(POSITIONS).open(POSITIONS, producer=8).position(4).position(1, **second)
    logs.end("commit", POSITIONS).end("commit", POSITIONS, producer=8)
    assert kinds(logs) == []


def test_positions_of_two_open_transactions_are_not_mixed_up() -> None:
    logs = Logs().open(POSITIONS).open(POSITIONS, producer=8)
    logs.position(4).position(1, producer=8).position(5)
    logs.end("commit", POSITIONS).end("commit", POSITIONS, producer=8)
    assert kinds(logs) == []


def test_positions_that_stay_or_advance_are_fine() -> None:
    logs = Logs().open(POSITIONS).position(4).position(4).position(5).end("commit", POSITIONS)
    assert kinds(logs) == []


def test_an_aborted_position_may_go_back() -> None:
    assert kinds(Logs().open(POSITIONS).position(4).position(1).end("abort", POSITIONS)) == []


def test_a_group_may_go_back_in_a_later_transaction() -> None:
    """An operator or an application may rewind a group."""
    logs = Logs().open(POSITIONS).position(4).end("commit", POSITIONS)
    assert kinds(logs.open(POSITIONS).position(1).end("commit", POSITIONS)) == []


# The rest


@pytest.mark.parametrize(
    ("offsets", "start", "complete"),
    [([0, 1, 2], 0, 0), ([], 0, 0), ([3, 4], 0, 3), ([0, 2, 3, 7, 8], 0, 7), ([5, 6], 5, 5)],
)
def test_a_compacted_log_is_complete_after_its_last_gap(
    offsets: list[int], start: int, complete: int
) -> None:
    assert complete_from(offsets, start) == complete


def test_findings_are_ordered_by_severity_and_place() -> None:
    logs = Logs().open(P1).records(P1, 2).records(P1, sequence=0).end("commit", P1)
    logs.open().records().end("abort").open().records().marker("abort").end("commit")
    assert kinds(logs) == ["records_lost", "sequence_reused"]


def test_a_finding_names_its_place_and_its_producer() -> None:
    finding = Finding("records_lost", "orders", 0, 3, 4, 7, 0, "t", "why")
    assert finding.text == (
        "records_lost: orders-0 offsets 3 to 4: an ABORT marker ended records of a committed transaction; "
        "t, producer id 7, epoch 0; why"
    )
    assert set(MEANINGS) == set(DAMAGE) | set(SUSPICIONS)
    assert log_audit.audit([], []).findings == []
