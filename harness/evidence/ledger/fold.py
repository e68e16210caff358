"""Computation of every record's fate from the histories: committed, aborted, unknown or never sent.

A transactional record has the fate of its transaction. The fate of any other record is given by its delivery
report. A client writes the intent of every commit to disk before it sends the request. So a transaction
without such an intent was certainly not committed. If a commit was requested and its answer is missing or
unclear, the fate is unknown.

All of this holds only for a whole history. If requests are missing from it, nothing follows from the absence
of a line. docs/history-format.md lists what is demanded of a history.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple, cast

import numpy as np

from harness.evidence.bit_words import LANES, Bools, Ints, are_sorted, find_rows, sorted_order, take_rows
from harness.evidence.history import HistoryFile, Producer
from harness.evidence.ledger.history_scan import (
    ABANDON,
    ABORT,
    COMMIT,
    FAIL,
    INFO,
    NO_ANSWER,
    OK,
    SEND,
    Scan,
    scan,
)
from harness.evidence.ledger.operations import NAMED, check_operations, set_aside_disputed
from harness.evidence.ledger.tables import (
    ABORTED,
    COMMITTED,
    LOOSE,
    NEVER,
    OPEN_END,
    OUTSIDE,
    UNKNOWN,
    Ledger,
    LedgerPart,
    Ownership,
)
from harness.evidence.record import MAX_LANE, MAX_PRODUCER, MAX_SEQ

_NO_TIME: Final = np.iinfo(np.int64).max


def fold(
    histories: Iterable[HistoryFile], started: Collection[str] = (), finished: Collection[str] = ()
) -> Ledger:
    """Compute the ledger from the histories of one run. The order of the files does not matter.

    `started` are the clients that are known to have been started. If one has no history, all its requests are
    missing. `finished` are those that ended normally. If such a history has no closing line, lines are
    missing at its end.
    """
    ledger = Ledger()
    for history in histories:
        ledger.add_part(fold_file(history, finished))
    ledger.with_gaps |= set(started) - {client.name for client in ledger.clients if client.lines}
    ledger.finish()
    return ledger


def fold_file(history: HistoryFile, finished: Collection[str] = ()) -> LedgerPart:
    """Compute the part of the ledger that one history gives, apart from all others."""
    scanned = scan(history)
    ledger = Ledger()
    operations = check_operations(scanned)
    set_aside_disputed(scanned, operations.disputed)
    scanned.asks = scanned.asks[:0].copy()  # to free their memory
    is_cut = scanned.closing is None and scanned.name in finished
    is_miscounted = bool(scanned.miscounted)
    ledger.add_client(scanned, has_gaps=operations.has_gaps or is_cut or is_miscounted)
    ledger.problems.clear()  # the ledger of the run finds them again, and those between clients
    if is_cut:
        ledger.problem(scanned.name, "the client ended normally, but its history has no closing line")
    counted = [scanned.miscounted] if is_miscounted else []
    for problem in [*counted, *scanned.misplaced, *operations.problems]:
        ledger.problem(scanned.name, problem)
    _check_numbers(ledger, scanned)
    _fold_file(ledger, scanned)
    # No checker reads these columns, so free their memory. A slice would keep its whole table.
    scanned.begin_times = scanned.begins[:, 2].copy()
    scanned.begins = np.zeros((0, 4), np.int64)
    scanned.lateness = scanned.lateness.copy()
    scanned.ends = scanned.sent = scanned.acked = scanned.failed = np.zeros((0, 0), np.int64)
    scanned.done = scanned.asks = scanned.ends
    return ledger.part(scanned)


def _check_numbers(ledger: Ledger, scanned: Scan) -> None:
    """Report numbers for which the identity of a record has no room, and drop them.

    Otherwise they would be taken for the numbers of another lane.
    """
    number = scanned.ends[:, 0]
    outside = (number < -1) | (number > MAX_PRODUCER)
    _report(ledger, scanned, scanned.ends[outside, 5], "the number of its producer is not allowed")
    number[outside] = OUTSIDE
    begins = scanned.begins[:, 0]
    begins[(begins < -1) | (begins > MAX_PRODUCER)] = OUTSIDE
    rows = scanned.sent
    _, lane, first, last = rows.T
    bad_lane = (lane < 0) | (lane > MAX_LANE)
    bad_seq = (first < 0) | (last > MAX_SEQ)
    backwards = last < first
    if not (bad_lane | bad_seq | backwards).any():
        return
    lines = scanned.ends[rows[:, 0], 5]
    _report(ledger, scanned, lines[bad_lane], f"a lane is not in 0-{MAX_LANE}")
    _report(ledger, scanned, lines[bad_seq], f"a sequence is not in 0-{MAX_SEQ}")
    _report(ledger, scanned, lines[backwards], "an interval ends before it starts")
    np.minimum(last, MAX_SEQ, out=last)
    scanned.sent = rows[~bad_lane & ~backwards & (first >= 0) & (first <= MAX_SEQ)]


def _report(ledger: Ledger, scanned: Scan, lines: Ints, what: str) -> None:
    """Record a problem for each of these lines; name at most NAMED of them."""
    for line in np.unique(lines)[:NAMED].tolist():
        ledger.problem(scanned.name, f"line {line}: {what}")


class _Answers(NamedTuple):
    kind: Ints
    at: Ints
    line: Ints

    def rows(self, rows: Ints | slice) -> _Answers:
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
    rows = find_rows(done[:, 0], ops)
    answered = done[rows, 0] == ops
    return _Answers(done[rows, 1] * answered, done[rows, 2] * answered, done[rows, 3] * answered)


def _fold_file(ledger: Ledger, scanned: Scan) -> None:
    ends = scanned.ends
    answers = _answers(scanned, ends[:, 2])
    scanned.done = scanned.done[:0].copy()  # to free their memory
    _default_producer(ledger, scanned)
    # A request without a time is disputed.
    scanned.waiting = ends[(answers.kind == NO_ANSWER) & (ends[:, 3] != ABANDON) & (ends[:, 4] > 0)]
    scanned.refused = ends[(answers.kind == FAIL) | (answers.kind == INFO)][:, [2, 0, 4]]
    sends = np.flatnonzero(ends[:, 3] == SEND)
    closes = np.flatnonzero(ends[:, 3] != SEND)
    group = np.zeros(len(ends), np.int64)
    group[closes] = _fold_transactions(ledger, scanned, closes, answers.rows(closes))
    group[sends] = _fold_sends(ledger, scanned, sends, answers.rows(sends))
    owner = np.where(_is_loose(ledger, scanned), LOOSE, group)
    _fold_acks(ledger, scanned, group)
    rows = scanned.sent
    fate = ledger.fates_of(owner[rows[:, 0]])
    torn_sends = sends[(answers.kind[sends] == INFO) & (owner[sends] != LOOSE)]
    unclear = np.isin(rows[:, 0], torn_sends) if len(torn_sends) else np.zeros(len(rows), np.bool_)
    kept, fate = (rows[~unclear], fate[~unclear]) if len(torn_sends) else (rows, fate)
    producer = ends[kept[:, 0], 0]
    ledger.add_intervals(np.stack([producer, *kept.T[1:], owner[kept[:, 0]]]).T, fate)
    _fold_unclear_sends(ledger, scanned, np.flatnonzero(unclear), owner)
    _fold_tails(ledger, scanned)


def _fold_sends(ledger: Ledger, scanned: Scan, rows: Ints, answers: _Answers) -> Ints:
    """Add one group to the ledger for each send, and return the indices of the groups."""
    ends = _rows_of(scanned.ends, rows)
    return ledger.add_groups(
        Ownership(
            producer=ends[:, 0],
            txn=np.full(len(rows), -1, np.int64),
            fate=np.array([UNKNOWN, COMMITTED, NEVER, UNKNOWN], np.uint8)[answers.kind],
            asked=ends[:, 4],
            answered=answers.at,
            ask_line=ends[:, 5],
            answer_line=answers.line,
            committing=np.ones(len(rows), np.bool_),
            begun=ends[:, 4],
        )
    )


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
            begun = (scanned.begun.pop(-1), scanned.begun.get(only, (-1, 0)))
            scanned.begun[only] = max(begun, key=lambda begin: begin[1])


def _is_loose(ledger: Ledger, scanned: Scan) -> Bools:
    """Return a mask of the rows of `scanned.ends` whose records cannot be assigned to a transaction or send.

    The history shows that these records may have been sent, but not what became of them.
    """
    ends = scanned.ends
    transactional = [
        number
        for number, (_, declared) in scanned.producers.items()
        if cast(Producer, declared).transactional_id is not None
    ]
    stray = (ends[:, 3] == SEND) & np.isin(ends[:, 0], transactional)
    _report(
        ledger,
        scanned,
        ends[stray, 5],
        "a send of a producer with a transactional id: the end of the transaction must list its records",
    )
    unnumbered = (ends[:, 3] != SEND) & (ends[:, 1] < 0)
    _report(ledger, scanned, ends[unnumbered, 5], "the end of a transaction without its number")
    loose: Bools = stray | unnumbered | np.isin(ends[:, 0], list(scanned.moved))
    for producer, txn in scanned.reused.tolist():
        loose |= (ends[:, 0] == producer) & (ends[:, 1] == txn) & (ends[:, 3] != SEND)
    return loose


def _fold_transactions(ledger: Ledger, scanned: Scan, rows: Ints, answers: _Answers) -> Ints:
    """Add one group to the ledger for each transaction, and return the index of each row's group.

    `rows` are the commits, aborts and abandons, as row numbers of `scanned.ends`. A transaction may have
    several such rows.
    """
    ends = _rows_of(scanned.ends, rows)
    order = _order_of(ends[:, 0], ends[:, 1], ends[:, 2])
    ends = ends[order]
    answer, answered, answer_line = answers.rows(order)
    new = np.ones(len(ends), np.bool_)
    new[1:] = (ends[1:, 0] != ends[:-1, 0]) | (ends[1:, 1] != ends[:-1, 1])
    starts = np.flatnonzero(new)
    if not len(starts):
        return np.zeros(0, np.int64)
    commit = ends[:, 3] == COMMIT

    def any_of(mask: Bools) -> Bools:
        return mask if len(starts) == len(mask) else cast(Bools, np.logical_or.reduceat(mask, starts))

    # An abandoned transaction has no request, so its answer proves nothing about an earlier commit.
    committed, aborted = any_of(commit & (answer == OK)), any_of((ends[:, 3] == ABORT) & (answer == OK))
    open_commit = any_of(commit & ((answer == NO_ANSWER) | (answer == INFO)))
    # The request of a commit may be among the missing lines.
    is_whole = scanned.name not in ledger.with_gaps
    # If both a commit and an abort were confirmed, the history contradicts itself. The fate is then unknown.
    fate = np.select(
        [committed & aborted, committed, aborted, open_commit],
        [UNKNOWN, COMMITTED, ABORTED, UNKNOWN],
        ABORTED if is_whole else UNKNOWN,
    ).astype(np.uint8)
    for i in np.flatnonzero(committed & aborted)[:NAMED].tolist():
        row = ends[starts[i]]
        ledger.problem(scanned.name, f"line {row[5]}: transaction {row[1]} was both committed and aborted")
    scanned.reused = _reused(ledger, scanned, ends, rows[order])
    fate[(ends[starts, 1] < 0) | _in_pairs(ends[starts, :2], scanned.reused)] = UNKNOWN
    asks_commit = any_of(commit)
    asked = np.minimum.reduceat(np.where(commit, ends[:, 4], _NO_TIME), starts)
    first = ledger.add_groups(
        Ownership(
            producer=ends[starts, 0],
            txn=ends[starts, 1],
            fate=fate,
            asked=np.where(asks_commit, asked, ends[starts, 4]),
            answered=np.maximum.reduceat(answered, starts),
            ask_line=ends[starts, 5],
            answer_line=np.maximum.reduceat(answer_line, starts),
            # A commit may have been requested earlier, in a missing line. So its time proves nothing.
            committing=asks_commit & is_whole,
            begun=_begun(scanned, ends[starts]),
        )
    )
    owner = np.empty(len(rows), np.int64)
    owner[order] = first[np.cumsum(new) - 1]
    return owner


def _rows_of(table: Ints, rows: Ints) -> Ints:
    """Return these different rows of a table; the table itself if these are all."""
    return table if len(rows) == len(table) else take_rows(table, rows)


def _order_of(*keys: Ints) -> Ints | slice:
    """Return the stable order of rows by their keys; the slice of all rows if they are sorted."""
    return slice(None) if are_sorted(*keys) else np.lexsort(keys[::-1])


def _in_pairs(rows: Ints, pairs: Ints) -> Bools:
    found: Bools = np.zeros(len(rows), np.bool_)
    for pair in pairs:
        found |= np.all(rows == pair, axis=1)
    return found


def _reused(ledger: Ledger, scanned: Scan, ends: Ints, rows: Ints) -> Ints:
    """Return the transactions whose number the client used for several transactions: (producer, number).

    A producer has one transaction at a time. So another transaction, or another begin, between two ends of
    a number shows that there are two transactions. So does an end that lists other records than the ends
    before it. `ends` are the commits, aborts and abandons, sorted by producer, transaction and operation, and
    `rows` are their row numbers in `scanned.ends`.
    """
    if _are_in_turn(ends, scanned.begins):
        return np.zeros((0, 2), np.int64)
    is_named = ends[:, 1] >= 0
    named, rows = ends[is_named], rows[is_named]
    is_begin = np.append(np.zeros(len(named), np.bool_), np.ones(len(scanned.begins), np.bool_))
    events = np.concatenate([named[:, [0, 1, 5]], scanned.begins[:, [0, 1, 3]]])
    order = sorted_order(events[:, 0], events[:, 2])
    events, is_begin = events[order], is_begin[order]
    starts = np.ones(len(events), np.bool_)
    starts[1:] = np.any(events[1:, :2] != events[:-1, :2], axis=1) | (is_begin[1:] & ~is_begin[:-1])
    runs = events[starts]
    runs = runs[sorted_order(runs[:, 0], runs[:, 1], runs[:, 2])]
    again = runs[1:][np.all(runs[1:, :2] == runs[:-1, :2], axis=1)]
    # Two beginnings without any end between them are one transaction of which nothing is listed yet.
    again = again[_in_pairs(again[:, :2], named[:, :2])] if len(again) else again
    reused = {(p, t): line for p, t, line in again[::-1].tolist()}
    for producer, txn, line in _other_lists(scanned, named, rows):
        reused.setdefault((producer, txn), line)
    for (producer, txn), line in sorted(reused.items(), key=lambda item: item[1])[:NAMED]:
        ledger.problem(
            scanned.name, f"line {line}: number {txn} of producer {producer} was used for another transaction"
        )
    return np.array(sorted(reused), np.int64).reshape(-1, 2)


def _are_in_turn(ends: Ints, begins: Ints) -> bool:
    """Return whether one producer began and ended its transactions one after the other, each once.

    Then it used no number for several transactions. This is the usual case, and it needs no sorting.
    """
    count = len(ends)
    if not count <= len(begins) <= count + 1:
        return False
    number, first_line = begins[:, 1], begins[:, 3]
    return bool(
        number[0] >= 0
        and (number[1:] > number[:-1]).all()
        and (number[:count] == ends[:, 1]).all()
        and (begins[:, 0] == ends[0, 0]).all()
        and (ends[:, 0] == ends[0, 0]).all()
        and (first_line[:count] < ends[:, 5]).all()
        and (ends[: len(begins) - 1, 5] < first_line[1:]).all()
    )


def _other_lists(scanned: Scan, ends: Ints, rows: Ints) -> list[tuple[int, int, int]]:
    """Return the ends that list other records than an earlier end of the same transaction."""
    same = np.all(ends[1:, :2] == ends[:-1, :2], axis=1)
    several = np.flatnonzero(np.append(same, False) | np.append(False, same))
    if not len(several):
        return []
    lists: dict[int, list[list[int]]] = {}
    for row, *interval in scanned.sent[np.isin(scanned.sent[:, 0], rows[several])].tolist():
        lists.setdefault(row, []).append(interval)
    found = []
    known: dict[tuple[int, int], list[list[int]]] = {}
    for row, (producer, txn, _, _, _, line) in zip(
        rows[several].tolist(), ends[several].tolist(), strict=True
    ):
        listed = sorted(lists.get(row, []))
        if listed and known.setdefault((producer, txn), listed) != listed:
            found.append((producer, txn, line))
    return found


def _begun(scanned: Scan, transactions: Ints) -> Ints:
    """Return the time at which each transaction first began, or 0 if the history does not list this.

    The first two columns of `transactions` are the producer and the number of the transaction.
    """
    begins = scanned.begins
    producers, numbers = begins[:, 0], begins[:, 1]
    if len(begins) and (numbers[1:] > numbers[:-1]).all() and (producers == transactions[0, 0]).all():
        rows = find_rows(numbers, transactions[:, 1])
        listed = (numbers[rows] == transactions[:, 1]) & (transactions[:, 0] == transactions[0, 0])
        return np.where(listed, np.maximum(begins[rows, 2], 0), 0)
    asked = np.column_stack([transactions[:, :2], np.full(len(transactions), -1)])
    rows = np.concatenate([begins[:, :3], asked])
    # Sort each transaction directly behind the earliest of its beginnings.
    order = np.lexsort((-rows[:, 2], rows[:, 1], rows[:, 0]))
    rows = rows[order]
    began = np.zeros(len(rows), np.int64)
    same = np.all(rows[1:, :2] == rows[:-1, :2], axis=1)
    began[1:] = np.where(same, np.maximum(rows[:-1, 2], 0), 0)
    result = np.empty(len(rows), np.int64)
    result[order] = began
    return result[len(begins) :]


def _fold_unclear_sends(ledger: Ledger, scanned: Scan, rows: Ints, owner: Ints) -> None:
    """Assign fates to the records of sends whose answer is unclear.

    Acknowledged records are committed. Failed records were certainly not written. The fate of all other
    records is unknown. A report may cover several intervals of the operation, or a part of one.
    """
    reports: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for op, lane, low, high, *_ in scanned.acked.tolist():
        reports.setdefault((op, lane), []).append((low, high, COMMITTED))
    for op, lane, low, high in scanned.failed.tolist():
        reports.setdefault((op, lane), []).append((low, high, NEVER))
    for end, lane, first, last in scanned.sent[rows].tolist():
        producer, _, op, _, _, line = scanned.ends[end].tolist()
        pieces = _pieces(first, last, reports.get((op, lane), []))
        if any(fate == _BOTH for _, _, fate in pieces):
            ledger.problem(scanned.name, f"line {line}: a record is reported both as delivered and as failed")
        for low, high, fate in pieces:
            interval = np.array([[producer, lane, low, high, owner[end]]], np.int64)
            ledger.add_intervals(interval, np.array([UNKNOWN if fate == _BOTH else fate], np.uint8))


_BOTH: Final = 0


def _pieces(first: int, last: int, reports: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Cut an interval where the delivery reports change. A piece is (first, last, fate)."""
    inside = [(max(low, first), min(high, last), fate) for low, high, fate in reports]
    inside = [report for report in inside if report[0] <= report[1]]
    cuts = sorted({first, *(low for low, _, _ in inside), *(high + 1 for _, high, _ in inside)} - {last + 1})
    pieces: list[tuple[int, int, int]] = []
    for low, following in zip(cuts, [*cuts[1:], last + 1], strict=True):
        fates = {fate for start, end, fate in inside if start <= low <= end}
        fate = _BOTH if len(fates) > 1 else next(iter(fates), UNKNOWN)
        if pieces and pieces[-1][2] == fate:
            pieces[-1] = (pieces[-1][0], following - 1, fate)
        else:
            pieces.append((low, following - 1, fate))
    return pieces


def _fold_acks(ledger: Ledger, scanned: Scan, group: Ints) -> None:
    """Add the offsets of acknowledged records. Report those that their transaction or send does not list."""
    acked = scanned.acked
    if not len(acked):
        return
    ops = scanned.ends[:, 2]
    if not len(ops):
        ledger.problem(scanned.name, f"line {acked[0, 5]}: {_SENT_NOTHING}")
        return
    order = np.argsort(ops, kind="stable")
    rows = order[np.minimum(np.searchsorted(ops[order], acked[:, 0]), len(ops) - 1)]
    known = ops[rows] == acked[:, 0]
    if not known.all():
        ledger.problem(scanned.name, f"line {acked[~known][0, 5]}: {_SENT_NOTHING}")
    acked, rows = acked[known], rows[known]
    listed = _are_listed(scanned, acked, rows, group)
    _report(
        ledger, scanned, acked[~listed, 5], "an acknowledgement of records that its request does not list"
    )
    chosen = listed & (acked[:, 4] >= 0)
    ledger.add_acks(scanned.ends[rows[chosen], 0], acked[chosen])


_SENT_NOTHING: Final = "an acknowledgement for an operation that sent nothing"


def _are_listed(scanned: Scan, acked: Ints, rows: Ints, group: Ints) -> Bools:
    """Return a mask of the acknowledgements that lie between records of the same transaction or send."""
    sent = scanned.sent
    base = int(group.min())
    keys = (group[sent[:, 0]] - base) * LANES + sent[:, 1]
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])) if len(keys) else np.zeros(0, np.int64)
    if not len(starts):
        return np.zeros(len(acked), np.bool_)
    first = np.minimum.reduceat(sent[order, 2], starts)
    last = np.maximum.reduceat(sent[order, 3], starts)
    wanted = (group[rows] - base) * LANES + acked[:, 1]
    at = np.minimum(np.searchsorted(keys[starts], wanted), len(starts) - 1)
    inside: Bools = (keys[starts][at] == wanted) & (acked[:, 2] >= first[at]) & (acked[:, 3] <= last[at])
    return inside & (acked[:, 1] >= 0) & (acked[:, 1] <= MAX_LANE) & (acked[:, 2] <= acked[:, 3])


def _fold_tails(ledger: Ledger, scanned: Scan) -> None:
    """Add open-ended intervals for records that the history may not list, behind the last listed sequences.

    Only the end of a transaction lists its records, so those of an open transaction are not listed. If
    requests are missing from the history, any of its producers may have sent more.
    """
    for producer, at in scanned.producers.items():
        has_gaps = scanned.name in ledger.with_gaps
        txn, line = scanned.begun.get(producer, (-1, 0))
        ends = scanned.ends[scanned.ends[:, 0] == producer]
        ended = (ends[:, 1] == txn) & (ends[:, 3] != SEND) & (ends[:, 5] > line)
        if not has_gaps and (not line or ended.any()):
            continue
        owner, fate = LOOSE, UNKNOWN
        if not has_gaps and not _in_pairs(np.array([[producer, txn]]), scanned.reused).any():
            owner, fate = _open_transaction(ledger, producer, txn, line), ABORTED
        rows = scanned.sent[scanned.ends[scanned.sent[:, 0], 0] == producer] if len(scanned.sent) else None
        for lane in range(min(len(cast(Producer, at.line).lanes), LANES)):
            sent = rows[rows[:, 1] == lane, 3] if rows is not None else np.zeros(0, np.int64)
            first = int(sent.max()) + 1 if len(sent) else 0
            if first <= OPEN_END:
                tail = np.array([[producer, lane, first, OPEN_END, owner]], np.int64)
                ledger.add_intervals(tail, np.array([fate], np.uint8))


def _open_transaction(ledger: Ledger, producer: int, txn: int, line: int) -> int:
    """Add the group of a transaction that has a beginning but no end, and return its index."""
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
    return int(group[0])
