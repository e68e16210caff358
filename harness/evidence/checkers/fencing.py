"""Fencing: once a successor owns the transactional id, the brokers accept nothing from its predecessor.

A successor takes over a transactional id with its init. Its predecessor may still request a commit or an
abort after this init returned. If the brokers acknowledge this request, or the transaction's records can be
read, it is a zombie_write. If the predecessor sent the request earlier, both commit and abort are correct.
The raw log is a second source: within a partition, the epoch of a producer id must never decrease.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from harness.evidence.bit_words import EXAMPLES, Bools, Ints
from harness.evidence.checkers.distinct import Tally
from harness.evidence.checkers.model import Collector, Evidence, Example, HistoryRef, Result, place
from harness.evidence.checkers.visibility_index import group_lines, group_name, visibility_of
from harness.evidence.history import Ok
from harness.evidence.ledger import COMMITTED, Ledger

FENCED_NAMES: Final = frozenset({"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "_FENCED"})


class Fence(NamedTuple):
    """The time from which a producer is fenced, the history line that proves it, and the reason as text."""

    at: int
    line: HistoryRef
    why: str


class _Init(NamedTuple):
    at: int
    producer: int
    line: HistoryRef
    clock: str


def check(evidence: Evidence) -> Result:
    """Find transactions and batches of fenced producers that the brokers accepted."""
    out = Collector("fencing", "transactions")
    ledger = evidence.ledger
    groups = ledger.groups
    fences = fences_of(ledger)
    late = np.zeros(len(groups.fate), np.bool_)
    for producer, fence in fences.items():
        late |= (groups.producer == producer) & (groups.txn >= 0) & (groups.asked > fence.at)
    shared = _sharing(ledger)
    out.compared += int(np.isin(groups.producer[groups.txn >= 0], shared).sum())
    visible = np.zeros(len(groups.fate), np.int64)
    for view in evidence.committed_views():
        index = visibility_of(evidence, view)
        counted = np.bincount(ledger.intervals.group, index.visible, len(visible)).astype(np.int64)
        visible = np.maximum(visible, counted)
    accepted = late & ((groups.fate == COMMITTED) | (visible > 0))
    examples = _examples(ledger, accepted, visible, fences)
    out.add("zombie_write", "transactions", int(accepted.sum()), examples)
    _raw(evidence, out)
    return out.result()


def _sharing(ledger: Ledger) -> list[int]:
    by_id: dict[str, list[int]] = {}
    for number, declared in sorted(ledger.producers.items()):
        if declared.producer.transactional_id is not None:
            by_id.setdefault(declared.producer.transactional_id, []).append(number)
    return [number for numbers in by_id.values() if len(numbers) > 1 for number in numbers]


def fences_of(ledger: Ledger) -> dict[int, Fence]:
    """Return the fence of each fenced producer.

    A producer is fenced when its successor's init returns or when it receives a fencing error, whichever is
    earlier.
    """
    inits, errors = _events(ledger)
    last_init: dict[int, int] = {}
    for init in inits:
        last_init[init.producer] = max(init.at, last_init.get(init.producer, 0))
    fences: dict[int, Fence] = {}
    for init in inits:
        txid = ledger.producers[init.producer].producer.transactional_id
        for number, own_init in last_init.items():
            same_id = ledger.producers[number].producer.transactional_id == txid and txid is not None
            clocks = {i.clock for i in inits if i.producer == number}
            if same_id and number != init.producer and init.at > own_init and clocks == {init.clock}:
                fence = Fence(init.at, init.line, f"producer {init.producer} took over its transactional id")
                fences[number] = min(fence, fences.get(number, fence))
    for at, producer, line in errors:
        # Ignore the error if the producer initialised again after the error. The producer is then no longer
        # fenced.
        if at > last_init.get(producer, -1):
            fence = Fence(at, line, "it received a fencing error")
            fences[producer] = min(fence, fences.get(producer, fence))
    return fences


def _events(ledger: Ledger) -> tuple[list[_Init], list[tuple[int, int, HistoryRef]]]:
    inits, errors = [], []
    for client in ledger.clients:
        asked = {line.op: line.producer for _, line in client.invokes("init")}
        only = next(iter(client.producers)) if len(client.producers) == 1 else None
        clock = client.opening.clock if client.opening else ""
        for number, done in client.completions():
            ref = HistoryRef(client.name, number)
            if isinstance(done, Ok) and done.f == "init":
                producer = asked.get(done.op)
                producer = only if producer is None else producer
                if producer in ledger.producers:
                    inits.append(_Init(done.mono, producer, ref, clock))
            elif only is not None and done.error and done.error.name in FENCED_NAMES:
                # The line that completes an operation does not name the producer. So use the line only if the
                # client has a single producer.
                errors.append((done.mono, only, ref))
    return inits, errors


def _examples(ledger: Ledger, accepted: Bools, visible: Ints, fences: dict[int, Fence]) -> list[Example]:
    examples = []
    for group in np.flatnonzero(accepted)[:EXAMPLES].tolist():
        fence = fences[int(ledger.groups.producer[group])]
        after = (int(ledger.groups.asked[group]) - fence.at) / 1e6
        outcome = "was acknowledged" if ledger.groups.fate[group] == COMMITTED else "was not acknowledged"
        examples.append(
            Example(
                what=f"{group_name(ledger, group)}: its end was requested {after:.3f} ms after the fencing "
                f"({fence.why}); it {outcome}, and {visible[group]} of its records can be read",
                weight=max(1, int(visible[group])),
                lines=[fence.line, *group_lines(ledger, group)],
            )
        )
    return examples


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
