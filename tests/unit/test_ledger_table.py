"""The table of a report that shows what was written to each topic, and what each witness read there."""

from __future__ import annotations

from harness.evidence.checkers.run_figures import figures_of
from harness.report.ledger_table import ledger_table
from tests.planted.cases_records import PLAIN
from tests.planted.tiny import Tiny


def row_of(case: Tiny) -> tuple[str, ...]:
    """Return the row of the topic of a case."""
    evidence = case.evidence()
    table = ledger_table(figures_of(evidence.ledger, evidence.observations))
    assert table.head[:4] == ("topic", "acknowledged or committed", "aborted", "unknown")
    assert all(len(row) == len(table.head) for row in table.rows)
    return next(row[1:] for row in table.rows if row[0] == "t")


def test_records_are_counted_by_fate_and_by_witness() -> None:
    case = Tiny(
        "p1 commit ok a:0-9\n p1 abort ok a:10-12\n p2 send info a:0-4", {"a": "p1:0-9 p2:0-1"}, PLAIN
    )
    assert row_of(case) == ("10", "3", "5", "12")


def test_repeats_are_shown_beside_the_distinct_records() -> None:
    assert row_of(Tiny("p2 send ok a:0-1", {"a": "p2:0 p2:1 p2:1"}, PLAIN)) == (
        "2",
        "0",
        "0",
        "3 (2 distinct)",
    )


def test_a_topic_without_records_has_zeros() -> None:
    assert row_of(Tiny("p2 send ok a:0-1", {"a": "."}, PLAIN)) == ("2", "0", "0", "0")
