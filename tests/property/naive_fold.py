"""A second fold of histories, written from docs/history-format.md alone, record by record.

It uses no code of harness/evidence/ledger, and no arrays: each record has its own entry. It is slow and can
be compared with the page line by line. `random_histories.py` draws histories, and `test_naive_fold.py`
compares both folds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

HORIZON = 80
"""Sequences from here on are not looked at. No drawn history lists a higher one by intention."""
LAST_PRODUCER, LAST_LANE, LAST_SEQUENCE = 10**6 - 1, 10**5 - 1, 10**12 - 1
ENDS = ("commit", "abort", "abandon")
Line = dict[str, Any]
Lane = tuple[int, int]
"""Producer and lane."""


class Transaction(NamedTuple):
    """What the history shows of one transaction."""

    fate: str
    asked: int
    answered: int
    committing: bool
    begun: int


@dataclass
class Listing:
    """Consecutive records of one lane that a line lists, with their fate.

    `unit` is what takes effect as a whole: a transaction, or one send. It is None if the history does not
    show it.
    """

    lane: Lane
    first: int
    last: int
    fate: str
    unit: tuple[Any, ...] | None

    def overlaps(self, other: Listing) -> bool:
        return self.lane == other.lane and self.first <= other.last and other.first <= self.last


@dataclass
class Naive:
    """The result of the naive fold."""

    records: dict[Lane, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    units: dict[Lane, dict[int, tuple[Any, ...] | None]] = field(default_factory=lambda: defaultdict(dict))
    transactions: dict[tuple[int, int], Transaction] = field(default_factory=dict)
    acks: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    with_gaps: set[str] = field(default_factory=set)
    problems: set[str] = field(default_factory=set)
    listings: list[Listing] = field(default_factory=list)
    lanes: dict[Lane, tuple[str, int]] = field(default_factory=dict)
    incomplete: set[int] = field(default_factory=set)


def naive_fold(files: dict[str, bytes]) -> Naive:
    """Fold the histories of several clients, given by name."""
    result = Naive()
    for name, data in files.items():
        _File(result, name, [json.loads(text) for text in data.splitlines()]).fold()
    _settle_overlaps(result)
    for listing in result.listings:
        for seq in range(listing.first, min(listing.last, HORIZON) + 1):
            result.records[listing.lane][seq] = listing.fate
            result.units[listing.lane][seq] = listing.unit
    for lane in result.lanes:
        listed = result.records[lane]
        gaps = [seq for seq in range(max(listed, default=-1)) if seq not in listed]
        if gaps:
            result.problems.add("gap in a lane")
        if lane[0] in result.incomplete:
            for seq in gaps:
                listed[seq] = "unknown"
                result.units[lane][seq] = None
    return result


def _settle_overlaps(result: Naive) -> None:
    """Listings that share a record have an unknown fate, unless all of them committed or all were aborted.

    If all of them committed, the record is committed, but it is unknown which of them wrote it.
    """
    unique: list[Listing] = []
    for listing in result.listings:
        if listing.lane in result.lanes:
            if listing not in unique:
                unique.append(listing)
        else:
            result.problems.add("undeclared lane")
    result.listings = unique
    left = list(unique)
    while left:
        cluster = [left.pop()]
        for member in cluster:
            near = [other for other in left if member.overlaps(other)]
            cluster += near
            left = [other for other in left if not any(other is one for one in near)]
        if len(cluster) > 1:
            result.problems.add("sent twice")
            fates = {member.fate for member in cluster}
            for member in cluster if fates != {"aborted"} else []:
                member.unit = None
                member.fate = "committed" if fates == {"committed"} else "unknown"


class _File:
    """The fold of one file."""

    def __init__(self, result: Naive, name: str, lines: list[Line]) -> None:
        self.result = result
        self.name = name
        self.lines = [{**line, "line": number} for number, line in enumerate(lines, start=1)]
        self.requests = [line for line in self.lines if line["type"] == "invoke"]
        self.answers = [line for line in self.lines if line["type"] in ("ok", "fail", "info")]
        self.declared: dict[int, Line] = {}
        self.moved: set[int] = set()
        self.has_gaps = False
        self.disputed: set[int] = set()

    def problem(self, what: str) -> None:
        self.result.problems.add(what)

    def fold(self) -> None:
        if any(line["type"] == "open" for line in self.lines[1:]):
            self.problem("an opening line that is not the first line")
        if any(line["type"] == "close" for line in self.lines[:-1]):
            self.problem("lines after a closing line")
        self._declarations()
        self._operations()
        self._numbers()
        if self.has_gaps:
            self.result.with_gaps.add(self.name)
            self.result.incomplete |= set(self.declared)
        reused = self._reused()
        self._transactions(reused)
        for request in self.requests:
            if request["f"] in ENDS:
                self._list_end(request, reused)
            elif request["f"] == "send":
                self._list_send(request)
        self._acks()
        self._tails(reused)

    def _declarations(self) -> None:
        for line in self.lines:
            if line["type"] != "producer":
                continue
            number = line["producer"]
            before = self.declared.get(number)
            if before is not None:
                kept = min(len(before["lanes"]), len(line["lanes"]))
                if before["lanes"][:kept] != line["lanes"][:kept]:
                    self.problem("declared differently")
                    self.moved.add(number)
                settings = ("transactional_id", "idempotent", "acks", "in_flight", "timeout_ms")
                if [before.get(name) for name in settings] != [line.get(name) for name in settings]:
                    self.problem("declared differently")
            earlier = before["lanes"] if before else []
            self.declared[number] = {**line, "lanes": line["lanes"] + earlier[len(line["lanes"]) :]}
        for number, line in self.declared.items():
            for lane, place in enumerate(line["lanes"]):
                self.result.lanes[number, lane] = tuple(place)

    def _operations(self) -> None:
        """Operations are numbered from 0, and each has one request and then at most one answer."""
        numbers = [request["op"] for request in self.requests]
        if any(n not in numbers for n in range(max(numbers, default=-1))) or min(numbers, default=0) < 0:
            self.has_gaps = True
        answered: set[int] = set()
        first = {request["op"]: request for request in reversed(self.requests)}
        for number in numbers:
            if numbers.count(number) > 1:
                self.disputed.add(number)
        for answer in self.answers:
            op = answer["op"]
            if op not in first:
                self.has_gaps = True
                continue
            request = first[op]
            if (
                op in answered
                or answer["line"] < request["line"]
                or answer["mono"] < request["mono"]
                or answer["f"] != request["f"]
                or (answer["type"] == "ok" and answer.get("failed"))
                or (answer["type"] == "fail" and answer.get("acked"))
            ):
                self.disputed.add(op)
            answered.add(op)
        if self.has_gaps or self.disputed:
            self.problem("operations")
        for request in self.requests:
            if request["op"] in self.disputed and request["f"] in (*ENDS, "send"):
                request["mono"] = 0

    def _numbers(self) -> None:
        """Drop listed records whose numbers are not allowed, and fill in the only producer."""
        unnamed = any("producer" not in request for request in self.requests if self._needs_producer(request))
        if unnamed and len(self.declared) != 1:
            self.problem("no producer named")
        for request in self.requests:
            if "producer" not in request:
                request["producer"] = next(iter(self.declared)) if len(self.declared) == 1 else -1
            kept = []
            for lane, first, last in request.get("sent", []):
                if not 0 <= lane <= LAST_LANE or first < 0 or last > LAST_SEQUENCE or last < first:
                    self.problem("numbers")
                if 0 <= lane <= LAST_LANE and 0 <= first <= min(last, LAST_SEQUENCE):
                    kept.append((lane, first, min(last, LAST_SEQUENCE)))
            request["sent"] = kept

    @staticmethod
    def _needs_producer(request: Line) -> bool:
        return request["f"] in (*ENDS, "send", "begin")

    def _answer(self, request: Line) -> Line | None:
        """Return the answer to a request. An answer that is disputed is unclear, and reports nothing."""
        for answer in self.answers:
            if answer["op"] == request["op"]:
                if request["op"] in self.disputed:
                    return {"type": "info", "mono": 0}
                return answer
        return None

    def _reused(self) -> set[tuple[int, int]]:
        """Return the numbers of transactions that were used for several transactions."""
        reused: set[tuple[int, int]] = set()
        for producer in {request["producer"] for request in self.requests}:
            ended: set[int] = set()
            closed: set[int] = set()
            lists: dict[int, list[Any]] = {}
            current: tuple[int, bool] | None = None
            runs: dict[int, int] = defaultdict(int)
            mine = [r for r in self.requests if r["producer"] == producer and r["f"] in (*ENDS, "begin")]
            for request in mine:
                txn, is_end = request.get("txn", -1), request["f"] in ENDS
                if is_end and txn < 0:
                    continue
                if current is None or current[0] != txn or (not is_end and current[1]):
                    runs[txn] += 1
                current = (txn, is_end)
                if is_end:
                    ended.add(txn)
            closed = {txn for txn, count in runs.items() if count > 1 and txn in ended}
            for request in sorted(mine, key=lambda r: r["op"]):
                listed = sorted(request["sent"])
                if (
                    request["f"] in ENDS
                    and listed
                    and lists.setdefault(request.get("txn", -1), listed) != listed
                ):
                    closed.add(request.get("txn", -1))
            reused |= {(producer, txn) for txn in closed if txn >= 0}
        if reused:
            self.problem("number used again")
        return reused

    def _transactions(self, reused: set[tuple[int, int]]) -> None:
        by_number: dict[tuple[int, int], list[Line]] = defaultdict(list)
        for request in self.requests:
            if request["f"] in ENDS:
                by_number[request["producer"], request.get("txn", -1)].append(request)
        for (producer, txn), requests in by_number.items():
            answers = [(request["f"], self._answer(request)) for request in requests]
            committed = any(f == "commit" and a is not None and a["type"] == "ok" for f, a in answers)
            aborted = any(f == "abort" and a is not None and a["type"] == "ok" for f, a in answers)
            open_ = any(f == "commit" and (a is None or a["type"] == "info") for f, a in answers)
            if txn < 0:
                self.problem("no number")
                continue
            if committed and aborted:
                fate = "unknown"
                self.problem("committed and aborted")
            elif (producer, txn) in reused:
                fate = "unknown"
            elif committed or aborted:
                fate = "committed" if committed else "aborted"
            else:
                fate = "unknown" if open_ or self.has_gaps else "aborted"
            commits = [request["mono"] for request in requests if request["f"] == "commit"]
            begins = [
                r["mono"]
                for r in self.requests
                if r["f"] == "begin" and (r["producer"], r.get("txn", -1)) == (producer, txn)
            ]
            self.result.transactions[producer, txn] = Transaction(
                fate,
                min(commits) if commits else min(requests, key=lambda r: r["op"])["mono"],
                max(a["mono"] if a else 0 for _, a in answers),
                bool(commits) and not self.has_gaps,
                min(begins, default=0),
            )

    def _list(self, request: Line, fate: str, unit: tuple[Any, ...] | None) -> None:
        for lane, first, last in request["sent"]:
            self.result.listings.append(Listing((request["producer"], lane), first, last, fate, unit))

    def _list_end(self, request: Line, reused: set[tuple[int, int]]) -> None:
        key = (request["producer"], request.get("txn", -1))
        if key[1] < 0 or key in reused or key[0] in self.moved:
            self._list(request, "unknown", None)
        else:
            self._list(request, self.result.transactions[key].fate, key)

    def _list_send(self, request: Line) -> None:
        producer = request["producer"]
        stray = self.declared.get(producer, {}).get("transactional_id") is not None
        if stray:
            self.problem("send of a transactional producer")
        if stray or producer in self.moved:
            self._list(request, "unknown", None)
            return
        unit = (producer, "send", request["line"])
        answer = self._answer(request)
        if answer is None or answer["type"] != "info":
            kind = answer["type"] if answer else ""
            self._list(request, {"ok": "committed", "fail": "never sent"}.get(kind, "unknown"), unit)
            return
        for lane, first, last in request["sent"]:
            pieces: list[tuple[int, int, str]] = []
            for seq in range(first, min(last, HORIZON) + 1):
                acked = any(r[0] == lane and r[1] <= seq <= r[2] for r in answer.get("acked", []))
                failed = any(r[0] == lane and r[1] <= seq <= r[2] for r in answer.get("failed", []))
                if acked and failed:
                    self.problem("delivered and failed")
                word = (
                    "both"
                    if acked and failed
                    else "committed"
                    if acked
                    else "never sent"
                    if failed
                    else "unknown"
                )
                if pieces and pieces[-1][2] == word:
                    pieces[-1] = (pieces[-1][0], seq, word)
                else:
                    pieces.append((seq, seq, word))
            for low, high, word in pieces:
                fate = "unknown" if word == "both" else word
                self.result.listings.append(Listing((producer, lane), low, high, fate, (*unit, low)))

    def _acks(self) -> None:
        for answer in self.answers:
            if answer["op"] in self.disputed:
                continue
            requests = [r for r in self.requests if r["op"] == answer["op"] and r["f"] in (*ENDS, "send")]
            for lane, first, last, offset in answer.get("acked", []):
                if not requests:
                    self.problem("acknowledged nothing")
                    continue
                request = requests[0]
                group = [request]
                if request["f"] in ENDS:
                    key = (request["producer"], request.get("txn", -1))
                    group = [
                        r
                        for r in self.requests
                        if r["f"] in ENDS and (r["producer"], r.get("txn", -1)) == key
                    ]
                listed = [sent for r in group for sent in r["sent"] if sent[0] == lane]
                inside = listed and min(s[1] for s in listed) <= first <= last <= max(s[2] for s in listed)
                if not inside:
                    self.problem("acknowledged what was not listed")
                elif offset >= 0 and (request["producer"], lane) in self.result.lanes:
                    self.result.acks.append((request["producer"], lane, first, last, offset))

    def _tails(self, reused: set[tuple[int, int]]) -> None:
        """An open transaction, and any producer of a history with gaps, may have sent more records."""
        for producer, declared in self.declared.items():
            begins = [r for r in self.requests if r["f"] == "begin" and r["producer"] == producer]
            fate, unit = "unknown", None
            if not self.has_gaps:
                if not begins:
                    continue
                key = (producer, begins[-1].get("txn", -1))
                later = self.requests[self.requests.index(begins[-1]) :]
                if any(r["f"] in ENDS and (r["producer"], r.get("txn", -1)) == key for r in later):
                    continue
                if key not in reused:
                    fate, unit = "aborted", key
                    self.result.transactions[key] = Transaction("aborted", 0, 0, False, 0)
            for lane in range(len(declared["lanes"])):
                sent = [s for r in self.requests if r["producer"] == producer for s in r["sent"]]
                first = max((last for number, _, last in sent if number == lane), default=-1) + 1
                self.result.listings.append(Listing((producer, lane), first, LAST_SEQUENCE, fate, unit))
