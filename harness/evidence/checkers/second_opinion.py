"""Second opinion: what the log itself shows about each transaction, compared with what its client recorded.

Three sources that do not depend on the client's history:

    markers      COMMIT or ABORT in each partition of the transaction, read from the raw log
    labels       the transaction number and the intended outcome that each record carries
    checksums    the CRC-32 of the input's value that each output of a pipeline carries

Anomalies:

    a marker contradicts the recorded outcome, or another marker        fate_mismatch
    a record is in a transaction to which it does not belong            wrong_transaction
    an output was not made from its input                               corrupted_output
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

import numpy as np

from harness.evidence.bit_words import EXAMPLES, Bools, Ints, lane_key, same_as_previous
from harness.evidence.checkers.causes import cause_text
from harness.evidence.checkers.model import Collector, Evidence, Example, HistoryRef, OffsetRef, Result, place
from harness.evidence.checkers.visibility_index import group_lines, group_name
from harness.evidence.history import Ok
from harness.evidence.ledger import ABORTED, COMMITTED, FATE_NAMES, UNKNOWN, Ledger
from harness.evidence.observation import INTENTS, Observation, Rows
from harness.evidence.record import MAX_SEQ

_DECISIONS: Final = {1: "COMMIT", 0: "ABORT", -1: "no marker"}
_COMMIT, _ABORT, _OPEN = 1, 0, -1
_ABORT_INTENT: Final = INTENTS.index("a")
_KEY: Final = MAX_SEQ + 1


def applies(evidence: Evidence) -> bool:
    """Return whether the evidence contains a marker, a label or a checksum."""
    return any(
        view.meta.corrupted.compared
        or (view.markers is not None and len(view.markers))
        or (view.labels is not None and bool(_labelled(view.labels).any()))
        for view in evidence.observations
    )


def check(evidence: Evidence) -> Result:
    """Compare markers, labels and checksums with the ledger."""
    out = Collector("second_opinion", "markers, labels and checksums")
    labels = _WrongLabels()
    transactions: list[int] = []
    labelled: list[int] = []
    for view in evidence.observations:
        if view.markers is not None:
            pairs = _Pairs(evidence.ledger, view, view.markers)
            transactions.append(_markers(evidence, pairs, out))
            _spans(pairs, out)
            _producer_ids(pairs, out)
            labelled.append(labels.compare(pairs))
        if view.labels is not None:
            readable = _Pairs(evidence.ledger, view, view.labels)
            labelled.append(labels.compare(readable))
            if view.markers is not None:
                _outside(readable, pairs, out)
    # Witnesses read the same log, so take the largest number.
    out.compared += max(transactions, default=0) + max(labelled, default=0)
    labels.report(out)
    _checksums(evidence.observations, out)
    return out.result()


class _Pairs:
    """Rows of a table, each paired with every interval of the ledger that has sequences of the row.

    The columns have one value per pair. Rows without any interval have no pair: their records are phantoms,
    or records of a transaction of which the history has no end.
    """

    def __init__(self, ledger: Ledger, view: Observation, rows: Rows) -> None:
        self.ledger = ledger
        self.view = view
        intervals = ledger.intervals
        lane, known = ledger.lane_index(lane_key(rows["producer"].astype(np.int64), rows["lane"]))
        keys = intervals.lane.astype(np.int64) * _KEY + intervals.first
        low = np.searchsorted(keys, lane * _KEY + rows["first"], side="right") - 1
        high = np.searchsorted(keys, lane * _KEY + rows["last"], side="right") - 1
        low = np.maximum(low, 0)
        count = np.where(known, np.maximum(high - low + 1, 0), 0)
        row = np.repeat(np.arange(len(rows)), count)
        step = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        interval = low[row] + step
        inside = (
            (intervals.lane[interval] == lane[row])
            & (intervals.last[interval] >= rows["first"][row])
            & (intervals.first[interval] <= rows["last"][row])
        )
        self.rows: Rows = rows[row[inside]]
        self.unpaired: Rows = np.delete(rows, row[inside])
        self.interval: Ints = interval[inside]
        self.group: Ints = intervals.group[self.interval].astype(np.int64)
        self.txn: Ints = ledger.groups.txn[self.group]
        self.fate = ledger.groups.fate[self.group]
        self.first: Ints = np.maximum(intervals.first[self.interval], self.rows["first"])
        self.last: Ints = np.minimum(intervals.last[self.interval], self.rows["last"])
        self.size: Ints = self.last - self.first + 1

    def sequences(self, i: int) -> str:
        """Return the sequences of a pair as text, with their lane and partition."""
        return _sequences(self.view, self.rows[i], int(self.first[i]), int(self.last[i]))

    def example(self, i: int, what: str, *, weight: int, marker: bool = False) -> Example:
        row = self.rows[i]
        window = self.view.window(int(row["partition"]))
        offsets = [OffsetRef(window.topic, window.partition, int(row["lo"]), int(row["hi"]))]
        if marker and row["marker"] >= 0:
            at = int(row["marker"])
            offsets.append(OffsetRef(window.topic, window.partition, at, at))
        return Example(
            what=what,
            weight=weight,
            witness=self.view.meta.witness,
            lines=group_lines(self.ledger, int(self.group[i])),
            offsets=offsets,
        )


def _sequences(view: Observation, row: Any, first: int, last: int) -> str:
    window = view.window(int(row["partition"]))
    lane = f"lane {row['lane']} of producer {row['producer']}"
    return f"sequences {first}-{last} of {lane} in {window.topic}-{window.partition}"


def _labelled(rows: Rows) -> Bools:
    labelled: Bools = (rows["txn"] != 0) | (rows["intent"] != 0)
    return labelled


def _markers(evidence: Evidence, pairs: _Pairs, out: Collector) -> int:
    """Compare the markers of each transaction with its recorded outcome, and with one another.

    Return the number of transactions with markers.
    """
    decision = pairs.rows["decision"]
    judged = (pairs.txn >= 0) & (decision != _OPEN)
    groups = len(pairs.ledger.groups.fate)
    compared = len(np.unique(pairs.group[judged]))
    commits = np.bincount(pairs.group[judged & (decision == _COMMIT)], minlength=groups) > 0
    aborts = np.bincount(pairs.group[judged & (decision == _ABORT)], minlength=groups) > 0
    fate = pairs.ledger.groups.fate
    torn = commits & aborts
    wrong = (commits & (fate == ABORTED)) | (aborts & (fate == COMMITTED)) | torn
    examples: dict[Hashable, Example] = {}
    for group in np.flatnonzero(wrong)[:EXAMPLES].tolist():
        # Unless the markers contradict each other, each of them contradicts the history.
        proof = np.flatnonzero((pairs.group == group) & judged)
        parts = [
            f"{_DECISIONS[int(pairs.rows['decision'][i])]} for {pairs.sequences(int(i))}" for i in proof[:4]
        ]
        what = (
            f"{group_name(pairs.ledger, group)} is recorded as {FATE_NAMES[int(fate[group])]}, "
            f"but the log has {', and '.join(parts)}{cause_text(evidence, group)}"
        )
        weight = max(1, int(pairs.size[proof].sum()))
        examples[group] = pairs.example(int(proof[0]), what, weight=weight, marker=True)
    found = frozenset(np.flatnonzero(wrong).tolist())
    out.add("fate_mismatch", "transactions", found, examples, witness=pairs.view.meta.witness)
    undecided = np.flatnonzero((pairs.fate == COMMITTED) & (pairs.txn >= 0) & (decision == _OPEN))
    if len(undecided):
        i = int(undecided[0])
        out.reasons.append(
            f"{len(np.unique(pairs.group[undecided]))} transactions are recorded as committed, but had no "
            f"marker when the log was read, such as {group_name(pairs.ledger, int(pairs.group[i]))}: "
            f"{pairs.sequences(i)}"
        )
    if len(pairs.unpaired):
        row = pairs.unpaired[0]
        out.reasons.append(
            "the log has transactions that no history mentions: "
            f"{_sequences(pairs.view, row, int(row['first']), int(row['last']))}"
        )
    return compared


def _spans(pairs: _Pairs, out: Collector) -> None:
    """Find markers that ended several transactions at once.

    A coordinator writes the markers of a transaction before its producer can begin the next one.
    """
    rows = pairs.rows
    transactional = np.flatnonzero(pairs.txn >= 0)
    # An open transaction has no marker, so its partition and producer id identify it.
    columns = [rows[name][transactional] for name in ("partition", "pid", "marker")]
    offset, group = rows["lo"][transactional], pairs.group[transactional]
    order = np.lexsort((offset, *reversed(columns)))
    same = same_as_previous(*(column[order] for column in columns)) & ~same_as_previous(group[order])
    mixed = np.flatnonzero(same)
    # The lanes of one transaction may share a partition and alternate there. Count each pair once.
    reported: set[tuple[int, int]] = set()
    examples = []
    for at in mixed.tolist():
        i, before = int(transactional[order[at]]), int(transactional[order[at - 1]])
        if (key := (int(pairs.group[before]), int(pairs.group[i]))) in reported or key[::-1] in reported:
            continue
        reported.add(key)
        window = pairs.view.window(int(rows["partition"][i]))
        what = (
            f"{window.topic}-{window.partition} has no marker between {group_name(pairs.ledger, key[0])} "
            f"and {group_name(pairs.ledger, key[1])}, both written under producer id {rows['pid'][i]}"
        )
        examples.append(pairs.example(i, what, weight=int(rows["n"][i]), marker=True))
    found = frozenset(frozenset(key) for key in reported)
    out.add("wrong_transaction", "transactions", found, examples[:EXAMPLES], witness=pairs.view.meta.witness)


def _outside(readable: _Pairs, marked: _Pairs, out: Collector) -> None:
    """Find transactions with readable records that were not written in any transaction."""
    groups = len(readable.ledger.groups.fate)
    written = np.bincount(readable.group, readable.size, groups)
    committed = marked.rows["decision"] == _COMMIT
    in_transactions = np.bincount(marked.group[committed], marked.size[committed], groups)
    outside = (written > in_transactions) & (readable.ledger.groups.txn >= 0)
    examples = []
    for group in np.flatnonzero(outside)[:EXAMPLES].tolist():
        i = int(np.flatnonzero(readable.group == group)[0])
        records = int(written[group] - in_transactions[group])
        what = (
            f"{records} records of {group_name(readable.ledger, group)} were written without a transaction, "
            f"among them some of {readable.sequences(i)}"
        )
        examples.append(readable.example(i, what, weight=records))
    found = frozenset(np.flatnonzero(outside).tolist())
    out.add("wrong_transaction", "transactions", found, examples, witness=readable.view.meta.witness)


def _producer_ids(pairs: _Pairs, out: Collector) -> None:
    """Check that each producer id wrote for a single transactional id, and for the one that it belongs to."""
    ledger, rows = pairs.ledger, pairs.rows
    claims = _claims(ledger)
    claimed: dict[int, set[int]] = {}
    for pid, claim in claims.items():
        for producer in claim:
            claimed.setdefault(producer, set()).add(pid)
    owners = np.column_stack([rows["pid"], rows["producer"]])
    distinct, first = np.unique(owners, axis=0, return_index=True)
    writers: dict[int, set[int]] = {}
    for (pid, producer), i in zip(distinct.tolist(), first.tolist(), strict=True):
        writers.setdefault(pid, set()).add(producer)
        others = sorted(
            other
            for other in (writers[pid] | claims.get(pid, {}).keys())
            if _owner(ledger, other) != _owner(ledger, producer)
        )
        if others:
            lines = [claims[pid][other] for other in others if other in claims.get(pid, {})]
            what = f"producer id {pid} wrote {pairs.sequences(i)}, but it belongs to producer {others[0]}"
            example = pairs.example(i, what, weight=int(rows["n"][i]), marker=True)
            example.lines = [*example.lines, *lines[:1]]
            found = frozenset({(pid, producer)})
            out.add("wrong_transaction", "producer ids", found, [example], witness=pairs.view.meta.witness)
        elif claimed.get(producer) and pid not in claimed[producer]:
            out.reasons.append(
                f"producer id {pid} wrote {pairs.sequences(i)}, but the producer reported only "
                f"{', '.join(map(str, sorted(claimed[producer])))}"
            )


def _owner(ledger: Ledger, producer: int) -> str:
    declared = ledger.producers.get(producer)
    txid = declared.producer.transactional_id if declared else None
    return f"producer {producer}" if txid is None else f"transactional id {txid}"


def _claims(ledger: Ledger) -> dict[int, dict[int, HistoryRef]]:
    """Return, for each producer id, the producers that reported it, with the line of the report."""
    claims: dict[int, dict[int, HistoryRef]] = {}
    for client in ledger.clients:
        asked = {line.op: line.producer for _, line in client.invokes("identity", "init")}
        only = next(iter(client.producers)) if len(client.producers) == 1 else None
        for number, done in client.completions("identity", "init"):
            producer = asked.get(done.op)
            producer = only if producer is None else producer
            if isinstance(done, Ok) and done.pid is not None and producer is not None:
                ref = HistoryRef(client.name, number)
                claims.setdefault(done.pid, {}).setdefault(producer, ref)
    return claims


class _WrongLabels:
    """Records whose label contradicts the history, collected from all witnesses."""

    def __init__(self) -> None:
        self._ranges: list[Ints] = []
        self._examples: dict[tuple[int, int, int], Example] = {}

    def compare(self, pairs: _Pairs) -> int:
        """Compare the transaction number and the intent that records carry with the history.

        A client may write records without labels in its transactions (number 0, intent `n`). These are not
        compared. Return the number of labels.
        """
        rows = pairs.rows
        labelled = _labelled(rows)
        in_transaction = pairs.txn >= 0
        # The history does not show the transaction of a loose record, so its label is not compared.
        labelled &= ~pairs.ledger.groups.is_loose[pairs.group]
        number = labelled & (~in_transaction | (rows["txn"] != pairs.txn))
        kept = (pairs.fate == COMMITTED) | (pairs.fate == UNKNOWN) & _readable(pairs)
        intent = labelled & ~number & in_transaction & (rows["intent"] == _ABORT_INTENT) & kept
        lane = pairs.ledger.intervals.lane[pairs.interval].astype(np.int64)
        for mask, describe in ((number, _other_number), (intent, _other_intent)):
            wrong = np.flatnonzero(mask)
            start = lane[wrong] * _KEY + pairs.first[wrong]
            self._ranges.append(np.column_stack([start, start + pairs.size[wrong]]))
            for i in wrong[np.argsort(-pairs.size[wrong], kind="stable")][:EXAMPLES].tolist():
                key = (int(lane[i]), int(pairs.first[i]), int(pairs.last[i]))
                example = pairs.example(i, describe(pairs, i), weight=int(pairs.size[i]))
                self._examples.setdefault(key, example)
        return int(labelled.sum())

    def report(self, out: Collector) -> None:
        """Add the anomaly. A record counts once, however many witnesses read it."""
        if not self._ranges:
            return
        ranges = np.concatenate(self._ranges)
        start, end = ranges[np.lexsort((ranges[:, 1], ranges[:, 0]))].T
        reached = np.maximum.accumulate(np.append(0, end))[:-1]
        records = int(np.maximum(end - np.maximum(start, reached), 0).sum())
        out.add("wrong_transaction", "records", records, list(self._examples.values()))


def _readable(pairs: _Pairs) -> Bools:
    """Return a mask of the pairs whose records a read_committed consumer must return."""
    if "decision" in (pairs.rows.dtype.names or ()):
        decided: Bools = pairs.rows["decision"] == _COMMIT
        return decided
    return np.full(len(pairs.rows), pairs.view.meta.isolation == "read_committed", np.bool_)


def _other_number(pairs: _Pairs, i: int) -> str:
    row, txn = pairs.rows[i], int(pairs.txn[i])
    recorded = (
        f"in {group_name(pairs.ledger, int(pairs.group[i]))}" if txn >= 0 else "outside of transactions"
    )
    intent = {"c": "meant to be committed", "a": "meant to be aborted"}.get(INTENTS[row["intent"]], "")
    carried = f"transaction {row['txn']}" + (f", {intent}" if intent else "")
    return f"{pairs.sequences(i)} carry {carried}, but the history lists them {recorded}"


def _other_intent(pairs: _Pairs, i: int) -> str:
    name, fate = group_name(pairs.ledger, int(pairs.group[i])), FATE_NAMES[int(pairs.fate[i])]
    return f"{pairs.sequences(i)} were meant to be aborted, but {name} is {fate} and they are in the log"


def _checksums(views: list[Observation], out: Collector) -> None:
    """Report the outputs with a wrong checksum, as counted by the witness that found the most."""
    out.compared += max((view.meta.corrupted.compared for view in views), default=0)
    view = max(views, key=lambda view: view.meta.corrupted.count, default=None)
    if view is None:
        return
    examples = [
        Example(
            what=f"the output at {spot.topic}-{spot.partition} offset {spot.offset} (sequence {spot.seq} of "
            f"producer {spot.producer}) was not made from its input: {spot.detail}",
            witness=view.meta.witness,
            offsets=place(spot),
        )
        for spot in view.meta.corrupted.examples
    ]
    out.add("corrupted_output", "records", view.meta.corrupted.count, examples)
