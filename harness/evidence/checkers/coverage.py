"""Coverage: whether the evidence of a run is complete.

Every planned fault must have taken effect, have met the work of a client, and be healed (fault_overlap.py).
At least one witness must have read every used lane to the end. Every promised witness must be complete, and
all complete witnesses must agree (witness_agreement.py). This property never reports an anomaly. It lists
reasons why the evidence is insufficient. If there is any such reason, its result is unknown.
"""

from __future__ import annotations

import numpy as np

from harness.evidence import app_list, stored_logs
from harness.evidence.bit_words import Bools
from harness.evidence.checkers.client_ends import check_clients, check_closing_lines, check_phases
from harness.evidence.checkers.fault_overlap import check_faults
from harness.evidence.checkers.model import Collector, Evidence, Result
from harness.evidence.checkers.starvation import check_lateness
from harness.evidence.checkers.visibility_index import lane_name, visibility_of
from harness.evidence.checkers.witness_agreement import check_witnesses
from harness.evidence.ledger import OPEN_END, Ledger


def check(evidence: Evidence) -> Result:
    """Collect the reasons why the evidence is not sufficient for a valid verdict."""
    out = Collector("coverage", "faults, lanes and witnesses")
    ledger = evidence.ledger
    out.reasons += [*ledger.problems, *evidence.expect.caveats]
    _runs(ledger, out)
    check_clients(evidence, out)
    check_closing_lines(evidence, out)
    check_lateness(evidence, out)
    check_phases(evidence, out)
    check_faults(evidence, out)
    if evidence.expect.audit and evidence.logs is None:
        out.reasons.append(f"{stored_logs.FILE} is missing, so the logs were not searched for damage")
    if evidence.expect.app and not (evidence.app and evidence.app.starts):
        what = "lists no start" if evidence.app else "is missing"
        out.reasons.append(f"{app_list.FILE} {what}, so it is not known how the application ran")
    _lanes(evidence, out)
    check_witnesses(evidence, out)
    return out.result()


def _runs(ledger: Ledger, out: Collector) -> None:
    runs = sorted({client.opening.run for client in ledger.clients if client.opening})
    if len(runs) > 1:
        out.reasons.append(f"the histories belong to several runs: {', '.join(runs)}")
    out.reasons += [f"{c.name}: the history has no complete line" for c in ledger.clients if not c.lines]


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
