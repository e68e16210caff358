"""Check of the operations of one history: their numbers have no gap, and each answer has one earlier request.

A client numbers its operations from 0 and writes one request line for each. Its file only grows. So a gap in
the numbers, or an answer without a request, shows that lines are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from harness.evidence.bit_words import Bools, Ints, find_rows, sorted_rows, take_rows
from harness.evidence.ledger.history_scan import FAIL, INFO, OK, Scan

NAMED: Final = 3
"""Number of problems of one kind that are named one by one."""


class Operations(NamedTuple):
    """The result of the check of one history."""

    problems: list[str]
    disputed: Ints
    """Sorted numbers of the operations whose answers contradict each other or their requests."""
    has_gaps: bool
    """Whether requests are missing from the history."""


def check_operations(scanned: Scan) -> Operations:
    """Compare the numbers of a client's operations, and its answers with its requests."""
    asks, done = sorted_rows(scanned.asks, 0, 3), sorted_rows(scanned.done, 0, 3)
    problems, missing = _gaps(asks)
    again = np.append(False, asks[1:, 0] == asks[:-1, 0]) if len(asks) else np.zeros(0, np.bool_)
    problems += _name(
        again,
        lambda i: (
            f"line {asks[i, 3]}: number {asks[i, 0]} is the number of the operation in line {asks[i - 1, 3]}"
        ),
    )
    first = asks[~again] if again.any() else asks
    request = (
        take_rows(first, find_rows(first[:, 0], done[:, 0])) if len(first) else np.full((len(done), 4), -1)
    )
    requested = request[:, 0] == done[:, 0]
    problems += _name(
        ~requested,
        lambda i: (
            f"line {done[i, 3]}: an answer to operation {done[i, 0]}, which no line of the history requests"
        ),
    )
    early = requested & ((done[:, 3] < request[:, 3]) | (done[:, 2] < request[:, 2]))
    problems += _name(
        early,
        lambda i: (
            f"line {done[i, 3]}: the answer to operation {done[i, 0]} is before its request in line "
            f"{request[i, 3]}"
        ),
    )
    other = requested & (done[:, 4] != request[:, 1])
    problems += _name(
        other,
        lambda i: (
            f"line {done[i, 3]}: the answer to operation {done[i, 0]} names another operation than "
            f"its request in line {request[i, 3]}"
        ),
    )
    twice = np.append(False, done[1:, 0] == done[:-1, 0]) if len(done) else np.zeros(0, np.bool_)
    problems += _name(
        twice & requested,
        lambda i: f"line {done[i, 3]}: operation {done[i, 0]} was already answered in line {done[i - 1, 3]}",
    )
    contrary = _contrary(scanned, done)
    problems += _name(
        contrary,
        lambda i: (
            f"line {done[i, 3]}: the answer to operation {done[i, 0]} contradicts the delivery of its records"
        ),
    )
    disputed = np.union1d(asks[again, 0], done[early | other | twice | contrary, 0]).astype(np.int64)
    return Operations(problems, disputed, bool(missing or (~requested).any()))


def _gaps(asks: Ints) -> tuple[list[str], bool]:
    """Return the gaps in the numbers of requests as texts, and whether there are any."""
    unnumbered = asks[:, 0] < 0
    problems = _name(unnumbered, lambda i: f"line {asks[i, 3]}: an operation without a number")
    rows = asks[~unnumbered] if unnumbered.any() else asks
    before = np.append(-1, rows[:-1, 0])
    gap = rows[:, 0] > before + 1 if len(rows) else np.zeros(0, np.bool_)
    problems += _name(
        gap, lambda i: f"line {rows[i, 3]}: {_missing(int(before[i]) + 1, int(rows[i, 0]) - 1)}"
    )
    return problems, bool(unnumbered.any() or gap.any())


def _missing(first: int, last: int) -> str:
    missing = f"operation {first} is" if first == last else f"operations {first}-{last} are"
    return f"operation {last + 1} is requested, but {missing} missing from the history"


def _contrary(scanned: Scan, done: Ints) -> Bools:
    """Return a mask of the answers that contradict their own delivery reports.

    An operation that certainly took effect has no failed records, and one that certainly did not has no
    acknowledged ones.
    """
    failed, acked = scanned.failed[:, 0], scanned.acked[:, 0]
    contrary: Bools = (done[:, 1] == OK) & np.isin(done[:, 0], failed)
    if (is_fail := done[:, 1] == FAIL).any():
        contrary |= is_fail & np.isin(done[:, 0], acked)
    return contrary


def _name(mask: Bools, describe: Callable[[int], str]) -> list[str]:
    """Describe the first rows of a mask, and count the others."""
    rows = np.flatnonzero(mask).tolist()
    texts = [describe(i) for i in rows[:NAMED]]
    if len(rows) > NAMED:
        texts[-1] += f" (and {len(rows) - NAMED} more of this kind)"
    return texts


def set_aside_disputed(scanned: Scan, disputed: Ints) -> None:
    """Make the answers to disputed operations unclear, and drop their times and delivery reports."""
    if not len(disputed):
        return
    answers = np.isin(scanned.done[:, 0], disputed)
    scanned.done[answers, 1], scanned.done[answers, 2] = INFO, 0
    scanned.ends[np.isin(scanned.ends[:, 2], disputed), 4] = 0
    scanned.acked = scanned.acked[~np.isin(scanned.acked[:, 0], disputed)]
    scanned.failed = scanned.failed[~np.isin(scanned.failed[:, 0], disputed)]
