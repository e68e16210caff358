"""Lines of results.jsonl (one per checked run), and tables of verdicts and recovery times over many runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.base.errors import UsageError
from harness.base.events import NoBite, VerdictEvent
from harness.evidence.run_directory import RunDirectory, RunInfo, Summary
from harness.report.proportions import bounds
from harness.report.text_format import format_table
from harness.report.timeline_data import injections, read_events

NAME: Final = "results.jsonl"
RECOVERY: Final = "recovery"


class FaultResult(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Result of one injection: whether the fault bit, and how long healing took.

    Healing is over when the target is healthy again.
    """

    fault: str
    names: list[str] = []
    bit: bool
    healthy_after_s: float | None = None


class RunResult(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A line of results.jsonl: the result of one run."""

    run: str
    scenario: str
    seed: int
    started: str
    backend: str
    verdict: str
    expected: bool
    exit_code: int
    anomalies: dict[str, int]
    records: int
    recovery_s: float | None
    faults: list[FaultResult]


def result_of(directory: Path) -> RunResult:
    """Return the line of results.jsonl for a checked run."""
    run = RunDirectory.open(directory)
    info, summary = run.read("run.json", RunInfo), run.read("summary.json", Summary)
    events = read_events(directory)
    ending = next((event for event in events if isinstance(event, VerdictEvent)), None)
    recovery = summary.limits.get(RECOVERY)
    return RunResult(
        run=info.run,
        scenario=info.scenario,
        seed=info.seed,
        started=info.started,
        backend=str(info.environment.get("backend", "?")),
        verdict=summary.verdict,
        expected=ending is not None and ending.expected,
        # An interrupted run has its own exit code, which differs from that of its verdict.
        exit_code=ending.exit_code if ending else summary.exit_code,
        anomalies=summary.anomalies,
        records=summary.records,
        recovery_s=recovery.measured if recovery else None,
        faults=[
            FaultResult(fault=event.fault, bit=False)
            if isinstance(event, NoBite)
            else FaultResult(
                fault=event.fault,
                names=list(event.names),
                bit=True,
                healthy_after_s=healed.took_s if healed else None,
            )
            for event, healed in injections(events)
        ],
    )


def append(file: Path, result: RunResult) -> None:
    """Append a result to results.jsonl in a single write.

    The lines of runs that end at the same time therefore do not mix.
    """
    with file.open("ab") as out:
        out.write(msgspec.json.encode(result) + b"\n")


def read(file: Path) -> list[RunResult]:
    """Read every line of a results file. If a line is unreadable, raise an error with the line's number."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}",
            "`eos run` writes results.jsonl into its --runs folder",
        ) from error
    results = []
    for number, line in enumerate(lines, 1):
        try:
            results.append(msgspec.json.decode(line, type=RunResult))
        except msgspec.DecodeError as error:
            raise UsageError(
                f"{file}:{number}: {error}", "remove the line: it is incomplete, or another version wrote it"
            ) from error
    return results


def format_results(results: Sequence[RunResult]) -> list[str]:
    """Return the lines of two tables: verdicts by scenario, and recovery times by fault."""
    scenarios: dict[tuple[str, str], list[RunResult]] = defaultdict(list)
    faults: dict[str, list[FaultResult]] = defaultdict(list)
    for result in results:
        scenarios[result.scenario, result.backend].append(result)
        for fault in result.faults:
            faults[fault.fault].append(fault)
    head = ("scenario", "back end", "runs", "as expected", "verdicts", "recovery s", "seeds")
    rows = [_scenario_row(name, backend, runs) for (name, backend), runs in sorted(scenarios.items())]
    fault_head = ("fault", "injections", "bit", "healthy after s: median", "p90", "max")
    fault_rows = [_fault_row(name, injected) for name, injected in sorted(faults.items())]
    return [*format_table(rows, head), "", *(format_table(fault_rows, fault_head) if fault_rows else [])]


def _scenario_row(name: str, backend: str, runs: list[RunResult]) -> tuple[str, ...]:
    verdicts = sorted({run.verdict for run in runs})
    took = sorted(run.recovery_s for run in runs if run.recovery_s is not None)
    span = f"{took[0]:.1f}-{took[-1]:.1f}" if took else "-"
    seeds = " ".join(str(run.seed) for run in runs)
    as_expected = sum(run.expected for run in runs)
    low, high = bounds(as_expected, len(runs))
    share = f"{as_expected} ({low:.0%}-{high:.0%})"
    return name, backend, str(len(runs)), share, ", ".join(verdicts), span, seeds


def _fault_row(name: str, injected: list[FaultResult]) -> tuple[str, ...]:
    took = sorted(f.healthy_after_s for f in injected if f.healthy_after_s is not None)
    shares = [f"{_quantile(took, share):.1f}" for share in (0.5, 0.9, 1.0)] if took else ["-"] * 3
    return name, str(len(injected)), str(sum(f.bit for f in injected)), *shares


def _quantile(ordered: list[float], share: float) -> float:
    """Return a quantile of sorted values, such as the 90th percentile for a share of 0.9."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
