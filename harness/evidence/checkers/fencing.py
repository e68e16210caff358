"""Fencing: once a successor owns the transactional id, the brokers accept nothing from its predecessor.

Each init of a producer begins a tenure, which lasts until the producer requests its next init. Within a
tenure, the producer is fenced when the init of a successor returns or when the producer itself receives a
fencing error, whichever is earlier. If it requests a commit while it is fenced, and the brokers acknowledge
the commit or the transaction's records can be read, it is a zombie_write. If it requested the end of the
transaction before it was fenced, both commit and abort are correct.

Two inits whose times overlap are in no order, so neither fences the other. But afterwards at most one of the
two producers owns the id. If transactions of both are accepted, those of one of them are a zombie_write.

The raw log is a second source: within a partition, the epoch of a producer id must never decrease.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from typing import Final, NamedTuple

import numpy as np

from harness.evidence.bit_words import EXAMPLES, Bools, Ints, group_starts
from harness.evidence.checkers.distinct import Tally
from harness.evidence.checkers.model import Collector, Evidence, Example, HistoryRef, Result, place
from harness.evidence.checkers.visibility_index import group_lines, group_name, visibility_of
from harness.evidence.history import Error, Fail, Ok
from harness.evidence.ledger import COMMITTED, Ledger, Scan

FENCED_NAMES: Final = frozenset(
    {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "_FENCED", "ProducerFencedException", "ProducerFencedError"}
)
RECOVERABLE_FLAGS: Final = frozenset({"abortable", "retriable"})
"""Flags of errors after which the client library continues with the same producer."""
NEVER: Final = int(np.iinfo(np.int64).max)
NOT_LISTED: Final = -1
_NO_ROWS: Final = np.zeros(0, np.int64)


class Tenure(NamedTuple):
    """The time from one init request of a producer to its next one.

    `first` is the earliest time at which the coordinator may have carried out the init, and `began` is the
    time of its answer. `first` is earlier than `asked` if unclear inits precede: the client library may carry
    them out later. `began` is None if the answer is unclear, or if the history has no init.
    """

    producer: int
    asked: int
    first: int
    began: int | None
    until: int
    line: HistoryRef
    clock: str


class Fence(NamedTuple):
    """The time in which a producer is fenced, the history line that proves it, and the reason as text."""

    at: int
    until: int
    line: HistoryRef
    why: str
    succeeded: bool


class _Refusal(NamedTuple):
    """A fencing error. `asked` is the time of its request, or NOT_LISTED if the history lacks it."""

    at: int
    asked: int
    line: HistoryRef


def check(evidence: Evidence) -> Result:
    """Find transactions and batches of fenced producers that the brokers accepted."""
    out = Collector("fencing", "transactions and batches")
    ledger = evidence.ledger
    groups = ledger.groups
    shared = [number for numbers in _sharing(ledger).values() for number in numbers]
    out.compared += int(np.isin(groups.producer[groups.txn >= 0], shared).sum())
    visible = _visible(evidence)
    accepted = (groups.txn >= 0) & (((groups.fate == COMMITTED) & _with_content(ledger)) | (visible > 0))
    tenures = tenures_of(ledger)
    rows = _rows_by_producer(ledger, accepted)
    for producer, fences in fences_of(ledger, tenures).items():
        # Each transaction counts once: what is explained by a fence is in no pair.
        rows[producer] = _find_zombies(ledger, rows.get(producer, _NO_ROWS), fences, visible, out)
    _find_pairs(ledger, tenures, rows, out)
    _raw(evidence, out)
    return out.result()


def _rows_by_producer(ledger: Ledger, chosen: Bools) -> dict[int, Ints]:
    """Return the chosen groups of each producer, sorted by the time at which their end was requested."""
    rows = np.flatnonzero(chosen)
    producer = ledger.groups.producer[rows].astype(np.int64)
    order = np.lexsort((ledger.groups.asked[rows], producer))
    rows, producer = rows[order], producer[order]
    starts = group_starts(producer)
    parts = np.split(rows, starts[1:]) if len(starts) else []
    return dict(zip(producer[starts].tolist(), parts, strict=True))


def _visible(evidence: Evidence) -> Ints:
    """Return, for each group, how many of its records can be read."""
    visible = np.zeros(len(evidence.ledger.groups.fate), np.int64)
    for view in evidence.committed_views():
        index = visibility_of(evidence, view)
        counted = np.bincount(evidence.ledger.intervals.group, index.visible, len(visible)).astype(np.int64)
        visible = np.maximum(visible, counted)
    return visible


def _with_content(ledger: Ledger) -> Bools:
    """Return which groups contain records or offsets.

    The client library commits an empty transaction without a request to the coordinator, so the brokers
    accepted nothing.
    """
    groups = ledger.groups
    filled = np.zeros(len(groups.fate), np.bool_)
    filled[ledger.intervals.group] = True
    moved = [
        (line.producer, line.txn)
        for client in ledger.clients
        for _, line in client.invokes("send_offsets")
        if line.txn is not None and line.producer is not None
    ]
    table = np.array(sorted(set(moved)), np.int64).reshape(-1, 2)
    rows = _rows_by_producer(ledger, groups.txn >= 0) if moved else {}
    starts = group_starts(table[:, 0])
    for part in np.split(table, starts[1:]) if moved else []:
        mine = rows.get(int(part[0, 0]), _NO_ROWS)
        filled[mine] |= np.isin(groups.txn[mine], part[:, 1])
    return filled


def _sharing(ledger: Ledger) -> dict[str, list[int]]:
    """Return the transactional ids that several producers use, with the numbers of the producers."""
    by_id: dict[str, list[int]] = {}
    for number, declared in sorted(ledger.producers.items()):
        if declared.producer.transactional_id is not None and not declared.is_contradictory:
            by_id.setdefault(declared.producer.transactional_id, []).append(number)
    return {name: numbers for name, numbers in by_id.items() if len(numbers) > 1}


def fences_of(ledger: Ledger, tenures: dict[int, list[Tenure]]) -> dict[int, list[Fence]]:
    """Return the times in which each producer is fenced, in order; they do not overlap."""
    refusals = _refusals(ledger)
    take_overs: dict[int, _TakeOvers] = {}
    for numbers in _sharing(ledger).values():
        shared = _TakeOvers([tenure for number in numbers for tenure in tenures.get(number, [])])
        take_overs |= dict.fromkeys(numbers, shared)
    fences: dict[int, list[Fence]] = {}
    for number, own in tenures.items():
        if ledger.client_of(number) in ledger.with_gaps:
            continue  # a missing init may have ended the fence
        refused = sorted(refusals[number], key=lambda refusal: refusal.at)
        for tenure in own:
            starts = [_first_refusal(tenure, refused)]
            if number in take_overs:
                starts.append(take_overs[number].first_after(tenure))
            if known := [fence for fence in starts if fence is not None]:
                fences.setdefault(number, []).append(min(known, key=lambda fence: fence.at))
    return fences


class _TakeOvers:
    """The inits of all producers that share a transactional id, to find the first take-over of a tenure.

    For each clock, the tenures are sorted by the earliest time of their inits. For each of them, the list has
    the tenure that was answered first, of this one and all that follow.
    """

    def __init__(self, tenures: list[Tenure]) -> None:
        self._times: dict[str, list[int]] = {}
        self._answered_first: dict[str, list[Tenure]] = {}
        by_clock: dict[str, list[Tenure]] = defaultdict(list)
        for tenure in tenures:
            if tenure.began is not None:
                by_clock[tenure.clock].append(tenure)
        for clock, known in by_clock.items():
            known.sort(key=lambda tenure: tenure.first)
            best = known[-1:]
            for tenure in known[-2::-1]:
                best.append(min(best[-1], tenure, key=lambda t: t.began or 0))
            self._times[clock] = [tenure.first for tenure in known]
            self._answered_first[clock] = best[::-1]

    def first_after(self, tenure: Tenure) -> Fence | None:
        """Return the fence of the first producer whose init came after that of the tenure, and during it."""
        if tenure.began is None:
            return None
        at = bisect_right(self._times[tenure.clock], tenure.began)
        if at == len(self._times[tenure.clock]):
            return None
        # The producer's own next init ends the tenure, so its answer is never within it.
        other = self._answered_first[tenure.clock][at]
        if other.began is None or other.began >= tenure.until:
            return None
        why = f"producer {other.producer} took over its transactional id"
        return Fence(other.began, tenure.until, other.line, why, succeeded=True)


def _first_refusal(tenure: Tenure, refusals: list[_Refusal]) -> Fence | None:
    """Return the fence that begins with the first fencing error within a tenure; `refusals` are sorted."""
    for at in range(bisect_left(refusals, (tenure.asked,)), len(refusals)):
        refusal = refusals[at]
        if refusal.at >= tenure.until:
            return None
        # The request may belong to an earlier tenure, and its answer came late.
        if refusal.asked == NOT_LISTED or refusal.asked >= tenure.asked:
            why = "it received a fencing error"
            return Fence(refusal.at, tenure.until, refusal.line, why, succeeded=False)
    return None


def succeeded_clients(ledger: Ledger) -> set[str]:
    """Return the clients whose transactional ids successors took over for good."""
    return {
        ledger.client_of(number)
        for number, fences in fences_of(ledger, tenures_of(ledger)).items()
        if fences[-1].succeeded and fences[-1].until == NEVER
    }


def tenures_of(ledger: Ledger) -> dict[int, list[Tenure]]:
    """Return the tenures of each producer with a transactional id, in order."""
    tenures: dict[int, list[Tenure]] = {}
    for client in ledger.clients:
        clock = client.opening.clock if client.opening else ""
        for number, inits in _inits(client).items():
            if number in ledger.producers:
                ends = [asked for asked, *_ in inits[1:]]
                first = NEVER
                for (asked, began, line), until in zip(inits, [*ends, NEVER], strict=True):
                    first = min(first, asked)
                    tenures.setdefault(number, []).append(
                        Tenure(number, asked, first, began, until, HistoryRef(client.name, line), clock)
                    )
                    first = first if began is None and asked >= 0 else NEVER
    return tenures


def _inits(client: Scan) -> dict[int, list[tuple[int, int | None, int]]]:
    """Return the inits of each producer of a client: time of request, time of the ok (or None), line.

    The first one is the time before any init. Inits that certainly failed are left out.
    """
    only = _only_producer(client)
    answers = {done.op: (done, number) for number, done in client.completions("init")}
    inits: dict[int, list[tuple[int, int | None, int]]] = {
        number: [(-1, None, 1)] for number in client.producers
    }
    for number, line in client.invokes("init"):
        producer = only if line.producer is None else line.producer
        done, answer_line = answers.get(line.op, (None, number))
        if producer is not None and not isinstance(done, Fail):
            began = done.mono if isinstance(done, Ok) else None
            inits.setdefault(producer, [(-1, None, 1)]).append((line.mono, began, answer_line))
    return inits


def _only_producer(client: Scan) -> int | None:
    return next(iter(client.producers)) if len(client.producers) == 1 else None


def _refusals(ledger: Ledger) -> dict[int, list[_Refusal]]:
    """Return the fencing errors that each producer received.

    The line of an answer does not name the producer. Its request does. If the history lacks the request, the
    line is used only if the client has a single producer.
    """
    refusals: dict[int, list[_Refusal]] = defaultdict(list)
    for client in ledger.clients:
        only = _only_producer(client)
        requests = {op: (producer, asked) for op, producer, asked in client.refused.tolist()}
        for _, line in client.invokes("init", "send_offsets"):
            requests[line.op] = (-1 if line.producer is None else line.producer, line.mono)
        for number, done in client.completions():
            if isinstance(done, Ok) or done.error is None or not _is_final(done.error):
                continue
            producer, asked = requests.get(done.op, (-1, NOT_LISTED))
            known = only if producer == -1 else producer
            if known is not None:
                refusals[known].append(_Refusal(done.mono, asked, HistoryRef(client.name, number)))
    return refusals


def _is_final(error: Error) -> bool:
    return error.name in FENCED_NAMES and not RECOVERABLE_FLAGS & set(error.flags)


def _find_zombies(ledger: Ledger, rows: Ints, fences: list[Fence], visible: Ints, out: Collector) -> Ints:
    """Find the transactions whose end was requested while their producer was fenced. Return the others.

    `rows` are the accepted transactions of one producer.
    """
    asked = ledger.groups.asked[rows]
    starts = np.array([fence.at for fence in fences], np.int64)
    ends = np.array([fence.until for fence in fences], np.int64)
    index = np.searchsorted(starts, asked, "left") - 1
    zombies = (index >= 0) & (asked < ends[index])
    examples = [
        _example(ledger, group, fences[fence], int(visible[group]))
        for group, fence in zip(rows[zombies][:EXAMPLES].tolist(), index[zombies].tolist(), strict=False)
    ]
    out.add("zombie_write", "transactions", int(zombies.sum()), examples)
    return rows[~zombies]


def _example(ledger: Ledger, group: int, fence: Fence, visible: int) -> Example:
    after = (int(ledger.groups.asked[group]) - fence.at) / 1e6
    outcome = "was acknowledged" if ledger.groups.fate[group] == COMMITTED else "was not acknowledged"
    return Example(
        what=f"{group_name(ledger, group)}: its end was requested {after:.3f} ms after the fencing "
        f"({fence.why}); it {outcome}, and {visible} of its records can be read",
        weight=max(1, visible),
        lines=[fence.line, *group_lines(ledger, group)],
    )


def _find_pairs(
    ledger: Ledger, tenures: dict[int, list[Tenure]], rows: dict[int, Ints], out: Collector
) -> None:
    """Find pairs of producers whose inits overlapped and whose later transactions were both accepted.

    `rows` are the accepted transactions of each producer at times without a fence. Each tenure is reported in
    one pair at most.
    """
    for numbers in _sharing(ledger).values():
        by_clock: dict[str, list[tuple[Tenure, Ints]]] = defaultdict(list)
        for number in numbers:
            if ledger.client_of(number) in ledger.with_gaps:
                continue  # a missing init may have ended the tenure
            mine = rows.get(number, _NO_ROWS)
            asked = ledger.groups.asked[mine]
            for tenure in tenures.get(number, []):
                accepted = _rows_within(mine, asked, tenure)
                if len(accepted):
                    by_clock[tenure.clock].append((tenure, accepted))
        for active in by_clock.values():
            _find_overlaps(ledger, active, out)


def _rows_within(rows: Ints, asked: Ints, tenure: Tenure) -> Ints:
    """Return the transactions whose end was requested in a tenure, after the answer to its init.

    `asked` has the time of the request of each transaction in `rows`, in ascending order.
    """
    if tenure.began is None or not len(rows):
        return _NO_ROWS
    low, high = np.searchsorted(asked, tenure.began, "right"), np.searchsorted(asked, tenure.until, "left")
    return rows[low:high]


def _find_overlaps(ledger: Ledger, active: list[tuple[Tenure, Ints]], out: Collector) -> None:
    """Compare each tenure with the one of another producer that was used longest of those it overlaps."""
    active.sort(key=lambda item: item[0].began or 0)
    began = np.array([tenure.began for tenure, _ in active], np.int64)
    producer = np.array([tenure.producer for tenure, _ in active], np.int64)
    used_until = np.array([int(ledger.groups.asked[rows[-1]]) for _, rows in active], np.int64)
    first = np.searchsorted(began, np.array([tenure.first for tenure, _ in active], np.int64), "left")
    for i, low in enumerate(first.tolist()):
        if low < i:
            last = np.where(producer[low:i] == producer[i], -1, used_until[low:i])
            other = low + int(np.argmax(last))
            if used_until[other] > began[i] and producer[other] != producer[i]:
                _report_pair(ledger, active[other], active[i], out)


def _report_pair(
    ledger: Ledger, earlier: tuple[Tenure, Ints], later: tuple[Tenure, Ints], out: Collector
) -> None:
    (a, first_rows), (b, second_rows) = earlier, later
    first_rows = first_rows[ledger.groups.asked[first_rows] > (b.began or 0)]
    first, second = int(first_rows[0]), int(second_rows[0])
    count = min(len(first_rows), len(second_rows))
    example = Example(
        what=f"{group_name(ledger, first)} and {group_name(ledger, second)} were both accepted after the "
        "inits of both producers, which share a transactional id: one of the two producers was fenced",
        weight=count,
        lines=[a.line, b.line, *group_lines(ledger, first), *group_lines(ledger, second)],
    )
    out.add("zombie_write", "transactions", count, [example])


def _raw(evidence: Evidence, out: Collector) -> None:
    findings = [(view.meta.witness, view.meta.epochs) for view in evidence.observations]
    # All witnesses read the same batches, so take the largest number.
    out.compared += max((epochs.compared for _, epochs in findings), default=0)
    for witness, epochs in findings:
        examples = [
            Example(
                what=f"{spot.topic}-{spot.partition}: the batch at offset {spot.offset} has an older epoch "
                f"than the earlier batch at offset {spot.other_offset} ({spot.detail})",
                witness=witness,
                offsets=place(spot),
            )
            for spot in epochs.examples
        ]
        named = frozenset((spot.topic, spot.partition, spot.offset) for spot in epochs.examples)
        found = Tally({"epoch": epochs.count}, {"epoch": named})
        out.add("zombie_write", "batches", found, examples, witness=witness)
