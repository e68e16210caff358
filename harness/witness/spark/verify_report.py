"""What `eos verify` says, and the exit code that goes with it."""

from __future__ import annotations

from collections.abc import Sequence

from harness.base.errors import ExitCode
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.observation import Findings, Spot
from harness.report.text_format import format_table
from harness.witness.spark.topic_verification import SelfEvident, Share, Verified

_SHOWN = 3
_SHARES = 40


def exit_code_of(found: Verified) -> ExitCode:
    """Return 1 for an anomaly, 2 where nothing certain can be said, else 0; the worst wins."""
    if found.hanging:
        return ExitCode.ANOMALY
    if found.judgement is not None:
        code = ExitCode(found.judgement.exit_code)
        return ExitCode.UNKNOWN if found.disagreements and code is ExitCode.VALID else code
    if any(one.anomalies for one in found.alone):
        return ExitCode.ANOMALY
    # A hole may be a loss or an aborted transaction: without a ledger nobody can tell.
    unsure = not found.alone or any(one.missing or not one.records for one in found.alone)
    return ExitCode.UNKNOWN if unsure else ExitCode.VALID


def format_verification(found: Verified) -> list[str]:
    """Return the report's lines."""
    read = sum(window.read_to - window.start for window in found.windows)
    lines = [f"read {len(found.windows)} partitions to their last stable offsets ({read} offsets)"]
    lines += [
        f"hanging_transaction: {w.topic}-{w.partition} is stable to {w.lso} of {w.hw} only"
        for w in found.hanging
    ]
    if found.judgement is not None:
        lines += _tell_judgement(found.judgement)
    lines += _tell_shares(found.shares)
    lines += [f"Spark and the checkers disagree about {one}" for one in found.disagreements]
    for one in found.alone:
        lines += _tell_alone(one)
    return lines


def _tell_judgement(judgement: Judgement) -> list[str]:
    lines = [f"verdict: {judgement.verdict}"]
    for result in judgement.results:
        lines.append(f"{result.property}: {result.verdict}, {result.compared} {result.unit} compared")
        for one in result.anomalies:
            lines.append(f"  {one.name}: {one.count} {one.unit}")
            lines += [f"    {example.what}" for example in one.examples[:_SHOWN]]
        lines += [f"  {one.name}: {one.count} {one.unit} (permitted)" for one in result.permitted]
        lines += [f"  unknown: {reason}" for reason in result.reasons]
    return lines


def _tell_shares(shares: Sequence[Share]) -> list[str]:
    """Say who owes what where: those first of which something is missing, or too much is there."""
    if not shares:
        return []
    in_doubt = sorted(shares, key=lambda one: one.read == (one.owed if one.fate == "committed" else 0))
    rows = [
        (str(one.producer), f"{one.topic}-{one.partition}", one.fate, str(one.owed), str(one.read))
        for one in in_doubt[:_SHARES]
    ]
    told = format_table(rows, ("producer", "partition", "fate", "records", "of them read"))
    return [*told, *([f"and {len(shares) - _SHARES} rows more"] if len(shares) > _SHARES else [])]


def _tell_alone(one: SelfEvident) -> list[str]:
    lines = [f"run {one.run or '(no record of any run)'}: {one.records} records in {one.lanes} lanes"]
    lines += _tell_findings("duplicate", one.duplicates)
    lines += _tell_findings("reordered", one.reordered)
    lines.append(f"  records meant to be aborted: {one.aborted_intent}")
    lines.append(f"  sequences that are not there: {one.missing} (lost, or aborted: only a ledger tells)")
    lines += [
        f"    producer {gap.producer} lane {gap.lane}: {gap.missing} below {gap.highest}"
        for gap in one.gaps[:_SHOWN]
    ]
    lines += _tell_findings("records without this run's identity", one.foreign)
    return lines + [f"  not checked: {what}" for what in one.unchecked]


def _tell_findings(name: str, found: Findings) -> list[str]:
    return [f"  {name}: {found.count}", *(f"    {_place(spot)}" for spot in found.examples[:_SHOWN])]


def _place(spot: Spot) -> str:
    where = f"{spot.topic}-{spot.partition} offset {spot.offset}"
    if spot.detail:
        return f"{where}: {spot.detail}"
    other = (
        f", also or after sequence {spot.other_seq} at {spot.other_offset}" if spot.other_offset >= 0 else ""
    )
    return f"{where}: producer {spot.producer} lane {spot.lane} sequence {spot.seq}{other}"
