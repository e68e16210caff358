"""The contract of an application: counts are of distinct outputs, whatever the number of witnesses."""

from __future__ import annotations

import pytest

from tests.planted.cases_contract import ALL, AppCase


@pytest.mark.parametrize(
    ("case", "name", "counted"),
    [
        pytest.param(AppCase(ALL, "p1a:0-9 p1b:0-4"), "processed_twice", 15, id="copies-elsewhere"),
        pytest.param(AppCase("p1a:0-9 p1b:0-4"), "never_processed", 4, id="missing"),
        pytest.param(
            AppCase("p1a:0-9 p1b:0-4", each=(2, 2), order="none"), "never_processed", 19, id="one-of-two"
        ),
        pytest.param(
            AppCase("p1a:0-9 p1b:0-4", other="p1a:0-9 p1b:0-4", witnesses=("reader", "spark")),
            "never_processed",
            4,
            id="two-witnesses",
        ),
    ],
)
def test_counts_are_exact(case: AppCase, name: str, counted: int) -> None:
    found = {a.name: a.count for result in case.judge().results for a in result.anomalies}
    assert found == {name: counted}
