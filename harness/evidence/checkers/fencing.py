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

from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from harness.evidence.bit_words import EXAMPLES, Bools, Ints
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
    """A fencing error. `asked` is the time of its request, or None if the history lacks it."""

    at: int
    asked: int | None
    line: HistoryRef


def check(evidence: Evidence) -> Result:
    """Find transactions and batches of fenced producers that the brokers accepted."""
    out = Collector("fencing", "transactions")
    ledger = evidence.ledger
    groups = ledger.groups
    shared = [number for numbers in _sharing(ledger).values() for number in numbers]
    out.compared += int(np.isin(groups.producer[groups.txn >= 0], shared).sum())
    visible = _visible(evidence)
    accepted = (groups.txn >= 0) & (((groups.fate == COMMITTED) & _with_content(ledger)) | (visible > 0))
    tenures = tenures_of(ledger)
    for producer, fences in fences_of(ledger, tenures).items():
        rows = np.flatnonzero(accepted & (groups.producer == producer))
        _find_zombies(ledger, rows, fences, visible, out)
    _find_pairs(ledger, tenures, accepted, out)
    _raw(evidence, out)
    return out.result()


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
    for producer in np.unique(table[:, 0]):
        transactions = table[table[:, 0] == producer, 1]
        filled |= (groups.producer == producer) & np.isin(groups.txn, transactions)
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
    successors: dict[int, list[Tenure]] = defaultdict(list)
    for numbers in _sharing(ledger).values():
        for number in numbers:
            successors[number] = [t for other in numbers if other != number for t in tenures.get(other, [])]
    refusals = _refusals(ledger)
    fences: dict[int, list[Fence]] = {}
    for number, own in tenures.items():
        if ledger.client_of(number) in ledger.with_gaps:
            continue  # a missing init may have ended the fence
        for tenure in own:
            starts = [*_taken_over(tenure, successors[number]), *_refused(tenure, refusals[number])]
            if starts:
                fences.setdefault(number, []).append(min(starts))
    return fences


def _taken_over(tenure: Tenure, others: list[Tenure]) -> Iterator[Fence]:
    for other in others:
        began = tenure.began
        if began is None or other.began is None or other.clock != tenure.clock:
            continue
        if other.first > began and other.began < tenure.until:
            why = f"producer {other.producer} took over its transactional id"
            yield Fence(other.began, tenure.until, other.line, why, succeeded=True)


def _refused(tenure: Tenure, refusals: list[_Refusal]) -> Iterator[Fence]:
    for refusal in refusals:
        if tenure.asked <= refusal.at < tenure.until and not (
            # The request belongs to an earlier tenure, and its answer came late.
            refusal.asked is not None and refusal.asked < tenure.asked
        ):
            yield Fence(
                refusal.at, tenure.until, refusal.line, "it received a fencing error", succeeded=False
            )


def was_succeeded(ledger: Ledger, client: str) -> bool:
    """Return whether a successor took over the transactional id of a client for good."""
    fences = fences_of(ledger, tenures_of(ledger))
    return any(
        fences[number][-1].succeeded and fences[number][-1].until == NEVER
        for number in fences
        if ledger.client_of(number) == client
    )


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
            producer, asked = requests.get(done.op, (-1, None))
            known = only if producer == -1 else producer
            if known is not None:
                refusals[known].append(_Refusal(done.mono, asked, HistoryRef(client.name, number)))
    return refusals


def _is_final(error: Error) -> bool:
    return error.name in FENCED_NAMES and not RECOVERABLE_FLAGS & set(error.flags)


def _find_zombies(ledger: Ledger, rows: Ints, fences: list[Fence], visible: Ints, out: Collector) -> None:
    """Find the transactions whose end was requested while their producer was fenced.

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


def _example(ledger: Ledger, group: int, fence: Fence, visible: int) -> Example:
    after = (int(ledger.groups.asked[group]) - fence.at) / 1e6
    outcome = "was acknowledged" if ledger.groups.fate[group] == COMMITTED else "was not acknowledged"
    return Example(
        what=f"{group_name(ledger, group)}: its end was requested {after:.3f} ms after the fencing "
        f"({fence.why}); it {outcome}, and {visible} of its records can be read",
        weight=max(1, visible),
        lines=[fence.line, *group_lines(ledger, group)],
    )


def _find_pairs(ledger: Ledger, tenures: dict[int, list[Tenure]], accepted: Bools, out: Collector) -> None:
    """Find pairs of producers whose inits overlapped and whose later transactions were both accepted."""
    for numbers in _sharing(ledger).values():
        whole = [number for number in numbers if ledger.client_of(number) not in ledger.with_gaps]
        for one, other in combinations(whole, 2):
            for a in tenures.get(one, []):
                for b in tenures.get(other, []):
                    if _overlap(a, b):
                        _find_pair(ledger, a, b, accepted, out)


def _overlap(a: Tenure, b: Tenure) -> bool:
    if a.began is None or b.began is None or a.clock != b.clock:
        return False
    return a.first <= b.began and b.first <= a.began


def _find_pair(ledger: Ledger, a: Tenure, b: Tenure, accepted: Bools, out: Collector) -> None:
    groups = ledger.groups
    both = max(a.began or 0, b.began or 0)
    found = [
        np.flatnonzero(
            accepted & (groups.producer == t.producer) & (groups.asked > both) & (groups.asked < t.until)
        )
        for t in (a, b)
    ]
    count = min(len(rows) for rows in found)
    if not count:
        return
    first, second = (int(rows[0]) for rows in found)
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
