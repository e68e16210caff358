"""Walkthrough: every planned step of a walkthrough was carried out and has its evidence.

This property never reports an anomaly, because the other checkers find violations of Kafka's guarantees. It
lists missing steps and missing evidence. If anything is missing, its result is unknown.
"""

from __future__ import annotations

from harness.evidence.checkers.model import Collector, Evidence, Result


def check(evidence: Evidence) -> Result:
    """List the steps of the walkthrough that are missing or lack evidence."""
    out = Collector("walkthrough", "observations of a step")
    done = {step.number for step in evidence.walkthrough}
    out.reasons += [
        f"step {number} was not carried out"
        for number in range(1, evidence.expect.walkthrough_steps + 1)
        if number not in done
    ]
    for step in evidence.walkthrough:
        out.compared += len(step.claims)
        out.reasons += [f"step {step.number}: {what}" for what in step.missing]
        if not step.claims:
            out.reasons.append(f"step {step.number} observed nothing")
    return out.result()
