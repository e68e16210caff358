"""Transactions of the application under test: how many it committed and aborted, for the notes of a verdict.

A valid run shows nothing about what an application does after an abort if no transaction of it was aborted.
The coordinators' logs show it, whatever client library the application uses.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Final

from harness.evidence.checkers.model import Evidence
from harness.evidence.stored_logs import StoredLogs

_ENDS = ("PrepareCommit", "PrepareAbort")
BY_APPLICATION: Final = "the application"
"""Value of `by` in the measured effect of a fault whose abort the application sent itself."""


def notes(evidence: Evidence) -> list[str]:
    """Return a note on the application's transactions. There is none without transactions or their logs."""
    if evidence.expect.contract is None or evidence.logs is None:
        return []
    own = {declared.producer.transactional_id for declared in evidence.ledger.producers.values()}
    states = {name: of_id for name, of_id in _states(evidence.logs).items() if name not in own}
    committed, aborted = (sum(of_id.count(end) for of_id in states.values()) for end in _ENDS)
    if not committed + aborted:
        return []
    line = f"transactions of the application: {committed} committed, {aborted} aborted"
    went_on = any(pair == ("PrepareAbort", "Ongoing") for of_id in states.values() for pair in _steps(of_id))
    restarts = sum(evidence.app.restarts.values()) if evidence.app else 0
    if went_on or aborted > restarts or _measured(evidence):
        return [line]
    if aborted:
        line += "; the start of a new instance aborts what the old one left open, and no more were aborted"
    return [f"{line}; so this run does not show what the application does after an abort"]


def _measured(evidence: Evidence) -> bool:
    """Return whether the effect of a fault was an abort that the application sent itself."""
    return any(
        line.stage == "bite" and line.measured.get("by") == BY_APPLICATION
        for client in evidence.ledger.clients
        for _, line in client.faults()
    )


def _states(logs: StoredLogs) -> dict[str, list[str]]:
    """Return the states of each transactional id that wrote into the run's partitions, in their order."""
    states: dict[str, list[str]] = defaultdict(list)
    wrote = logs.ids_of_transactions
    names = {
        state.transactional_id
        for log in logs.coordinators
        for state in log.states
        if state.producer_id in wrote
    }
    for log in logs.coordinators:
        for state in sorted(log.states, key=lambda state: state.offset):
            if state.transactional_id in names:
                states[state.transactional_id].append(state.state)
    return states


def _steps(states: list[str]) -> list[tuple[str, str]]:
    """Return each state with the next one, without the completion that follows each end."""
    kept = [state for state in states if not state.startswith("Complete")]
    return list(pairwise(kept))
