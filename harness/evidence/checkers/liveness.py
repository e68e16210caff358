"""Liveness: after the last fault is healed, transactions end and operations complete within their limits.

Anomalies:

    the last stable offset stayed behind the high watermark for longer     hanging_transaction
    than any transaction may stay open
    an operation got no answer within the limit                            stalled

Time while a fault is active does not count, because brokers may be unavailable then. An operation of a client
that did not stop, so that the run had to kill it, waited until the run killed the client.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from harness.base.partition_id import PartitionId
from harness.evidence.bit_words import EXAMPLES
from harness.evidence.checkers.model import Collector, Evidence, Example, HistoryRef, OffsetRef, Result
from harness.evidence.checkers.visibility_index import group_lines, group_name
from harness.evidence.history import Ok
from harness.evidence.ledger import LINE_OPERATIONS, Ledger, Scan

ABORT_SWEEP_MS: Final = 15_000
"""Milliseconds that the coordinator may need to abort a transaction after the transaction's time-out.

The coordinator checks for timed-out transactions every 10 s. Writing the markers may take 5 s more.
"""


class _Look(NamedTuple):
    mono: int
    lso: int
    hw: int
    line: HistoryRef


def check(evidence: Evidence) -> Result:
    """Find transactions that do not end, and operations that get no answer in time, after the last heal."""
    out = Collector("liveness", "operations and partitions")
    ledger = evidence.ledger
    healed = last_heal(ledger)
    if healed is None:
        out.reasons.append("a fault was never healed, so recovery cannot be checked")
        return out.result()
    _hanging(evidence, healed, out)
    limit = evidence.expect.stall_ms * 1_000_000
    _slow_answers(ledger, healed, limit, out)
    for client in ledger.clients:
        _unanswered(client, _end_of(client, evidence), healed, limit, out)
    return out.result()


def last_heal(ledger: Ledger) -> int | None:
    """Return the time at which the last fault was healed.

    Return 0 if there was no fault, and None if a fault is still active.
    """
    active: dict[str, int] = {}
    last = 0
    for client in ledger.clients:
        for _, fault in client.faults():
            if fault.stage == "intent":
                active[fault.id] = fault.mono
            elif fault.stage == "healed":
                active.pop(fault.id, None)
                last = max(last, fault.mono)
    return None if active else last


def _hanging(evidence: Evidence, healed: int, out: Collector) -> None:
    ledger = evidence.ledger
    timeouts = [declared.producer.timeout_ms or 0 for declared in ledger.producers.values()]
    timeout_ms = max([evidence.expect.transaction_timeout_ms, *timeouts])
    limit = (timeout_ms + ABORT_SWEEP_MS) * 1_000_000
    for (topic, partition), looks in sorted(_looks(ledger).items()):
        out.compared += 1
        last = looks[-1]
        if last.lso >= last.hw:
            continue
        since = last
        for look in reversed(looks):
            if look.lso != last.lso or look.lso >= look.hw:
                break
            since = look
        stuck = last.mono - max(since.mono, healed)
        if stuck <= limit:
            out.reasons.append(
                f"{topic}-{partition}: the last stable offset {last.lso} is behind the high watermark "
                f"{last.hw}, but was observed for {max(stuck, 0) / 1e9:.1f} s, less than {limit / 1e9:.1f} s"
            )
            continue
        example = Example(
            what=f"{topic}-{partition}: the last stable offset stayed at {last.lso} for {stuck / 1e9:.1f} s "
            f"with the high watermark at {last.hw}; a transaction may stay open for {timeout_ms} ms",
            weight=last.hw - last.lso,
            lines=[since.line, last.line],
            offsets=[OffsetRef(topic, partition, last.lso, last.hw - 1)],
        )
        out.add("hanging_transaction", "partitions", 1, [example])


def _looks(ledger: Ledger) -> dict[PartitionId, list[_Look]]:
    looks: dict[PartitionId, list[_Look]] = {}
    for client in ledger.clients:
        for number, sample in client.samples():
            for topic, partition, _, lso, hw in sample.bounds:
                look = _Look(sample.mono, lso, hw, HistoryRef(client.name, number))
                looks.setdefault((topic, partition), []).append(look)
    return {key: sorted(values) for key, values in looks.items()}


def _slow_answers(ledger: Ledger, healed: int, limit: int, out: Collector) -> None:
    groups = ledger.groups
    answered = groups.answered > 0
    out.compared += int(answered.sum())
    took = groups.answered - np.maximum(groups.asked, healed)
    slow = np.flatnonzero(answered & (took > limit))
    examples = [
        Example(
            what=f"{group_name(ledger, group)} got its answer after {took[group] / 1e9:.1f} s",
            weight=int(took[group] // 1_000_000),
            lines=group_lines(ledger, group),
        )
        for group in slow[np.argsort(-took[slow], kind="stable")][:EXAMPLES].tolist()
    ]
    out.add("stalled", "operations", len(slow), examples)


def _end_of(client: Scan, evidence: Evidence) -> int | None:
    """Return the time until which a client waited for answers; None if it died earlier, or if unknown."""
    if client.closing is not None:
        return client.closing.mono
    record = evidence.clients.get(client.name) if evidence.clients else None
    if record is None or record.ended != "killed" or client.opening is None:
        return None
    assert evidence.clients is not None
    return record.at if client.opening.clock == evidence.clients.clock else None


def _unanswered(client: Scan, end: int | None, healed: int, limit: int, out: Collector) -> None:
    """Find operations that succeeded too late, and operations that got no answer until the client's end.

    An operation without an answer is reported if the client stayed open for longer than the limit after the
    request. The waiting time starts at the last heal if the request was earlier.
    """
    requests = {line.op: (line.mono, number, line.f) for number, line in client.invokes(*LINE_OPERATIONS)}
    for number, done in client.completions(*LINE_OPERATIONS):
        requested, request_line, f = requests.pop(done.op, (done.mono, number, done.f))
        took = done.mono - max(requested, healed)
        out.compared += 1
        if took > limit and isinstance(done, Ok):
            _stalled(client, f, took, [request_line, number], out)
    if end is None:
        return  # a fault may have ended the process, so its missing answers do not count as stalled
    waiting = [(mono, line, "the end of a transaction") for *_, mono, line in client.waiting.tolist()]
    for requested, line, f in [*waiting, *requests.values()]:
        out.compared += 1
        took = end - max(requested, healed)
        if took > limit:
            _stalled(client, f, took, [line], out)


def _stalled(client: Scan, f: str, took: int, lines: list[int], out: Collector) -> None:
    example = Example(
        what=f"client {client.name} waited {took / 1e9:.1f} s for {f}",
        weight=max(1, took // 1_000_000),
        lines=[HistoryRef(client.name, line) for line in lines],
    )
    out.add("stalled", "operations", 1, [example])
