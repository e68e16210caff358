"""Causes of damaged transactions, derived from the raw log and the log of the transaction coordinators.

Two causes can be proved afterwards:

- A late marker: a marker ended records of the transaction, and no decision of the coordinator explains it.
- A reused sequence: the broker acknowledged records with offsets at which the raw log has records of an
  earlier, aborted transaction of the same producer. It took them for duplicates and did not write them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from harness.evidence.bit_words import lane_key, same_as_previous, split_lane_key
from harness.evidence.checkers.model import Evidence
from harness.evidence.ledger import COMMITTED
from harness.evidence.log_audit import Finding
from harness.evidence.observation import Observation, Rows

LATE_MARKER: Final = "late marker"
REUSED_SEQUENCE: Final = "reused sequence"

_BY_MARKER: Final = ("records_lost", "aborted_readable", "early_commit", "surplus_marker")


def causes_of(evidence: Evidence) -> dict[int, tuple[str, str]]:
    """Return the cause of each damaged transaction whose cause the logs prove, as its name and its proof.

    The keys are indices of the ledger's groups.
    """
    if "causes" not in evidence.cache:
        causes = _reused_sequences(evidence)
        for finding in evidence.audit().damage if evidence.logs else []:
            if finding.kind not in _BY_MARKER:
                continue
            place = f"{finding.topic}-{finding.partition}"
            for group in transactions_of_finding(evidence, finding):
                causes[group] = (LATE_MARKER, f"{place}: {finding.detail}")
        evidence.cache["causes"] = causes
    found: dict[int, tuple[str, str]] = evidence.cache["causes"]
    return found


def cause_text(evidence: Evidence, group: int) -> str:
    """Return the cause of a transaction's damage as the end of a sentence, or "" if the logs prove none."""
    try:
        cause = causes_of(evidence).get(group)
    except Exception:  # noqa: BLE001 - the checker `audit` reports the error; it must not hide another anomaly
        return ""
    return f"; cause: a {cause[0]} ({cause[1]})" if cause else ""


def transactions_of_finding(evidence: Evidence, finding: Finding) -> list[int]:
    """Return the transactions with records at the offsets of a finding, as indices of the ledger's groups."""
    view = _raw_view(evidence)
    intervals = evidence.ledger.intervals
    if view is None or view.markers is None or finding.first < 0 or not len(intervals.lane):
        return []
    rows = view.markers
    here = [
        index
        for index, window in enumerate(view.meta.windows)
        if (window.topic, window.partition) == (finding.topic, finding.partition)
    ]
    chosen = rows[
        np.isin(rows["partition"], here)
        & (rows["pid"] == finding.producer_id)
        & (rows["hi"] >= finding.first)
        & (rows["lo"] <= finding.last)
    ]
    lane, declared = evidence.ledger.lane_index(lane_key(chosen["producer"], chosen["lane"]))
    at, known = evidence.ledger.interval_at(lane, chosen["first"])
    groups = intervals.group[at[declared & known]]
    return sorted({int(group) for group in groups if evidence.ledger.groups.txn[group] >= 0})


def _raw_view(evidence: Evidence) -> Observation | None:
    return next((view for view in evidence.observations if view.markers is not None), None)


def _reused_sequences(evidence: Evidence) -> dict[int, tuple[str, str]]:
    """Find committed transactions whose records were acknowledged at the offsets of aborted records."""
    view, ledger = _raw_view(evidence), evidence.ledger
    if view is None or view.markers is None or not len(ledger.acks) or not len(ledger.intervals.lane):
        return {}
    aborted = _aborted_records(view)
    causes = {}
    acked, first, _, offset, _ = ledger.acks.T
    at, known = ledger.interval_at(acked, first)
    committed = known & (ledger.intervals.fate[at] == COMMITTED)
    for lane, key in enumerate(ledger.lanes.tolist()):
        producer, _ = split_lane_key(int(key))
        topic, partition = ledger.places[lane]
        rows = aborted.get((topic, partition, producer))
        if rows is None:
            continue
        mine = np.flatnonzero(committed & (acked == lane))
        row = rows[np.searchsorted(rows["lo"], offset[mine], side="right") - 1]
        inside = (row["lo"] <= offset[mine]) & (offset[mine] <= row["hi"])
        other = (first[mine] < row["first"]) | (row["last"] < first[mine])
        for i in mine[inside & other].tolist():
            proof = (
                f"{topic}-{partition}: offset {int(offset[i])} was acknowledged, and the log has an aborted "
            )
            proof += "record of this producer there"
            causes[int(ledger.intervals.group[at[i]])] = (REUSED_SEQUENCE, proof)
    return causes


def _aborted_records(view: Observation) -> dict[tuple[str, int, int], Rows]:
    """Return the rows of aborted records by topic, partition and producer, in the order of their offsets."""
    assert view.markers is not None
    rows = view.markers[view.markers["decision"] == 0]
    rows = rows[np.lexsort((rows["lo"], rows["producer"], rows["partition"]))]
    edges = np.flatnonzero(~same_as_previous(rows["partition"], rows["producer"]))
    found = {}
    for part in np.split(rows, edges[1:]) if len(rows) else []:
        window = view.window(int(part["partition"][0]))
        found[window.topic, window.partition, int(part["producer"][0])] = part
    return found
