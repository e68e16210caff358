"""Coverage: the run had something to say. Every fault bit, every lane was read, every witness agrees.

This property finds no anomaly: it says why the others may not be believed, which makes a run unknown.
"""

from __future__ import annotations

import numpy as np

from harness.evidence.bit_words import Bools
from harness.evidence.checkers.bitsets import BitSet
from harness.evidence.checkers.model import Collector, Evidence, Result
from harness.evidence.checkers.visibility_index import lane_name, ranges, seen_by
from harness.evidence.history import Fault
from harness.evidence.ledger import OPEN_END, Ledger
from harness.evidence.observation import Observation


def check(evidence: Evidence) -> Result:
    """Say why the evidence is not enough, where it is not."""
    out = Collector("coverage", "faults, lanes and witnesses")
    ledger = evidence.ledger
    out.reasons += [*ledger.problems, *evidence.expect.caveats]
    _runs(ledger, out)
    _faults(evidence, out)
    _lanes(evidence, out)
    _witnesses(evidence, out)
    return out.result()


def _runs(ledger: Ledger, out: Collector) -> None:
    runs = sorted({client.opening.run for client in ledger.clients if client.opening})
    if len(runs) > 1:
        out.reasons.append(f"the histories belong to several runs: {', '.join(runs)}")
    out.reasons += [f"{c.name}: the history has no whole line" for c in ledger.clients if not c.lines]


def _faults(evidence: Evidence, out: Collector) -> None:
    stages: dict[str, list[Fault]] = {}
    for client in evidence.ledger.clients:
        for _, fault in client.faults():
            stages.setdefault(fault.id, []).append(fault)
    for ident, events in sorted(stages.items()):
        out.compared += 1
        seen = {event.stage for event in events}
        name = next(
            (f"{e.fault} on {e.target}" for e in events if e.stage == "intent"), "a fault without intent"
        )
        if "bite" not in seen:
            said = next((e.detail for e in events if e.stage == "no_bite"), "nothing was measured")
            out.reasons.append(f"{ident}: {name} did not bite: {said}")
        if "healed" not in seen:
            out.reasons.append(f"{ident}: {name} was not healed")
    if len(stages) < evidence.expect.faults:
        out.reasons.append(f"{evidence.expect.faults} faults were planned, and {len(stages)} were injected")


def _lanes(evidence: Evidence, out: Collector) -> None:
    """Every lane that sent something must have been read to the end by some witness."""
    ledger = evidence.ledger
    covered: Bools = np.zeros(len(ledger.lanes), np.bool_)
    for observation in evidence.committed_views():
        if len(covered):
            covered |= seen_by(evidence, observation).covered
    # A client that was killed may have sent to any of its lanes; that alone is no reason to have read them.
    used = np.unique(ledger.intervals.lane[ledger.intervals.last < OPEN_END])
    out.compared += len(used)
    blind = used[~covered[used]] if len(used) else used
    if len(blind):
        out.reasons.append(
            f"no witness read to the high watermark of {len(blind)} of {len(used)} lanes, "
            f"such as {lane_name(ledger, int(blind[0]))}"
        )


def _witnesses(evidence: Evidence, out: Collector) -> None:
    names = [one.meta.witness for one in evidence.observations]
    for name in evidence.expect.witnesses:
        if name not in names:
            out.reasons.append(f"witness {name} left no account")
    whole = [one for one in evidence.committed_views() if one.meta.complete]
    for i, first in enumerate(whole):
        for second in whole[i + 1 :]:
            out.compared += 1
            _agree(first, second, out)


def _agree(first: Observation, second: Observation, out: Collector) -> None:
    """Two complete witnesses must have read the same records of the partitions that both read."""
    both = _ends(first) & _ends(second)
    sets = [
        BitSet.of(one.words[np.isin(one.words["partition"], _mine(one, both))]) for one in (first, second)
    ]
    names = (first.meta.witness, second.meta.witness)
    for mine, other, (reader, blind) in ((0, 1, names), (1, 0, names[::-1])):
        extra = sets[mine].minus(sets[other])
        if len(extra):
            producer, lane, found = extra.first(1)[0]
            out.reasons.append(
                f"witnesses disagree: {reader} read {len(extra)} records that {blind} did not, "
                f"such as sequences {ranges(found)} of producer {producer} lane {lane}"
            )


def _ends(observation: Observation) -> set[tuple[str, int, int]]:
    return {(w.topic, w.partition, w.read_to) for w in observation.meta.windows}


def _mine(observation: Observation, both: set[tuple[str, int, int]]) -> list[int]:
    windows = observation.meta.windows
    return [i for i, w in enumerate(windows) if (w.topic, w.partition, w.read_to) in both]
