"""The race of a delayed EndTxn: which attempts show it, and the check of a single producer's records."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.evidence.checkers.verdict import Verdict
from harness.evidence.history import HistoryFile, HistoryWriter
from harness.evidence.observation import Meta, Window
from harness.evidence.observation_builder import Records, observe
from harness.evidence.record import Identity
from harness.walkthroughs.endtxn_race import ANOMALIES, Attempt, Case, Variant, judge_part

ABORTED = ["Ongoing", "PrepareAbort", "CompleteAbort"]
COMMITTED = ["Ongoing", "PrepareCommit", "CompleteCommit"]


def attempt(variant: Variant, decided: list[str], names: set[str], **fields: Any) -> Attempt:
    case = Case("some", variant, fields.pop("cure", ""))
    judgement: Any = SimpleNamespace(names=lambda: list(names))
    return Attempt(case, "t", [], decided=decided, judgement=judgement, **fields)


def test_a_hazard_needs_both_the_transaction_log_and_its_anomalies() -> None:
    split = ABORTED + ABORTED + COMMITTED
    assert attempt("aC", split, ANOMALIES["aC"]).found
    assert not attempt("aC", split, {"lost"}).found, "another anomaly"
    assert not attempt("aC", ABORTED + COMMITTED, ANOMALIES["aC"]).found, "nothing was split"
    assert attempt("aA", ABORTED * 3, set()).found


def test_an_attempt_is_consistent_if_the_log_agrees_with_the_client_and_nothing_was_found() -> None:
    assert attempt("aC", ABORTED + COMMITTED, set()).consistent
    assert not attempt("aC", ABORTED + COMMITTED, {"lost"}).consistent
    assert not attempt("aC", ABORTED + COMMITTED, set(), error="refused").consistent
    assert not attempt("aC", ABORTED + ABORTED + COMMITTED, set()).consistent
    assert attempt("aC", ABORTED, set(), cure="standby").consistent


def history(folder: Path, number: int) -> HistoryFile:
    """Return the history of a producer that committed two records."""
    path = folder / f"c{number}.jsonl"
    with HistoryWriter(path, run="hazard01", client=f"c{number}", role="transactional") as writer:
        writer.producer(number, [("t", 0)], transactional_id=f"x{number}")
        writer.invoke("begin", producer=number, txn=1)
        op = writer.invoke("commit", producer=number, txn=1, sent=[(0, 0, 1)])
        writer.ok(op)
    return HistoryFile(path)


@pytest.mark.parametrize(("producer", "found"), [(1, set()), (2, {"lost", "torn_transaction"})])
def test_a_partial_check_uses_only_its_producers_records(
    tmp_path: Path, producer: int, found: set[str]
) -> None:
    records = Records()
    for offset, (number, seq) in enumerate([(1, 0), (1, 1), (2, 0)]):
        records.add(0, offset, Identity("hazard01", number, 0, seq, 1))
    window = Window(topic="t", partition=0, start=0, lso=4, hw=4, read_to=4)
    seen = observe(Meta(witness="reader", kind="reference", complete=True, windows=[window]), records)
    judged = judge_part([history(tmp_path, producer)], [seen], [producer])
    assert set(judged.names()) == found
    assert judged.verdict is (Verdict.INVALID if found else Verdict.VALID)
