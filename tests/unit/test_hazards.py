"""What a try of the delayed EndTxn counts as, and whose records a part is judged by."""

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
from harness.walkthroughs.endtxn_race import NAMED, Case, Try, Variant
from harness.walkthroughs.partial_verdict import judge_part

ABORTED = ["Ongoing", "PrepareAbort", "CompleteAbort"]
COMMITTED = ["Ongoing", "PrepareCommit", "CompleteCommit"]


def made(variant: Variant, decided: list[str], names: set[str], **fields: Any) -> Try:
    one = Try(Case("some", variant, fields.pop("cure", "")), "t", 1, [], decided=decided, **fields)
    one.judged = SimpleNamespace(names=lambda: list(names))  # type: ignore[assignment]
    return one


def test_the_hazard_is_found_by_the_log_and_by_name() -> None:
    split = ABORTED + ABORTED + COMMITTED
    assert made("aC", split, NAMED["aC"]).found
    assert not made("aC", split, {"lost"}).found, "another anomaly than was to be shown"
    assert not made("aC", ABORTED + COMMITTED, NAMED["aC"]).found, "nothing was split"
    assert made("aA", ABORTED * 3, set()).found


def test_consistent_is_what_was_told_and_nothing_else() -> None:
    assert made("aC", ABORTED + COMMITTED, set()).consistent
    assert not made("aC", ABORTED + COMMITTED, {"lost"}).consistent
    assert not made("aC", ABORTED + COMMITTED, set(), error="refused").consistent
    assert not made("aC", ABORTED + ABORTED + COMMITTED, set()).consistent
    assert made("aC", ABORTED, set(), cure="standby").consistent


def history(folder: Path, number: int) -> HistoryFile:
    """A producer that committed two records."""
    path = folder / f"c{number}.jsonl"
    with HistoryWriter(path, run="hazard01", client=f"c{number}", role="transactional") as writer:
        writer.producer(number, [("t", 0)], transactional_id=f"x{number}")
        writer.invoke("begin", producer=number, txn=1)
        op = writer.invoke("commit", producer=number, txn=1, sent=[(0, 0, 1)])
        writer.ok(op)
    return HistoryFile(path)


@pytest.mark.parametrize(("producer", "found"), [(1, set()), (2, {"lost", "torn_transaction"})])
def test_a_part_is_judged_by_its_own_records(tmp_path: Path, producer: int, found: set[str]) -> None:
    records = Records()
    for offset, (number, seq) in enumerate([(1, 0), (1, 1), (2, 0)]):
        records.add(0, offset, Identity("hazard01", number, 0, seq, 1))
    window = Window(topic="t", partition=0, start=0, lso=4, hw=4, read_to=4)
    seen = observe(Meta(witness="reader", kind="reference", complete=True, windows=[window]), records)
    judged = judge_part([history(tmp_path, producer)], [seen], [producer])
    assert set(judged.names()) == found
    assert judged.verdict is (Verdict.INVALID if found else Verdict.VALID)
