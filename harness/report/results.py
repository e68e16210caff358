"""One line for every run that was judged, and what the lines tell together: verdicts, recovery times."""

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
from harness.report.text_format import columns
from harness.report.timeline_data import injections, read_events

NAME: Final = "results.jsonl"
RECOVERY: Final = "recovery"


class FaultResult(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One injection: whether it bit, and how long after its heal its target was healthy again."""

    fault: str
    names: list[str] = []
    bit: bool
    healthy_after_s: float | None = None


class Result(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One run in a line."""

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


def result_of(directory: Path) -> Result:
    """The line of a run that was judged."""
    run = RunDirectory.open(directory)
    info, summary = run.read("run.json", RunInfo), run.read("summary.json", Summary)
    events = read_events(directory)
    ending = next((event for event in events if isinstance(event, VerdictEvent)), None)
    recovery = summary.limits.get(RECOVERY)
    return Result(
        run=info.run,
        scenario=info.scenario,
        seed=info.seed,
        started=info.started,
        backend=str(info.environment.get("backend", "?")),
        verdict=summary.verdict,
        expected=ending is not None and ending.expected,
        # A run that was stopped has another than its verdict's.
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


def append(file: Path, result: Result) -> None:
    """Add a run's line; one write, so that runs which end together do not mix theirs."""
    with file.open("ab") as out:
        out.write(msgspec.json.encode(result) + b"\n")


def read(file: Path) -> list[Result]:
    """Every line of a results file, or an error that names the one that cannot be read."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}",
            "`eos run` writes results.jsonl into its --runs folder",
        ) from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(msgspec.json.decode(line, type=Result))
        except msgspec.DecodeError as error:
            raise UsageError(
                f"{file}:{number}: {error}", "remove the line: it was cut off, or written by another version"
            ) from error
    return found


def format_results(results: Sequence[Result]) -> list[str]:
    """The verdicts of every scenario, and the recovery times of every fault, as lines of two tables."""
    scenarios: dict[tuple[str, str], list[Result]] = defaultdict(list)
    faults: dict[str, list[FaultResult]] = defaultdict(list)
    for result in results:
        scenarios[result.scenario, result.backend].append(result)
        for fault in result.faults:
            faults[fault.fault].append(fault)
    head = ("scenario", "back end", "runs", "as expected", "verdicts", "recovery s", "seeds")
    rows = [_scenario_row(name, backend, runs) for (name, backend), runs in sorted(scenarios.items())]
    fault_head = ("fault", "injections", "bit", "healthy after s: median", "p90", "most")
    fault_rows = [_fault_row(name, found) for name, found in sorted(faults.items())]
    return [*columns([head, *rows]), "", *(columns([fault_head, *fault_rows]) if fault_rows else [])]


def _scenario_row(name: str, backend: str, runs: list[Result]) -> tuple[str, ...]:
    verdicts = sorted({run.verdict for run in runs})
    took = sorted(run.recovery_s for run in runs if run.recovery_s is not None)
    span = f"{took[0]:.1f}-{took[-1]:.1f}" if took else "-"
    seeds = " ".join(str(run.seed) for run in runs)
    as_expected = sum(run.expected for run in runs)
    low, high = bounds(as_expected, len(runs))
    told = f"{as_expected} ({low:.0%}-{high:.0%})"
    return name, backend, str(len(runs)), told, ", ".join(verdicts), span, seeds


def _fault_row(name: str, found: list[FaultResult]) -> tuple[str, ...]:
    took = sorted(f.healthy_after_s for f in found if f.healthy_after_s is not None)
    shares = [f"{_share(took, share):.1f}" for share in (0.5, 0.9, 1.0)] if took else ["-"] * 3
    return name, str(len(found)), str(sum(f.bit for f in found)), *shares


def _share(ordered: list[float], share: float) -> float:
    """The value that this share of all values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
