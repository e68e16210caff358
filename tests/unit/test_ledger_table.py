"""The table of a report that shows what was written to each topic, and what each witness read there."""

from __future__ import annotations

from harness.evidence.checkers.run_figures import PERCENTILES, Curve, figures_of
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


def test_the_curves_show_rates_answer_times_and_the_lag_of_groups() -> None:
    case = Tiny(
        """
        @1-1.5 p2 send ok a:0-3
        @1-4 p1 commit ok a:0-9
        @2-2.1 p1 abort ok a:10-12
        @2 look i 10/12
        @2 group i:7
        @3 group i:10
        """,
        {"a": "p2:0-3 p1:0-9"},
        PLAIN,
    )
    evidence = case.evidence()
    figures = figures_of(evidence.ledger, evidence.observations)

    def points(curve: Curve) -> list[tuple[int, float]]:
        return [(at // 10**9, value) for at, value in curve if value]

    assert points(figures.records["committed"]) == [(1, 4.0), (4, 10.0)]
    assert points(figures.records["aborted"]) == [(2, 3.0)]
    assert list(figures.sends) == list(PERCENTILES)
    for curves, second, millis in ((figures.sends, 1, 500), (figures.commits, 4, 3000)):
        for curve in curves.values():
            ((at, value),) = points(curve)
            assert (at, round(value / 10)) == (second, millis / 10)
    assert [points(curve) for curve in figures.lags.values()] == [[(2, 3.0)]]


def test_a_long_run_has_few_points_and_a_time_far_away_does_not_stretch_them() -> None:
    lines = "\n".join(f"@{at}-{at + 0.25} p2 send ok a:{at}-{at}" for at in range(1, 9000))
    evidence = Tiny(f"{lines}\n@900000-900001 p2 send ok a:9000-9000", {"a": "p2:1-9000"}, PLAIN).evidence()
    figures = figures_of(evidence.ledger, evidence.observations)

    assert figures.slice_s == 3
    assert len(figures.records["committed"]) <= 3601
    assert sum(value for _, value in figures.records["committed"]) * figures.slice_s == 9000
