"""Coverage: whether the evidence of a run is complete.

Every planned fault must have taken effect and be healed. At least one witness must have read every used lane
to the end. All complete witnesses must agree. This property never reports an anomaly. It lists reasons why
the evidence is insufficient. If there is any such reason, its result is unknown.
"""

from __future__ import annotations

import numpy as np

from harness.evidence.bit_words import Bools
from harness.evidence.checkers.bitsets import BitSet
from harness.evidence.checkers.client_ends import check_clients, check_phases
from harness.evidence.checkers.model import Collector, Evidence, Result
from harness.evidence.checkers.visibility_index import lane_name, ranges, visibility_of
from harness.evidence.history import FaultLine
from harness.evidence.ledger import OPEN_END, Ledger
from harness.evidence.observation import Observation


def check(evidence: Evidence) -> Result:
    """Collect the reasons why the evidence is not sufficient for a valid verdict."""
    out = Collector("coverage", "faults, lanes and witnesses")
    ledger = evidence.ledger
    out.reasons += [*ledger.problems, *evidence.expect.caveats]
    _runs(ledger, out)
    check_clients(evidence, out)
    check_phases(evidence, out)
    _faults(evidence, out)
    _lanes(evidence, out)
    _witnesses(evidence, out)
    return out.result()


def _runs(ledger: Ledger, out: Collector) -> None:
    runs = sorted({client.opening.run for client in ledger.clients if client.opening})
    if len(runs) > 1:
        out.reasons.append(f"the histories belong to several runs: {', '.join(runs)}")
    out.reasons += [f"{c.name}: the history has no complete line" for c in ledger.clients if not c.lines]


def _faults(evidence: Evidence, out: Collector) -> None:
    stages: dict[str, list[FaultLine]] = {}
    for client in evidence.ledger.clients:
        for _, fault in client.faults():
            stages.setdefault(fault.id, []).append(fault)
    for ident, events in sorted(stages.items()):
        out.compared += 1
        reached = {event.stage for event in events}
        name = next(
            (f"{e.fault} on {e.target}" for e in events if e.stage == "intent"),
            "a fault without an intent line",
        )
        if "bite" not in reached:
            detail = next((e.detail for e in events if e.stage == "no_bite"), "nothing was measured")
            out.reasons.append(f"{ident}: {name} did not take effect: {detail}")
        if "healed" not in reached:
            out.reasons.append(f"{ident}: {name} was not healed")
    if len(stages) < evidence.expect.faults:
        out.reasons.append(
            f"{evidence.expect.faults} faults were planned, but only {len(stages)} were injected"
        )


def _lanes(evidence: Evidence, out: Collector) -> None:
    """Check that at least one witness read each used lane to the end of its partition."""
    ledger = evidence.ledger
    covered: Bools = np.zeros(len(ledger.lanes), np.bool_)
    for observation in evidence.committed_views():
        if len(covered):
            covered |= visibility_of(evidence, observation).covered
    # If a client was killed in a transaction, it may have sent more records than it recorded. So the ledger
    # gives each of its lanes an open-ended interval. Such an interval alone does not prove that the lane was
    # used.
    used = np.unique(ledger.intervals.lane[ledger.intervals.last < OPEN_END])
    out.compared += len(used)
    blind = used[~covered[used]] if len(used) else used
    if len(blind):
        out.reasons.append(
            f"no witness read {len(blind)} of the {len(used)} used lanes to the high watermark, "
            f"such as {lane_name(ledger, int(blind[0]))}"
        )


def _witnesses(evidence: Evidence, out: Collector) -> None:
    names = [view.meta.witness for view in evidence.observations]
    for name in evidence.expect.witnesses:
        if name not in names:
            out.reasons.append(f"witness {name} left no observation")
    whole = [view for view in evidence.committed_views() if view.meta.complete]
    for i, first in enumerate(whole):
        for second in whole[i + 1 :]:
            out.compared += 1
            _agree(first, second, out)


def _agree(first: Observation, second: Observation, out: Collector) -> None:
    """Check that two complete witnesses read the same records.

    Only partitions that both witnesses read up to the same offset are compared.
    """
    places = [[(w.topic, w.partition, w.read_to) for w in view.meta.windows] for view in (first, second)]
    both = set(places[0]) & set(places[1])
    sets = []
    for view, windows in zip((first, second), places, strict=True):
        common = [i for i, window in enumerate(windows) if window in both]
        sets.append(BitSet.of(view.words[np.isin(view.words["partition"], common)]))
    names = (first.meta.witness, second.meta.witness)
    for this, other, (reader, blind) in ((0, 1, names), (1, 0, names[::-1])):
        extra = sets[this].minus(sets[other])
        if len(extra):
            producer, lane, sequences = extra.first(1)[0]
            out.reasons.append(
                f"witnesses disagree: {reader} read {len(extra)} records that {blind} did not, "
                f"such as sequences {ranges(sequences)} of producer {producer} lane {lane}"
            )
