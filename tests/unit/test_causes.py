"""Causes of damaged transactions: a late marker, and a reused sequence."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from harness.evidence.checkers import audit_findings
from harness.evidence.checkers.causes import LATE_MARKER, REUSED_SEQUENCE, cause_text, causes_of
from harness.evidence.checkers.model import Evidence
from tests.planted.cases_audit import CAUGHT, NEAR_MISSES, WHOLE, positions
from tests.planted.cases_partial import Stored
from tests.planted.tiny import Tiny

STRUCK = CAUGHT["undecided_marker"]["a late ABORT ends the first part of a committed transaction"][0]

REUSED = Tiny(
    "p1 commit ok a:0-0>0\n p1 abort info a:1-1\n p1 commit ok a:2-2>2",
    {"a": "p1:0 . . . ."},
    raw={"a": "p1:0 C1 p1:1 A1 C1"},
    decided="@1.5 C1 a\n @3.5 A1 a\n @4.5 C1 a",
)
"""The broker took the record of the third transaction for a duplicate of that of the second."""


def causes(case: Tiny) -> dict[str, str]:
    """Return the name of the cause of each transaction, by the transaction's number."""
    evidence = case.evidence()
    txn = evidence.ledger.groups.txn
    return {f"transaction {txn[group]}": name for group, (name, _) in causes_of(evidence).items()}


def whats(case: Tiny, anomaly: str) -> list[str]:
    found = [a for result in case.judge().results for a in result.anomalies if a.name == anomaly]
    return [example.what for one in found for example in one.examples]


def test_a_late_marker_is_named_beside_the_lost_records() -> None:
    assert causes(STRUCK) == {"transaction 2": LATE_MARKER}
    proof = (
        "cause: a late marker (t-0: abort marker at offset 5; the coordinator decided commit 1500 ms later)"
    )
    for anomaly in ("lost", "torn_transaction", "fate_mismatch"):
        assert any(what.endswith(proof) for what in whats(STRUCK, anomaly)), whats(STRUCK, anomaly)
    assert [
        what.endswith("it concerns transaction 2 of producer 1") for what in whats(STRUCK, "undecided_marker")
    ]


def test_a_reused_sequence_is_named_beside_the_lost_record() -> None:
    assert causes(REUSED) == {"transaction 3": REUSED_SEQUENCE}
    assert [what.split("; ")[-1] for what in whats(REUSED, "lost")] == [
        "cause: a reused sequence (t-0: offset 2 was acknowledged, and the log has an aborted record of this "
        "producer there)"
    ]
    notes = REUSED.judge().notes
    assert [note for note in notes if note.startswith("suspicion, 1 in the logs: empty_commit: t-0")], notes


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"history": "p1 commit ok a:0-0>0\n p1 abort info a:1-1\n p1 commit ok a:2-2"}, "no offset"),
        (
            {"history": "p1 commit ok a:0-0>0\n p1 abort info a:1-1\n p1 commit ok a:2-2>3"},
            "offset of a marker",
        ),
        (
            {"history": "p1 commit ok a:0-0>0\n p2 abort info a:1-1\n p1 commit ok a:2-2>2", "raw": None},
            "other producer",
        ),
        (
            {"raw": {"a": "p1:0 C1 p1:1 C1 C1"}, "decided": "@1.5 C1 a\n @3.5 C1 a\n @4.5 C1 a"},
            "committed record",
        ),
        (
            {"history": "p1 commit ok a:0-0>0\n p1 commit ok a:2-2>2\n p1 abort info a:1-1>2"},
            "own record aborted",
        ),
    ],
)
def test_a_lost_record_of_another_cause_has_none(change: dict[str, object], why: str) -> None:
    fields = {name: getattr(REUSED, name) for name in ("history", "log", "raw", "decided")} | change
    fields["raw"] = fields["raw"] or {"a": "p1:0 C1 p2:1 A2 C1"}
    if why == "own record aborted":
        fields["raw"] = {"a": "p1:0 C1 p1:2 A1 C1"}
    case = Tiny(**fields)

    assert REUSED_SEQUENCE not in causes(case).values(), why


@pytest.mark.parametrize("label", NEAR_MISSES["undecided_marker"])
def test_a_healthy_log_has_no_cause(label: str) -> None:
    assert causes(NEAR_MISSES["undecided_marker"][label]) == {}


def test_a_late_marker_of_positions_concerns_no_transaction_of_the_ledger() -> None:
    case = CAUGHT["undecided_marker"]["a late COMMIT of positions"][0]

    assert causes(case) == {}
    assert [what.split(": ")[1] for what in whats(case, "undecided_marker")] == [
        "__consumer_offsets-0 offsets 2 to 2"
    ]


def test_an_audit_that_crashes_hides_no_other_anomaly(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(_: Evidence) -> None:
        raise ZeroDivisionError("damage")

    monkeypatch.setattr(Evidence, "audit", crash)
    judgement = STRUCK.judge()

    assert "lost" in judgement.names()
    assert cause_text(STRUCK.evidence(), 0) == ""
    assert {result.property: result.reasons for result in judgement.results}["audit"] == [
        "the checker crashed: ZeroDivisionError: damage"
    ]


def test_runs_without_stored_logs_or_producer_ids_are_not_searched() -> None:
    assert not audit_findings.applies(Tiny("p1 commit ok a:0-1", WHOLE).evidence())
    plain = Tiny(
        "p1 send ok a:0-1",
        {"a": "p1:0-1"},
        {"p1": {"transactional_id": None}},
        raw={"a": "p1:0-1#-1"},
        decided="@1 C9 b",
    )
    assert not audit_findings.applies(plain.evidence())
    assert audit_findings.applies(positions("i:5 C1").evidence())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"unread": ["t-0: read up to 1 of 2"]}, "not read: t-0: read up to 1 of 2"),
        (
            {"decided": "@1 C9 b\n @2 C9 b", "complete_from": 1},
            "the coordinators' log has no decision for any of 1 markers",
        ),
    ],
    ids=["unread", "no decision"],
)
def test_the_reasons_name_what_the_search_lacked(changes: dict[str, Any], reason: str) -> None:
    case = Stored("p1 commit ok a:0-1", WHOLE, raw={"a": "p1:0-1 C1"}, **({"decided": "@2.5 C1 a"} | changes))
    audit = next(result for result in case.judge().results if result.property == "audit")
    assert audit.reasons == [reason]


def test_old_markers_are_a_note_if_others_were_compared() -> None:
    case = Stored(
        "p1 commit ok a:0-1\n p2 commit ok a:0-1",
        {"a": "p1:0-1 . p2:0-1 ."},
        raw={"a": "p1:0-1 C1 p2:0-1 C2"},
        decided="@5.1 C2 a\n @5.5 C2 a",
        complete_from=1,
    )

    assert case.judge().notes[-1] == "1 markers are older than the decisions in the coordinators' log"
    assert case.judge().names() == []
    assert all("coordinators' log" not in " ".join(result.reasons) for result in case.judge().results)


def test_the_transactions_of_a_producer_are_found_among_those_of_others() -> None:
    case = Tiny(
        "p2 commit ok a:0-1\n p1 abort info a:0-0\n p2 commit ok a:2-2\n p1 commit ok a:1-1>3",
        {"a": "p2:0-1 . . . p2:2 . ."},
        raw={"a": "p2:0-1 C2 p1:0 A1 p2:2 C2 C1"},
        decided="@2.5 C2 a\n @4.5 A1 a\n @6.5 C2 a\n @7.5 C1 a",
    )

    assert causes(case) == {"transaction 2": REUSED_SEQUENCE}
    assert np.unique(case.evidence().ledger.groups.producer).tolist() == [1, 2]


def test_a_late_marker_concerns_only_the_records_that_it_ended() -> None:
    case = Tiny(
        "p1 abort ok a:0-0\n p1 commit ok b:0-5\n p2 commit ok a:0-0\n p1 commit ok a:1-3\n"
        "p1 commit ok a:4-4",
        {"a": ". . . p2:0 . . p1:3 . . p1:4 .", "b": "p1:0-5 ."},
        raw={"a": "p1:0 A1 p1:1 p2:0 p1:2 A1 p1:3 C1 C2 p1:4 C1", "b": "p1:0-5 C1"},
        decided="@1.5 A1 a\n @2.5 C1 b\n @7.5 C1 a\n @8.5 C2 a\n @10.5 C1 a",
    )

    assert [(p.producer, p.txn) for p in ended(case)] == [(1, 3)]


class Ended(NamedTuple):
    """A transaction whose damage has a cause."""

    producer: int
    txn: int


def ended(case: Tiny) -> list[Ended]:
    evidence = case.evidence()
    groups = evidence.ledger.groups
    return [Ended(int(groups.producer[group]), int(groups.txn[group])) for group in causes_of(evidence)]
