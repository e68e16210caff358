"""Whether every fault took effect, was healed, and met the work of a client.

A fault that was injected and healed while no client had an operation in progress tests nothing. So at least
one operation must have been requested, or be without an answer, between the intent of the fault and its heal.
A transaction counts from its begin until its end was answered, or until its client gave it up. An operation
without an answer counts until its client ended. If the client was killed, the time of its end is unknown, so
the operation counts for the stall limit. A sample in which the last stable offset is behind the high
watermark also shows work: a transaction is open at that time. Each injection counts on its own, even if
several have the same id.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.evidence.bit_words import Ints
from harness.evidence.checkers.consumer_reads import Reads, reads_of
from harness.evidence.checkers.model import Collector, Evidence
from harness.evidence.checkers.record_pieces import clocks_of_groups, pieces_of
from harness.evidence.history import FaultLine
from harness.evidence.ledger import LINE_OPERATIONS, Ledger, Scan

_NEVER = np.iinfo(np.int64).max


def check_faults(evidence: Evidence, out: Collector) -> None:
    """Check the stages of every fault, and that it met at least one operation."""
    ledger = evidence.ledger
    stages = _injections(ledger)
    operations = _operations(ledger, evidence.expect.stall_ms * 1_000_000) if stages else {}
    for ident, events in sorted(stages.items()):
        out.compared += 1
        lines = [line for _, line in events]
        reached = {line.stage for line in lines}
        name = next(
            (f"{line.fault} on {line.target}" for line in lines if line.stage == "intent"),
            "a fault without an intent line",
        )
        if "intent" not in reached:
            out.reasons.append(f"{ident}: {name} was injected")
        if "bite" not in reached or "no_bite" in reached:
            detail = next((line.detail for line in lines if line.stage == "no_bite"), "nothing was measured")
            out.reasons.append(f"{ident}: {name} did not take effect: {detail}")
        if "healed" not in reached:
            out.reasons.append(f"{ident}: {name} was not healed")
        if reached >= {"bite", "healed"} and _position(lines, "bite") > _position(lines, "healed"):
            out.reasons.append(f"{ident}: the effect of {name} was measured only after the heal")
        if {"bite", "healed"} <= reached and (reason := _missed(events, operations)):
            out.reasons.append(f"{ident}: {name} {reason}")
    # A fault that was injected again does not stand in for another one.
    injected = len({line.id for events in stages.values() for _, line in events})
    if injected < evidence.expect.faults:
        was = "was" if injected == 1 else "were"
        out.reasons.append(
            f"{evidence.expect.faults} faults were planned, but only {injected} {was} injected"
        )


def _position(lines: list[FaultLine], stage: str) -> int:
    return next(i for i, line in enumerate(lines) if line.stage == stage)


def _injections(ledger: Ledger) -> dict[str, list[tuple[str, FaultLine]]]:
    """Return the lines of each injection, with their clocks. Every intent begins another injection."""
    injections: dict[str, list[tuple[str, FaultLine]]] = {}
    for client in ledger.clients:
        current: dict[str, str] = {}
        for _, fault in client.faults():
            name = current.setdefault(fault.id, fault.id)
            if fault.stage == "intent" and any(
                line.stage == "intent" for _, line in injections.get(name, [])
            ):
                name = current[fault.id] = f"{name}, injected again"
            injections.setdefault(name, []).append((_clock(client), fault))
    return injections


def _missed(events: list[tuple[str, FaultLine]], operations: dict[str, Ints]) -> str:
    """Return the reason why a fault that took effect met no operation; return "" if it met one."""
    clock = events[0][0]
    began = min(line.mono for at, line in events if at == clock)
    ended = max((line.mono for at, line in events if at == clock and line.stage == "healed"), default=_NEVER)
    spans = operations.get(clock)
    if spans is None:
        return "cannot be compared with the operations: none of them has a time of the same clock"
    if np.any((spans[:, 0] <= ended) & (spans[:, 1] >= began)):
        return ""
    return (
        f"met no work: no client had an operation in progress in the {(ended - began) / 1e9:.1f} s "
        "between the intent and the heal"
    )


def _clock(client: Scan) -> str:
    return client.opening.clock if client.opening else ""


def _operations(ledger: Ledger, limit: int) -> dict[str, Ints]:
    """Return the times of all operations by clock, as rows: when it was requested, when it ended.

    `limit` is the time in ns for which an unanswered operation of a killed client counts.
    """
    spans: dict[str, list[Ints]] = {}
    for client in ledger.clients:
        numbers = np.array(list(client.producers), np.int64)
        mine = np.isin(ledger.groups.producer, numbers) & (ledger.groups.asked > 0)
        asked, answered = ledger.groups.asked[mine], ledger.groups.answered[mine]
        ended = np.where(answered > 0, answered, asked)
        waiting = client.waiting[:, 4]
        rows = np.concatenate(
            [
                np.column_stack([asked, ended]),
                np.column_stack([waiting, np.full(len(waiting), _NEVER)]),
                _transactions(client, np.sort(ended)),
                np.array(list(_line_operations(client)), np.int64).reshape(-1, 2),
            ]
        )
        latest = rows[:, 0] + limit if client.closing is None else np.array(client.closing.mono)
        rows[:, 1] = np.where(rows[:, 1] == _NEVER, np.maximum(latest, rows[:, 0]), rows[:, 1])
        spans.setdefault(_clock(client), []).append(rows)
    for reads in reads_of(ledger):
        spans.setdefault(reads.clock, []).append(_deliveries(ledger, reads))
    return {clock: table for clock, rows in spans.items() if len(table := np.concatenate(rows))}


def _deliveries(ledger: Ledger, reads: Reads) -> Ints:
    """Return the time from the request that sent each record to the poll that returned it, on one clock."""
    clocks, clock_of = clocks_of_groups(ledger)
    pieces = pieces_of(ledger, reads.rows)
    here = clock_of[pieces.group] == clocks.index(reads.clock)
    pairs = [ledger.groups.asked[pieces.group[here]], reads.rows["mono"][pieces.run[here]]]
    return np.column_stack(pairs).astype(np.int64)


def _transactions(client: Scan, ended: Ints) -> Ints:
    """Return the time of each begin, and the time of the first end of a transaction after it."""
    begins = client.begin_times
    at = np.searchsorted(ended, begins)
    return np.column_stack([begins, np.append(ended, _NEVER)[at]])


def _line_operations(client: Scan) -> Iterator[tuple[int, int]]:
    answers = {done.op: done for _, done in client.completions(*LINE_OPERATIONS)}
    for _, line in client.invokes(*LINE_OPERATIONS):
        done = answers.get(line.op)
        idle = line.f == "caught_up" or (line.f == "poll" and done is not None and not done.read)
        if not idle:
            yield line.mono, _NEVER if done is None else done.mono
    for _, sample in client.samples():
        if any(lso < high_watermark for *_, lso, high_watermark in sample.bounds):
            yield sample.mono, sample.mono
