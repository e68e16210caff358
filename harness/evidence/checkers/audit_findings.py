"""Damage that late or repeated requests left in the logs, found by the search that `eos audit` makes.

Anomalies:

    a marker ended records, and the coordinator had not decided it     undecided_marker
    two batches of a partition have the same sequence                  reused_sequence
    a group's position went back within one transaction                position_went_back

Findings that have harmless explanations too are no anomalies. The verdict lists them as notes.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from harness.base.partition_id import PartitionId, partition_name
from harness.evidence.bit_words import EXAMPLES
from harness.evidence.checkers.causes import transactions_of_finding
from harness.evidence.checkers.model import Collector, Evidence, Example, OffsetRef, Result
from harness.evidence.checkers.visibility_index import group_lines, group_name
from harness.evidence.checkers.witness_agreement import used_partitions
from harness.evidence.log_audit import DAMAGE, Audit, Finding
from harness.evidence.stored_logs import FILE, StoredLogs

_ANOMALIES: Final = {
    "records_lost": ("undecided_marker", "markers"),
    "aborted_readable": ("undecided_marker", "markers"),
    "early_commit": ("undecided_marker", "markers"),
    "surplus_marker": ("undecided_marker", "markers"),
    "sequence_reused": ("reused_sequence", "batches"),
    "position_went_back": ("position_went_back", "positions"),
}
"""Name and unit of the anomaly for each kind of damage."""


def applies(evidence: Evidence) -> bool:
    """Return whether the run stored its logs, and a producer with a producer id wrote to them.

    Logs that are incomplete are also reported if they contain no such producer.
    """
    logs = evidence.logs
    return logs is not None and (logs.has_producers or bool(logs.unread or _incomplete(evidence, logs)))


def check(evidence: Evidence) -> Result:
    """Search the stored logs for damage."""
    out = Collector("audit", "markers, batches and positions")
    if evidence.logs is None:
        return out.result()
    found = evidence.audit()
    out.compared = found.markers + found.batches + found.positions
    by_anomaly: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in found.damage:
        by_anomaly[_ANOMALIES[finding.kind]].append(finding)
    for (name, unit), findings in by_anomaly.items():
        examples = [_example(evidence, finding) for finding in findings[:EXAMPLES]]
        out.add(name, unit, len(findings), examples, witness="raw-log")
    out.reasons += [f"not read: {what}" for what in evidence.logs.unread]
    out.reasons += _incomplete(evidence, evidence.logs)
    if found.not_judged and not found.markers:
        out.reasons.append(f"the coordinators' log has no decision for any of {found.not_judged} markers")
    return out.result()


def _incomplete(evidence: Evidence, logs: StoredLogs) -> list[str]:
    """Return the stored logs that are missing, or that end before a witness stopped reading."""
    ends = {log.partition_id: log.end for log in logs.partitions}
    reasons = [
        f"{FILE} has no log of {partition_name(place)}"
        for place in sorted(used_partitions(evidence.ledger) - ends.keys())
    ]
    read: dict[PartitionId, tuple[int, str]] = {}
    for view in evidence.committed_views():
        for window in view.meta.windows if view.meta.complete else ():
            place = (window.topic, window.partition)
            read[place] = max(read.get(place, (0, "")), (window.read_to, view.meta.witness))
    reasons += [
        f"{FILE} has the log of {partition_name(place)} up to offset {ends[place]}, but {witness} read it to "
        f"offset {end}"
        for place, (end, witness) in sorted(read.items())
        if place in ends and ends[place] < end
    ]
    if logs.states_are_whole and (absent := sorted(logs.ids_of_transactions - logs.ids_with_states)):
        reasons.append(
            f"{FILE} has no state of {len(absent)} producer ids with transactions, such as {absent[0]}, "
            "although nothing was removed from the coordinators' logs"
        )
    return reasons


def notes(evidence: Evidence) -> list[str]:
    """Return a sentence for each kind of suspicion, and one on markers without a retained decision."""
    if not applies(evidence):
        return []
    try:
        found = evidence.audit()
    except Exception:  # noqa: BLE001 - the result of the checker reports the error
        return []
    lines = _suspicions(found)
    if found.not_judged:
        lines.append(f"{found.not_judged} markers are older than the decisions in the coordinators' log")
    return lines


def _suspicions(found: Audit) -> list[str]:
    kinds: dict[str, list[Finding]] = defaultdict(list)
    for finding in found.findings:
        if finding.kind not in DAMAGE:
            kinds[finding.kind].append(finding)
    return [f"suspicion, {len(findings)} in the logs: {findings[0].text}" for findings in kinds.values()]


def _example(evidence: Evidence, finding: Finding) -> Example:
    groups = transactions_of_finding(evidence, finding)
    what = finding.text
    if groups:
        what += f"; it concerns {', '.join(group_name(evidence.ledger, group) for group in groups)}"
    return Example(
        what=what,
        witness="raw-log",
        lines=[line for group in groups for line in group_lines(evidence.ledger, group)],
        offsets=[OffsetRef(finding.topic, finding.partition, finding.first, finding.last)],
    )
