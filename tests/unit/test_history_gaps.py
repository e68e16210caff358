"""The reasons for an unknown verdict name the client, the line and what is missing from a history."""

from __future__ import annotations

import re

import pytest

from harness.evidence.checkers.model import Verdict
from tests.planted.cases_ledger import KINDS, NEAR_MISSES, SENDS, changed, drop
from tests.planted.tiny import Tiny

CASES = [(kind, label, *case) for kind, cases in KINDS.items() for label, case in cases.items()]


def reasons(case: Tiny) -> list[str]:
    return [reason for result in case.judge().results for reason in result.reasons]


@pytest.mark.parametrize(("kind", "label", "case", "reason"), CASES, ids=[f"{c[0]}: {c[1]}" for c in CASES])
def test_a_history_that_is_not_whole_is_unknown_with_a_reason(
    kind: str, label: str, case: Tiny, reason: str
) -> None:
    judgement = case.judge()

    assert judgement.verdict is Verdict.UNKNOWN, judgement.encode().decode()
    assert judgement.names() == [], f"{kind}, {label}"
    found = [text for result in judgement.results for text in result.reasons]
    assert any(re.search(reason, text) for text in found), found
    assert not any("crashed" in text for text in found), found


def test_every_kind_has_three_cases() -> None:
    assert all(len(cases) >= 3 for cases in KINDS.values())
    assert sum(map(len, NEAR_MISSES.values())) >= 3 * len(KINDS) - 3


def test_many_problems_of_one_kind_are_counted() -> None:
    sends = "\n".join(f"p2 send ok a:{5 * n}-{5 * n + 4}" for n in range(12))
    case = changed(sends, {"a": "p2:0-59"}, *(drop("p2", n) for n in (1, 3, 5, 7, 9)))

    missing = [text for text in reasons(case) if "missing from the history" in text]

    assert len(missing) == 3
    assert missing[-1].endswith("(and 2 more of this kind)")


def test_a_whole_history_has_no_reason() -> None:
    assert reasons(Tiny(SENDS, {"a": "p2:0-14"}, {"p2": {"transactional_id": None}})) == []
