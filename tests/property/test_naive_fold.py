"""The fold gives the same ledger as a naive fold, and the verdict calls no history wrong that is only holed.

`pytest tests/property` compares 2,000 random histories; `pytest --soak -m soak tests/property` compares
100,000.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from harness.evidence.bit_words import split_lane_key
from harness.evidence.checkers.model import Evidence, Verdict
from harness.evidence.checkers.verdict import Judgement, judge
from harness.evidence.history import HistoryFile
from harness.evidence.ledger import FATE_NAMES, Ledger, fold
from harness.evidence.observation import Meta, Window
from harness.evidence.observation_builder import Records, observe
from harness.evidence.record import NONE, Identity
from tests.property.naive_fold import HORIZON, Naive, naive_fold
from tests.property.random_histories import draw_histories

QUICK, QUICK_VERDICTS = 2_000, 300
SOAK, SOAK_VERDICTS = 100_000, 5_000
BLOCK = 250


def fold_of(files: dict[str, bytes]) -> Ledger:
    return fold([HistoryFile(Path(f"{name}.jsonl"), data) for name, data in files.items()])


def records_of(ledger: Ledger) -> dict[tuple[int, int, int], str]:
    """Return the fate of each record: by producer, lane and sequence."""
    rows, records = ledger.intervals, {}
    for lane, first, last, fate in zip(rows.lane, rows.first, rows.last, rows.fate, strict=True):
        key = split_lane_key(int(ledger.lanes[lane]))
        for seq in range(first, min(last, HORIZON) + 1):
            records[*key, seq] = FATE_NAMES[int(fate)]
    return records


def transactions_of(ledger: Ledger) -> list[tuple[int, ...]]:
    return sorted(
        (*row[:2], FATE_NAMES[row[2]], *row[3:5], row[7], row[8])
        for row in zip(*(column.tolist() for column in ledger.groups), strict=True)
        if row[1] >= 0
    )


def acks_of(ledger: Ledger) -> list[tuple[int, ...]]:
    return sorted((*split_lane_key(int(ledger.lanes[row[0]])), *row[1:4]) for row in ledger.acks.tolist())


def compare(seed: int) -> None:
    """Compare both folds of the histories of one seed."""
    files = draw_histories(random.Random(seed))
    ledger, naive = fold_of(files), naive_fold(files)
    text = "\n".join(f"{name}\n{data.decode()}" for name, data in files.items())
    why = f"seed {seed}: {ledger.problems}, {sorted(naive.problems)}\n{text}"

    expected = {(*lane, seq): fate for lane, of in naive.records.items() for seq, fate in of.items()}
    assert records_of(ledger) == expected, why
    assert transactions_of(ledger) == sorted((*key, *values) for key, values in naive.transactions.items()), (
        why
    )
    assert acks_of(ledger) == sorted(naive.acks), why
    assert ledger.with_gaps == naive.with_gaps, why
    assert bool(ledger.problems) == bool(naive.problems), why


def witness(naive: Naive, draw: random.Random) -> Evidence | None:
    """Return a log that fits the naive fold: committed records once, undecided ones or not."""
    shown: dict[object, bool] = {}
    places = sorted(set(naive.lanes.values()))
    records = Records()
    offsets = dict.fromkeys(places, 0)
    for lane, place in sorted(naive.lanes.items()):
        for seq, fate in sorted(naive.records[lane].items()):
            unit = naive.units[lane][seq]
            key = unit if unit is not None and unit[1] != "send" else (lane, seq)
            if fate == "committed" or (fate == "unknown" and shown.setdefault(key, draw.random() < 0.5)):
                identity = Identity("r7k2m9qa", *lane, seq, 0, NONE)
                records.add(places.index(place), offsets[place], identity)
                offsets[place] += 1
    meta = Meta(witness="reader", kind="reference", purpose="all", complete=True)
    meta.windows = [
        Window(topic=topic, partition=number, start=0, lso=end, hw=end, read_to=end)
        for (topic, number), end in offsets.items()
    ]
    return observe(meta, records)


def judged(seed: int) -> tuple[Naive, Judgement, str]:
    draw = random.Random(seed)
    files = draw_histories(draw, offsets=False)
    naive = naive_fold(files)
    judgement = judge(Evidence(fold_of(files), [witness(naive, draw)]))
    text = "\n".join(f"{name}\n{data.decode()}" for name, data in files.items())
    return naive, judgement, f"seed {seed}: {judgement.encode().decode()}\n{text}"


def check_verdict(seed: int) -> Verdict:
    """A log that fits the histories is never called wrong, and never valid if the histories are not whole."""
    naive, judgement, why = judged(seed)
    assert judgement.names() == [], why
    if naive.problems:
        assert judgement.verdict is Verdict.UNKNOWN, why
    return judgement.verdict


@pytest.mark.parametrize("block", range(QUICK // BLOCK))
def test_both_folds_give_the_same_ledger(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        compare(seed)


def test_a_log_that_fits_its_histories_is_never_called_wrong() -> None:
    verdicts = {check_verdict(seed) for seed in range(QUICK_VERDICTS)}

    assert verdicts == {Verdict.VALID, Verdict.UNKNOWN}


def test_the_random_histories_reach_every_fate_and_both_kinds_of_histories() -> None:
    fates: set[str] = set()
    problems: set[str] = set()
    whole = 0
    for seed in range(1_500):
        naive = naive_fold(draw_histories(random.Random(seed)))
        fates |= {fate for of in naive.records.values() for fate in of.values()}
        problems |= naive.problems
        whole += not naive.problems

    assert fates == set(FATE_NAMES.values())
    assert 300 < whole < 1_200
    assert problems == {
        "acknowledged nothing",
        "acknowledged what was not listed",
        "committed and aborted",
        "declared differently",
        "delivered and failed",
        "gap in a lane",
        "lines after a closing line",
        "no number",
        "no producer named",
        "number used again",
        "numbers",
        "operations",
        "send of a transactional producer",
        "sent twice",
        "undeclared lane",
    }


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_both_folds_give_the_same_ledger() -> None:
    for seed in range(QUICK, SOAK):
        compare(seed)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_soak_a_log_that_fits_its_histories_is_never_called_wrong() -> None:
    for seed in range(QUICK_VERDICTS, SOAK_VERDICTS):
        check_verdict(seed)
