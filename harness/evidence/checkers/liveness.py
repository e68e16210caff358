"""Liveness: after the last fault is healed, transactions end and operations complete within their limits.

Anomalies:

    the last stable offset stayed behind the high watermark for longer     hanging_transaction
    than any transaction may stay open
    an operation got no answer within the limit                            stalled

Time while a fault is active does not count, because brokers may be unavailable then. An operation of a client
that did not stop, so that the run had to kill it, waited until the run killed the client. Time in which the
machine was starved does not count either (starvation.py): a limit that only such time exceeds is a reason for
unknown.

Times are compared only within one monotonic clock. If the history of a fault has another clock than a client,
the client may have waited while the fault was active. Its slow operations are then a reason for unknown.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from harness.evidence.bit_words import EXAMPLES
from harness.evidence.checkers.client_ends import FAULTS
from harness.evidence.checkers.model import Collector, Evidence, Example, HistoryRef, OffsetRef, Result
from harness.evidence.checkers.record_pieces import clocks_of_groups
from harness.evidence.checkers.starvation import lost_time
from harness.evidence.checkers.visibility_index import group_lines, group_name
from harness.evidence.history import Ok
from harness.evidence.ledger import LINE_OPERATIONS, Ledger, Scan

ABORT_SWEEP_MS: Final = 15_000
"""Milliseconds that the coordinator may need to abort a transaction after the transaction's time-out.

The coordinator checks for timed-out transactions every 10 s. Writing the markers may take 5 s more.
"""

_UNORDERED: Final = "a fault has another clock, so it may have been active at that time"


class Healed(NamedTuple):
    """The last heal of all faults on one clock; 0 if there was no fault.

    `is_certain` is False if faults have another clock, so that they may have been active later.
    """

    at: int
    is_certain: bool


class _Look(NamedTuple):
    mono: int
    lso: int
    hw: int
    line: HistoryRef


def check(evidence: Evidence) -> Result:
    """Find transactions that do not end, and operations that get no answer in time, after the last heal."""
    out = Collector("liveness", "operations and partitions")
    ledger = evidence.ledger
    heals = last_heals(ledger)
    if any(client.miscounted and _role(client) == FAULTS for client in ledger.clients):
        out.reasons.append("the history of the faults is not whole, so recovery cannot be checked")
        return out.result()
    if heals is None:
        out.reasons.append("a fault was never healed, so recovery cannot be checked")
        return out.result()
    _hanging(evidence, heals, out)
    limit = evidence.expect.stall_ms * 1_000_000
    _slow_answers(evidence, heals, limit, out)
    for client in ledger.clients:
        _Waits(evidence, client, healed_on(heals, _clock(client)), limit, out).check()
    return out.result()


def last_heals(ledger: Ledger) -> dict[str, int] | None:
    """Return the time at which the last fault was healed, for each clock of a fault.

    Return None if a fault is still active.
    """
    active: dict[str, int] = {}
    heals: dict[str, int] = {}
    for client in ledger.clients:
        last = 0
        for _, fault in client.faults():
            if fault.stage == "intent":
                active[fault.id] = fault.mono
            elif fault.stage == "healed":
                active.pop(fault.id, None)
                last = max(last, fault.mono)
        if last:
            heals[_clock(client)] = max(last, heals.get(_clock(client), 0))
    return None if active else heals


def healed_on(heals: dict[str, int], clock: str) -> Healed:
    """Return the last heal on a clock; `heals` has the last heal on each clock of a fault."""
    return Healed(heals.get(clock, 0), not heals.keys() - {clock})


def _role(client: Scan) -> str:
    return client.opening.role if client.opening else ""


def _clock(client: Scan) -> str:
    return client.opening.clock if client.opening else ""


def _hanging(evidence: Evidence, heals: dict[str, int], out: Collector) -> None:
    ledger = evidence.ledger
    timeouts = [declared.producer.timeout_ms or 0 for declared in ledger.producers.values()]
    timeout_ms = max([evidence.expect.transaction_timeout_ms, *timeouts])
    limit = (timeout_ms + ABORT_SWEEP_MS) * 1_000_000
    clients = {client.name: client for client in ledger.clients}
    for (topic, partition, clock), looks in sorted(_looks(ledger).items()):
        out.compared += 1
        healed, is_certain = healed_on(heals, clock)
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
        if not is_certain:
            out.reasons.append(
                f"{topic}-{partition}: the last stable offset stayed at {last.lso}; {_UNORDERED}"
            )
            continue
        lost = lost_time(evidence, clients[last.line.client], last.mono - stuck, last.mono)
        if lost.time and stuck - lost.time <= limit:
            out.reasons.append(
                f"{topic}-{partition}: the last stable offset stayed at {last.lso} for {stuck / 1e9:.1f} s, "
                f"but {lost.text()}"
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


def _looks(ledger: Ledger) -> dict[tuple[str, int, str], list[_Look]]:
    """Return the samples of each partition and clock."""
    looks: dict[tuple[str, int, str], list[_Look]] = {}
    for client in ledger.clients:
        for number, sample in client.samples():
            for topic, partition, _, lso, hw in sample.bounds:
                look = _Look(sample.mono, lso, hw, HistoryRef(client.name, number))
                looks.setdefault((topic, partition, _clock(client)), []).append(look)
    return {key: sorted(values, key=lambda look: look[:3]) for key, values in looks.items()}


def _slow_answers(evidence: Evidence, heals: dict[str, int], limit: int, out: Collector) -> None:
    ledger = evidence.ledger
    groups = ledger.groups
    answered = groups.answered > 0
    out.compared += int(answered.sum())
    names, clock = clocks_of_groups(ledger)
    times = [healed_on(heals, name) for name in [*names, ""]]  # the clock -1 is unknown
    healed, is_certain = (np.array(column)[clock] for column in zip(*times, strict=True))
    took = groups.answered - np.maximum(groups.asked, healed)
    late = answered & (took > limit)
    slow, unordered = np.flatnonzero(late & is_certain), np.flatnonzero(late & ~is_certain)
    if len(unordered):
        name = group_name(ledger, int(unordered[0]))
        out.reasons.append(f"{name} got its answer after {took[unordered[0]] / 1e9:.1f} s; {_UNORDERED}")
    clients = {client.name: client for client in ledger.clients}
    lost = [
        lost_time(evidence, clients[ledger.client_of(producer)], answer - duration, answer)
        for producer, answer, duration in zip(
            groups.producer[slow].tolist(), groups.answered[slow].tolist(), took[slow].tolist(), strict=True
        )
    ]
    is_judged = np.array(
        [duration - each.time > limit for duration, each in zip(took[slow], lost, strict=True)]
    )
    is_judged = is_judged.astype(np.bool_)
    if not is_judged.all():
        first = int(np.flatnonzero(~is_judged)[0])
        waited = (
            f"{group_name(ledger, int(slow[first]))} got its answer after {took[slow[first]] / 1e9:.1f} s"
        )
        more = f"; {(~is_judged).sum() - 1} more operations likewise" if (~is_judged).sum() > 1 else ""
        out.reasons.append(f"{waited}, but {lost[first].text()}{more}")
    slow = slow[is_judged]
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
    if client.miscounted:
        return None  # the answers may be among the missing lines
    if client.closing is not None:
        return client.closing.mono
    record = evidence.clients.get(client.name) if evidence.clients else None
    if record is None or record.ended != "killed" or client.opening is None:
        return None
    assert evidence.clients is not None
    return record.at if client.opening.clock == evidence.clients.clock else None


class _Waits:
    """The waits of one client for answers, compared with the limit."""

    def __init__(self, evidence: Evidence, client: Scan, heal: Healed, limit: int, out: Collector) -> None:
        self.evidence = evidence
        self.client = client
        self.heal = heal
        self.limit = limit
        self.out = out

    def check(self) -> None:
        """Find operations that succeeded too late, and operations that got no answer until the client's end.

        An operation without an answer is reported if the client stayed open for longer than the limit after
        the request.
        """
        client = self.client
        requests = {line.op: (line.mono, number, line.f) for number, line in client.invokes(*LINE_OPERATIONS)}
        for number, done in client.completions(*LINE_OPERATIONS):
            requested, request_line, f = requests.pop(done.op, (done.mono, number, done.f))
            lines = [HistoryRef(client.name, line) for line in (request_line, number)]
            self._compare(requested, done.mono, f, lines, is_ok=isinstance(done, Ok))
        end = _end_of(client, self.evidence)
        if end is None:
            return  # a fault may have ended the process, so its missing answers do not count as stalled
        waiting = [(mono, line, "the end of a transaction") for *_, mono, line in client.waiting.tolist()]
        for requested, line, f in [*waiting, *requests.values()]:
            self._compare(requested, end, f, [HistoryRef(client.name, line)])

    def _compare(
        self, requested: int, end: int, f: str, lines: list[HistoryRef], *, is_ok: bool = True
    ) -> None:
        """Compare a wait with the limit. It starts at the last heal if the request was earlier."""
        self.out.compared += 1
        start = max(requested, self.heal.at)
        took = end - start
        if took <= self.limit or not is_ok:
            return
        what = f"client {self.client.name} waited {took / 1e9:.1f} s for {f}"
        lost = lost_time(self.evidence, self.client, start, end)
        if not self.heal.is_certain:
            self.out.reasons.append(f"{what}; {_UNORDERED}")
        elif took - lost.time <= self.limit:
            self.out.reasons.append(f"{what}, but {lost.text()}")
        else:
            example = Example(what=what, weight=max(1, took // 1_000_000), lines=lines)
            self.out.add("stalled", "operations", 1, [example])
