"""The text report of `eos verify`, and its exit code."""

from __future__ import annotations

from collections.abc import Sequence

from harness.base.errors import ExitCode
from harness.base.texts import count_of
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.observation import Findings, Reading, Spot
from harness.report.text_format import format_table
from harness.witness.spark.topic_verification import SMALL, RunWithoutLedger, Share, Verified

_EXAMPLES = 3
_READERS = {
    "plain": f"a plain consumer (Spark reads topics with {SMALL} offsets or more; see --reader)",
    "spark": "Spark",
}
_SHARES = 40


def exit_code_of(verified: Verified) -> ExitCode:
    """Return exit code 1 if there is an anomaly, else 2 if the result is uncertain, else 0."""
    if verified.hanging:
        return ExitCode.ANOMALY
    if verified.judgement is not None:
        code = ExitCode(verified.judgement.exit_code)
        return ExitCode.UNKNOWN if verified.is_contradictory and code is ExitCode.VALID else code
    runs = verified.without_ledger
    if any(run.anomalies for run in runs):
        return ExitCode.ANOMALY
    # A gap may be a lost record or an aborted transaction. Only a ledger can distinguish the two.
    uncertain = not runs or any(run.missing or not run.records for run in runs)
    return ExitCode.UNKNOWN if uncertain or verified.is_contradictory else ExitCode.VALID


def facts_of(verified: Verified) -> dict[str, object]:
    """Return the result of a verification for programs."""
    return {
        "exit_code": int(exit_code_of(verified)),
        "reader": verified.reader,
        "partitions": verified.windows,
        "hanging": verified.hanging,
        "judgement": verified.judgement,
        "unchecked": verified.unchecked,
        "shares": verified.shares,
        "disagreements": verified.disagreements,
        "readings": verified.readings,
        "runs_without_ledger": verified.without_ledger,
    }


def format_verification(verified: Verified) -> list[str]:
    """Return the lines of the text report on a verification."""
    read = sum(window.read_to - window.start for window in verified.windows)
    lines = [
        f"read {len(verified.windows)} partitions to their last stable offsets ({read} offsets)",
        f"read by {_READERS[verified.reader]}",
    ]
    lines += [_format_reading(reading) for reading in verified.readings if reading.reader]
    lines += [
        f"hanging_transaction: {w.topic}-{w.partition} is stable only to offset {w.lso} of {w.hw}"
        for w in verified.hanging
    ]
    if verified.judgement is not None:
        lines += _judgement_lines(verified.judgement)
    lines += [f"not checked: {limitation}" for limitation in verified.unchecked]
    lines += _share_lines(verified.shares)
    lines += [f"Spark and the checkers disagree: {difference}" for difference in verified.disagreements]
    for run in verified.without_ledger:
        lines += _run_lines(run)
    return [*lines, conclusion(verified)]


def conclusion(verified: Verified) -> str:
    """Return the last line of the report: the verdict, why, and what to do next."""
    code = exit_code_of(verified)
    verdict = {ExitCode.VALID: "VALID", ExitCode.ANOMALY: "INVALID"}.get(code, "UNKNOWN")
    runs = verified.without_ledger
    records = sum(run.records for run in runs)
    why = "see above"
    if verified.hanging:
        stopped = count_of(len(verified.hanging), "partition")
        why = f"an open transaction stops {stopped}; `eos hanging` prints whose it is and how it ends"
    elif verified.judgement is not None:
        found = ", ".join(sorted(set(verified.judgement.names())))
        why = found or ("no anomaly" if code is ExitCode.VALID else "the reasons are above")
    elif code is ExitCode.VALID:
        why = f"no anomaly in {count_of(records, 'record')}"
    elif code is ExitCode.ANOMALY:
        counts = {
            "duplicate": sum(run.duplicates.count for run in runs),
            "reordered": sum(run.reordered.count for run in runs),
            "intended to be aborted": sum(run.aborted_intent for run in runs),
        }
        why = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    elif not records:
        why = "no record carries the harness's identity, so nothing was checked (docs/record-format.md)"
    elif missing := sum(run.missing for run in runs):
        why = (
            f"{count_of(missing, 'sequence')} missing, of records that were lost or aborted; "
            "with --ledger RUN_DIRECTORY, the two are distinguished"
        )
    elif verified.is_contradictory:
        why = "two readers disagree"
    return f"{verdict}: {why}"


def _format_reading(reading: Reading) -> str:
    text = f"Spark read with {reading.reader}"
    if reading.difference:
        return f"{text}, because its two readers disagree: {reading.difference}"
    if reading.reason:
        text = f"{text}, because {reading.reason}"
    if reading.sampled:
        return f"{text}; Spark's Kafka source read {reading.sampled} of the offsets too, with equal results"
    return text


def _judgement_lines(judgement: Judgement) -> list[str]:
    lines = [f"verdict: {judgement.verdict}"]
    for result in judgement.results:
        lines.append(f"{result.property}: {result.verdict}, {result.compared} {result.unit} compared")
        for anomaly in result.anomalies:
            lines.append(f"  {anomaly.name}: {anomaly.counted}")
            lines += [f"    {example.what}" for example in anomaly.examples[:_EXAMPLES]]
        lines += [f"  {permitted.name}: {permitted.counted} (permitted)" for permitted in result.permitted]
        lines += [f"  unknown: {reason}" for reason in result.reasons]
    return lines


def _share_lines(shares: Sequence[Share]) -> list[str]:
    """Return a table of the expected and readable records per producer and partition, mismatches first."""
    if not shares:
        return []
    mismatches_first = sorted(
        shares, key=lambda share: share.read == (share.expected if share.fate == "committed" else 0)
    )
    rows = [
        (
            str(share.producer),
            f"{share.topic}-{share.partition}",
            share.fate,
            str(share.expected),
            str(share.read),
        )
        for share in mismatches_first[:_SHARES]
    ]
    table = format_table(rows, ("producer", "partition", "fate", "records", "readable"))
    return [*table, *([f"and {len(shares) - _SHARES} more rows"] if len(shares) > _SHARES else [])]


def _run_lines(run: RunWithoutLedger) -> list[str]:
    lines = [f"run {run.run or '(no record of any run)'}: {run.records} records in {run.lanes} lanes"]
    lines += _finding_lines("duplicate", run.duplicates)
    lines += _finding_lines("reordered", run.reordered)
    lines.append(f"  records intended to be aborted: {run.aborted_intent}")
    lines.append(f"  missing sequences: {run.missing} (lost or aborted; only a ledger can distinguish them)")
    lines += [
        f"    producer {gap.producer} lane {gap.lane}: {gap.missing} missing below {gap.highest}"
        for gap in run.gaps[:_EXAMPLES]
    ]
    lines += _finding_lines("records without this run's identity", run.foreign)
    return lines + [f"  not checked: {limitation}" for limitation in run.unchecked]


def _finding_lines(name: str, findings: Findings) -> list[str]:
    return [
        f"  {name}: {findings.count}",
        *(f"    {_format_spot(spot)}" for spot in findings.examples[:_EXAMPLES]),
    ]


def _format_spot(spot: Spot) -> str:
    where = f"{spot.topic}-{spot.partition} offset {spot.offset}"
    if spot.detail:
        return f"{where}: {spot.detail}"
    record = f"{where}: producer {spot.producer} lane {spot.lane} sequence {spot.seq}"
    if spot.other_offset < 0:
        return record
    if spot.other_seq == spot.seq:
        return f"{record}, also at offset {spot.other_offset}"
    return f"{record}, behind sequence {spot.other_seq} at offset {spot.other_offset}"
