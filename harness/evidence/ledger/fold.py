"""Computation of every record's fate from the histories: committed, aborted, unknown or never sent.

A transactional record has the fate of its transaction. The fate of any other record is given by its delivery
report. A client writes the intent of every commit to disk before it sends the request. So a transaction
without such an intent was certainly not committed. If a commit was requested and its answer is missing or
unclear, the fate is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast

import numpy as np

from harness.evidence.bit_words import Bools, Ints
from harness.evidence.history import HistoryFile, Producer
from harness.evidence.ledger.history_scan import ABANDON, COMMIT, FAIL, INFO, NO_ANSWER, OK, SEND, Scan
from harness.evidence.ledger.parallel_scan import scans
from harness.evidence.ledger.tables import ABORTED, COMMITTED, NEVER, OPEN_END, UNKNOWN, Ledger, Ownership


def fold(histories: Iterable[HistoryFile]) -> Ledger:
    """Compute the ledger from the histories of one run. The order of the files does not matter."""
    ledger = Ledger()
    for scanned in scans(list(histories)):
        ledger.add_client(scanned)
        _fold_file(ledger, scanned)
        # No checker reads these columns, so free their memory.
        scanned.ends = scanned.sent = scanned.acked = scanned.failed = np.zeros((0, 0), np.int64)
        scanned.done = scanned.ends
    ledger.finish()
    return ledger


class _Answers(NamedTuple):
    kind: Ints
    at: Ints
    line: Ints

    def rows(self, rows: Ints) -> _Answers:
        return _Answers(*(column[rows] for column in self))


def _answers(scanned: Scan, ops: Ints) -> _Answers:
    """Return the answer to each operation: its kind (OK, FAIL or INFO), its time and its history line.

    All three are zero for an operation without an answer.
    """
    done = scanned.done
    if not len(done):
        zeros = np.zeros(len(ops), np.int64)
        return _Answers(zeros, zeros, zeros)
    if np.any(done[1:, 0] <= done[:-1, 0]):
        done = done[np.argsort(done[:, 0], kind="stable")]
    keys = np.ascontiguousarray(done[:, 0])
    rows = np.minimum(np.searchsorted(keys, ops), len(keys) - 1)
    answered = keys[rows] == ops
    return _Answers(done[rows, 1] * answered, done[rows, 2] * answered, done[rows, 3] * answered)


def _fold_file(ledger: Ledger, scanned: Scan) -> None:
    ends = scanned.ends
    answers = _answers(scanned, ends[:, 2])
    _default_producer(ledger, scanned)
    scanned.good = np.sort(scanned.done[scanned.done[:, 1] == OK, 2])
    scanned.waiting = ends[(answers.kind == NO_ANSWER) & (ends[:, 3] != ABANDON)]
    scanned.refused = ends[(answers.kind == FAIL) | (answers.kind == INFO)][:, [2, 0, 4]]
    sends = np.flatnonzero(ends[:, 3] == SEND)
    closes = np.flatnonzero(ends[:, 3] != SEND)
    owner = np.zeros(len(ends), np.int64)
    owner[closes] = _fold_transactions(ledger, scanned, closes, answers.rows(closes))
    fates = np.array([UNKNOWN, COMMITTED, NEVER, UNKNOWN], np.uint8)[answers.kind[sends]]
    owner[sends] = ledger.add_groups(
        Ownership(
            producer=ends[sends, 0],
            txn=np.full(len(sends), -1, np.int64),
            fate=fates,
            asked=ends[sends, 4],
            answered=answers.at[sends],
            ask_line=ends[sends, 5],
            answer_line=answers.line[sends],
            committing=np.ones(len(sends), np.bool_),
            begun=ends[sends, 4],
        )
    )
    rows = scanned.sent
    fate = ledger.fates_of(owner[rows[:, 0]])
    torn_sends = sends[answers.kind[sends] == INFO]
    unclear = np.isin(rows[:, 0], torn_sends) if len(torn_sends) else np.zeros(len(rows), np.bool_)
    kept, fate = (rows[~unclear], fate[~unclear]) if len(torn_sends) else (rows, fate)
    producer = ends[kept[:, 0], 0]
    ledger.add_intervals(np.column_stack([producer, kept[:, 1:], owner[kept[:, 0]]]), fate)
    _fold_unclear_sends(ledger, scanned, np.flatnonzero(unclear), owner)
    _fold_acks(ledger, scanned)
    _fold_tails(ledger, scanned)


def _default_producer(ledger: Ledger, scanned: Scan) -> None:
    """Fill in the producer of operations whose lines do not name one.

    This is possible only if the client declared exactly one producer.
    """
    missing, unnamed = scanned.ends[:, 0] == -1, scanned.begins[:, 0] == -1
    if -1 in scanned.begun or missing.any():
        if len(scanned.producers) != 1:
            ledger.problem(
                scanned.name,
                f"an operation names no producer, but the client declared {len(scanned.producers)}",
            )
            return
        only = next(iter(scanned.producers))
        scanned.ends[missing, 0] = scanned.begins[unnamed, 0] = only
        if -1 in scanned.begun:
            scanned.begun[only] = scanned.begun.pop(-1)


def _fold_transactions(ledger: Ledger, scanned: Scan, rows: Ints, answers: _Answers) -> Ints:
    """Add one group to the ledger for each transaction, and return the index of each row's group.

    `rows` are the commits, aborts and abandons, as row numbers of `scanned.ends`. A transaction may have
    several such rows.
    """
    ends = scanned.ends[rows]
    order = np.lexsort((ends[:, 2], ends[:, 1], ends[:, 0]))
    ends = ends[order]
    answer, answered, answer_line = answers.rows(order)
    new = np.ones(len(ends), np.bool_)
    new[1:] = (ends[1:, 0] != ends[:-1, 0]) | (ends[1:, 1] != ends[:-1, 1])
    starts = np.flatnonzero(new)
    if not len(starts):
        return np.zeros(0, np.int64)
    commit = ends[:, 3] == COMMIT

    def any_of(mask: Bools) -> Bools:
        return cast(Bools, np.logical_or.reduceat(mask, starts))

    committed, aborted = any_of(commit & (answer == OK)), any_of(~commit & (answer == OK))
    open_commit = any_of(commit & ((answer == NO_ANSWER) | (answer == INFO)))
    # If both a commit and an abort were confirmed, the history contradicts itself. The fate is then unknown.
    fate = np.select(
        [committed & aborted, committed, aborted, open_commit],
        [UNKNOWN, COMMITTED, ABORTED, UNKNOWN],
        ABORTED,
    ).astype(np.uint8)
    for i in np.flatnonzero(committed & aborted)[:3].tolist():
        row = ends[starts[i]]
        ledger.problem(scanned.name, f"line {row[5]}: transaction {row[1]} was both committed and aborted")
    asks_commit = any_of(commit)
    never = np.iinfo(np.int64).max
    asked = np.minimum.reduceat(np.where(commit, ends[:, 4], never), starts)
    first = ledger.add_groups(
        Ownership(
            producer=ends[starts, 0],
            txn=ends[starts, 1],
            fate=fate,
            asked=np.where(asks_commit, asked, ends[starts, 4]),
            answered=np.maximum.reduceat(answered, starts),
            ask_line=ends[starts, 5],
            answer_line=np.maximum.reduceat(answer_line, starts),
            committing=asks_commit,
            begun=_begun(scanned, ends[starts]),
        )
    )
    owner = np.empty(len(rows), np.int64)
    owner[order] = first[np.cumsum(new) - 1]
    return owner


def _begun(scanned: Scan, transactions: Ints) -> Ints:
    """Return the time at which each transaction first began, or 0 if the history does not list this.

    The first two columns of `transactions` are the producer and the number of the transaction.
    """
    asked = np.column_stack([transactions[:, :2], np.full(len(transactions), -1)])
    rows = np.concatenate([scanned.begins, asked])
    # Sort each transaction directly behind the earliest of its beginnings.
    order = np.lexsort((-rows[:, 2], rows[:, 1], rows[:, 0]))
    rows = rows[order]
    began = np.zeros(len(rows), np.int64)
    same = np.all(rows[1:, :2] == rows[:-1, :2], axis=1)
    began[1:] = np.where(same, np.maximum(rows[:-1, 2], 0), 0)
    result = np.empty(len(rows), np.int64)
    result[order] = began
    return result[len(scanned.begins) :]


def _fold_unclear_sends(ledger: Ledger, scanned: Scan, rows: Ints, owner: Ints) -> None:
    """Assign fates to the records of sends whose answer is unclear.

    Acknowledged records are committed. Failed records were certainly not written. The fate of all other
    records is unknown.
    """
    parts: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for op, lane, low, high, *_ in scanned.acked.tolist():
        parts.setdefault((op, lane), []).append((low, high, COMMITTED))
    for op, lane, low, high in scanned.failed.tolist():
        parts.setdefault((op, lane), []).append((low, high, NEVER))
    for row in scanned.sent[rows].tolist():
        end, lane, first, last = row
        producer = int(scanned.ends[end, 0])
        known = parts.get((int(scanned.ends[end, 2]), lane), [])
        at = first
        pieces = []
        # An operation may have several intervals in one lane, so select the delivery reports that belong to
        # this interval. A report may be repeated, so skip those whose sequences already have a fate.
        for low, high, fate in sorted(piece for piece in known if first <= piece[0] <= last):
            if high >= at:
                pieces += [(at, low - 1, UNKNOWN), (max(low, at), high, fate)]
                at = high + 1
        for low, high, fate in [*pieces, (at, last, UNKNOWN)]:
            if low <= high:
                interval = np.array([[producer, lane, low, high, owner[end]]], np.int64)
                ledger.add_intervals(interval, np.array([fate], np.uint8))


def _fold_acks(ledger: Ledger, scanned: Scan) -> None:
    acked = scanned.acked[scanned.acked[:, 4] >= 0] if len(scanned.acked) else scanned.acked
    if not len(acked):
        return
    ops = scanned.ends[:, 2]
    order = np.argsort(ops, kind="stable")
    rows = order[np.minimum(np.searchsorted(ops[order], acked[:, 0]), len(ops) - 1)]
    known = ops[rows] == acked[:, 0]
    if not known.all():
        line = int(acked[~known][0, 5])
        ledger.problem(scanned.name, f"line {line}: an acknowledgement for an operation that sent nothing")
    ledger.add_acks(scanned.ends[rows[known], 0], acked[known])


def _fold_tails(ledger: Ledger, scanned: Scan) -> None:
    """Add open-ended intervals for transactions that have no commit, abort or abandon line in the history.

    Only such a line lists the records of a transaction, so the records of these transactions are not listed.
    In each lane, the interval begins after the last sequence that the history lists.
    """
    for producer, (txn, line) in scanned.begun.items():
        ends = scanned.ends[scanned.ends[:, 0] == producer]
        if np.any((ends[:, 1] == txn) & (ends[:, 3] != SEND)) or producer not in scanned.producers:
            continue
        one = np.ones(1, np.int64)
        group = ledger.add_groups(
            Ownership(
                producer=one * producer,
                txn=one * txn,
                fate=np.array([ABORTED], np.uint8),
                asked=one * 0,
                answered=one * 0,
                ask_line=one * line,
                answer_line=one * 0,
                committing=np.zeros(1, np.bool_),
                begun=one * 0,
            )
        )
        declared = cast(Producer, scanned.producers[producer].line)
        rows = (
            scanned.sent[scanned.ends[scanned.sent[:, 0], 0] == producer]
            if len(scanned.sent)
            else scanned.sent
        )
        for lane in range(len(declared.lanes)):
            sent = rows[rows[:, 1] == lane] if len(rows) else rows
            first = int(sent[:, 3].max()) + 1 if len(sent) else 0
            tail = np.array([[producer, lane, first, OPEN_END, group[0]]], np.int64)
            ledger.add_intervals(tail, np.array([ABORTED], np.uint8))
