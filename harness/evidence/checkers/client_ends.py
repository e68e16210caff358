"""Ends of clients: every client that the run started left a whole history, and ended as the run intended.

These checks belong to the property `coverage`. They never report an anomaly. A client that died, or whose
history is missing, did work that no history records, so the result is unknown.
"""

from __future__ import annotations

from typing import Final

from harness.evidence.checkers import fencing
from harness.evidence.checkers.model import Collector, Evidence
from harness.evidence.client_list import FILE, ClientList, ClientRecord
from harness.evidence.history import FaultLine
from harness.evidence.ledger import Ledger, Scan

OBSERVER: Final = "observer"
FAULTS: Final = "faults"
HARNESS_ROLES: Final = (OBSERVER, FAULTS)
"""Roles of the histories that the run itself writes. They are not in the list of clients."""
PHASES: Final = "phases"
"""Operation in the observer's history whose unclear result is the reason why the run skipped phases."""
CRASHES: Final = ("crash_client",)
ENDING_FAULTS: Final = (*CRASHES, "retire_client")
DONE: Final = "done"
GAVE_UP: Final = "gave up"


def check_clients(evidence: Evidence, out: Collector) -> None:
    """Compare the histories with the list of clients, and check how every client ended."""
    ledger, listed = evidence.ledger, evidence.clients
    superseded = _superseded(ledger)
    known = superseded | {record.name for record in (listed.clients if listed else [])}
    out.reasons += [
        f"client {client.name} did not finish: its history ends with {_closing(client)}"
        for client in ledger.clients
        if client.closing is not None and client.closing.reason != DONE and client.name not in known
    ]
    if listed is None:
        if evidence.expect.clients:
            out.reasons.append(f"{FILE} is missing, so a client without a history would not be noticed")
        return
    _check_list(ledger, listed, out)
    histories = {client.name: client for client in ledger.clients}
    faults = _ending_faults(ledger)
    for record in listed.clients:
        out.compared += 1
        history = histories.get(record.name)
        if history is None:
            out.reasons.append(f"client {record.name} was started, but its history is missing")
        elif foreign := sorted(set(history.producers) - {record.producer}):
            out.reasons.append(
                f"the history of client {record.name} declares producer {foreign[0]}, but the client is "
                f"producer {record.producer}"
            )
        if record.name not in superseded and (problem := _problem(record, history, faults)):
            out.reasons.append(f"client {record.name} {problem}{_traces(record, history)}")


def producers_without_history(evidence: Evidence) -> dict[int, str]:
    """Return the producers of which a declaration may be missing, with the names of their clients.

    Their histories are missing, cut before a declaration, or have fewer lines than they count. The run
    started these clients, so their records are no phantoms; but nothing shows what became of the records.
    """
    listed = evidence.clients.clients if evidence.clients else []
    ledger = evidence.ledger
    miscounted = {client.name for client in ledger.clients if client.miscounted}
    closed = {client.name for client in ledger.clients if client.closing is not None} - miscounted
    undeclared = {
        record.producer: record.name
        for record in listed
        if record.producer not in ledger.producers and record.name not in closed
    }
    # The declaration of a further lane may be among the missing lines.
    incomplete = {
        number: declared.client
        for number, declared in ledger.producers.items()
        if declared.client in miscounted
    }
    return undeclared | incomplete


def check_closing_lines(evidence: Evidence, out: Collector) -> None:
    """Check that every closing line counts the lines of its history, if the run promised this."""
    if evidence.expect.counted:
        out.reasons += [
            f"the closing line of {client.name} does not count the lines, so a missing line may be unnoticed"
            for client in evidence.ledger.clients
            if client.closing is not None and client.closing.lines is None
        ]


def check_phases(evidence: Evidence, out: Collector) -> None:
    """Find phases that the run did not carry out, because it was aborted or interrupted."""
    for text in skipped_phases(evidence.ledger):
        out.reasons.append(f"the run did not carry out all its phases: {text}")


def skipped_phases(ledger: Ledger) -> list[str]:
    """Return the reasons why the run skipped phases; empty if it carried out all of them."""
    return [
        done.error.message if done.error else "no reason was recorded"
        for client in ledger.clients
        if client.opening is not None and client.opening.role == OBSERVER
        for _, done in client.completions(PHASES)
    ]


def _superseded(ledger: Ledger) -> set[str]:
    """Return the clients that gave up because a successor had taken over their transactional id.

    That is the right end of such a client, and the histories of both clients prove it.
    """
    gave_up = {
        client.name
        for client in ledger.clients
        if client.closing is not None and client.closing.reason.startswith(GAVE_UP)
    }
    return gave_up & fencing.succeeded_clients(ledger) if gave_up else gave_up


def _check_list(ledger: Ledger, listed: ClientList, out: Collector) -> None:
    """Check the list as a whole: it belongs to this run, and every history belongs to a client in it."""
    names = [record.name for record in listed.clients]
    out.reasons += [
        f"{FILE} lists client {name} twice" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    roles = set()
    for client in ledger.clients:
        if client.opening is None:
            continue  # the coverage check reports a history without a complete line
        roles.add(client.opening.role)
        if client.opening.run != listed.run:
            out.reasons.append(
                f"{FILE} belongs to run {listed.run}, but the history of {client.name} to run "
                f"{client.opening.run}"
            )
        if client.opening.role not in HARNESS_ROLES:
            if client.name not in names:
                out.reasons.append(f"the history of {client.name} belongs to no client that the run started")
        elif client.closing is None:
            out.reasons.append(
                f"the history of {client.name} has no closing line, so the process of the run was killed"
            )
    out.reasons += [f"the history of the {role} is missing" for role in HARNESS_ROLES if role not in roles]


def _ending_faults(ledger: Ledger) -> dict[str, FaultLine]:
    """Return the intents of the faults that end a client and took effect, by their ids."""
    lines = [fault for client in ledger.clients for _, fault in client.faults()]
    effective = {fault.id for fault in lines if fault.stage == "bite"}
    return {
        fault.id: fault
        for fault in lines
        if fault.stage == "intent" and fault.id in effective and fault.fault in ENDING_FAULTS
    }


def _problem(record: ClientRecord, history: Scan | None, faults: dict[str, FaultLine]) -> str:
    """Return why the end of a client leaves its work in doubt; empty if it does not."""
    if not record.ended:
        return "has no recorded end, so the run itself was killed"
    if record.ended == "killed":
        return "did not end after the run had asked it to stop, so the run killed it"
    fault = faults.get(record.fault)
    if record.ended == "by a fault" and (fault is None or fault.target != f"client({record.name})"):
        return f"is recorded as ended by fault {record.fault!r}, but no such fault took effect on it"
    if fault is not None and fault.fault in CRASHES:
        return ""  # the crash explains the exit code and the missing closing line
    finished = history is None or (history.closing is not None and history.closing.reason == DONE)
    if finished and not record.exit_code:
        return ""
    detail = f"with exit code {record.exit_code}" if record.exit_code else "but did not finish"
    return f"ended {_HOW[record.ended]} {detail}"


_HOW: Final = {"stopped": "after a stop request", "by itself": "by itself", "by a fault": "after a fault"}


def _traces(record: ClientRecord, history: Scan | None) -> str:
    """Return what the client left behind: its closing line and the last line of its log."""
    traces = [f"its history ends with {_closing(history)}"] if history else []
    traces += [f"the last line of its log is {record.last_line!r}"] if record.last_line else []
    return f"; {', '.join(traces)}" if traces else ""


def _closing(history: Scan) -> str:
    return f"the closing line {history.closing.reason!r}" if history.closing else "no closing line"
