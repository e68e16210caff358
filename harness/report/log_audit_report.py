"""Text of `eos audit`: the damage that was found in the logs of a cluster, and what was compared."""

from __future__ import annotations

from collections.abc import Sequence

from harness.base.errors import ExitCode
from harness.evidence.log_audit import Audit


def format_audit(found: Audit, unread: Sequence[str]) -> list[str]:
    """Return the findings, one line each, then what was compared and what was not."""
    damage = found.damage
    suspicions = [finding for finding in found.findings if finding not in damage]
    lines = [f"damage: {finding.text}" for finding in damage]
    lines += [f"suspicion: {finding.text}" for finding in suspicions]
    lines += [f"not read: {what}" for what in unread]
    lines.append(
        f"compared {found.markers} markers that ended records with their decisions, {found.batches} batches, "
        f"{found.positions} positions; {found.copies} markers ended no record"
    )
    if found.not_judged:
        lines.append(
            f"{found.not_judged} markers are older than the decisions that the coordinators' log contains"
        )
    lines.append(f"{len(damage)} damaged, {len(suspicions)} suspicious")
    if exit_code_of(found, unread) is ExitCode.UNKNOWN:
        if unread:
            reason = "a log could not be read"
        elif suspicions:
            reason = "a suspicion can have a harmless cause"
        else:
            reason = "no marker of these topics ended any records, so nothing was compared"
        lines.append(f"UNKNOWN: {reason}")
    return lines


def exit_code_of(found: Audit, unread: Sequence[str]) -> ExitCode:
    """Return the exit code: an anomaly if there is damage, unknown if the logs are incomplete."""
    if found.damage:
        return ExitCode.ANOMALY
    return ExitCode.UNKNOWN if unread or found.findings or not found.markers else ExitCode.VALID
