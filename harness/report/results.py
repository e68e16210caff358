"""Lines of results.jsonl (one per checked run), and tables over many runs: verdicts, recovery, seconds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from harness.base.errors import ExitCode, UsageError
from harness.base.events import Event, NoBite, PhaseEvent, Timed, VerdictEvent
from harness.evidence.checkers.model import Verdict
from harness.evidence.run_directory import RECOVERY, RunDirectory, RunInfo, Summary
from harness.report.proportions import bounds, hidden_share
from harness.report.text_format import format_table
from harness.report.timeline_data import injections, read_events, verdict_of

NAME: Final = "results.jsonl"
_BRACKETS: Final = "in brackets: 95% confidence interval of the share of runs that end as expected"
_HIDDEN: Final = (
    "anomaly in at most: with 95% confidence, the share of runs that show one, about 3 / runs; only if all "
    "runs were valid"
)
VERIFY: Final = "verify"
_NO_PHASES: Final = ("spark",)
"""Names of messages that are no phases, although events.jsonl stores them as phases."""


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
    seconds: dict[str, float] = {}
    """Seconds of each phase, and of each step of the phase `verify`. Lines of older versions have none."""


def result_of(directory: Path) -> RunResult:
    """Return the line of results.jsonl for a checked run."""
    run = RunDirectory.open(directory)
    info, summary = run.read("run.json", RunInfo), run.read("summary.json", Summary)
    events = read_events(directory)
    ending = verdict_of(events)
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
        seconds=seconds_of(events),
    )


def seconds_of(events: Sequence[Event]) -> dict[str, float]:
    """Return the seconds of each phase up to the verdict, and of each step of the verification."""
    seconds: dict[str, float] = {}
    phases = [event for event in events if isinstance(event, PhaseEvent) and event.name not in _NO_PHASES]
    ends: list[Event] = [*phases[1:], *(event for event in events if isinstance(event, VerdictEvent))]
    for phase, end in zip(phases, ends, strict=False):
        name = phase.name.split()[0]  # such as "step" for "step 3" of a walkthrough
        seconds[name] = round(seconds.get(name, 0.0) + end.at - phase.at, 3)
    return seconds | {f"{VERIFY}/{event.step}": event.took_s for event in events if isinstance(event, Timed)}


def append(file: Path, result: RunResult) -> None:
    """Append a result to results.jsonl in a single write.

    The lines of runs that end at the same time therefore do not mix.
    """
    with file.open("ab") as out:
        out.write(msgspec.json.encode(result) + b"\n")


def read(file: Path, warn: Callable[[str], None] = lambda _: None) -> list[RunResult]:
    """Read every line of a results file. Leave out a line that is unreadable, and warn about it.

    Such a line is incomplete, or another version wrote it.
    """
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(
            f"{file} cannot be read: {error.strerror}",
            "`eos run` writes results.jsonl into its --runs folder",
        ) from error
    results: list[RunResult] = []
    for number, line in enumerate(lines, 1):
        try:
            results.append(msgspec.json.decode(line, type=RunResult))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if line.strip():
                warn(f"{file}:{number} is left out: {error}")
    if lines and not results:
        raise UsageError(f"{file} has no line that can be read", "name the results.jsonl of a --runs folder")
    return results


def format_results(results: Sequence[RunResult]) -> list[str]:
    """Return the lines of three tables: verdicts by scenario, recovery times by fault, seconds by step."""
    scenarios: dict[tuple[str, str], list[RunResult]] = defaultdict(list)
    faults: dict[str, list[FaultResult]] = defaultdict(list)
    for result in results:
        scenarios[result.scenario, result.backend].append(result)
        for fault in result.faults:
            faults[fault.fault].append(fault)
    head = (
        "scenario",
        "back end",
        "runs",
        "as expected",
        "verdicts",
        "recovery s",
        "anomaly in at most",
        "seeds",
    )
    rows = [_scenario_row(name, backend, runs) for (name, backend), runs in sorted(scenarios.items())]
    fault_head = ("fault", "injections", "bit", "healthy after s: median", "p90", "max")
    fault_rows = [_fault_row(name, injected) for name, injected in sorted(faults.items())]
    step_head = ("step", "runs", "seconds: median", "p90", "max", "share of the runs' time")
    tables = [
        [*format_table(rows, head), _BRACKETS, _HIDDEN],
        format_table(fault_rows, fault_head) if fault_rows else [],
        format_table(step_rows, step_head) if (step_rows := _step_rows(results)) else [],
    ]
    return [line for table in tables if table for line in (*table, "")][:-1]


def _scenario_row(name: str, backend: str, runs: list[RunResult]) -> tuple[str, ...]:
    verdicts = sorted({run.verdict for run in runs})
    took = sorted(run.recovery_s for run in runs if run.recovery_s is not None)
    span = f"{took[0]:.1f}-{took[-1]:.1f}" if took else "-"
    seeds = " ".join(str(run.seed) for run in runs)
    as_expected = sum(run.expected for run in runs)
    low, high = bounds(as_expected, len(runs))
    share = f"{as_expected} ({low:.0%}-{high:.0%})"
    hidden = f"{hidden_share(len(runs)):.0%}" if verdicts == [Verdict.VALID] else "-"
    over = sum(run.exit_code == ExitCode.LIMIT for run in runs)
    verdicts += [f"{over} over a limit"] if over else []
    return name, backend, str(len(runs)), share, ", ".join(verdicts), span, hidden, seeds


def _step_rows(results: Sequence[RunResult]) -> list[tuple[str, ...]]:
    """Return one row per phase, and per step of the verification. A step is a part of its phase."""
    timed = [result.seconds for result in results if result.seconds]
    total = sum(took for run in timed for step, took in run.items() if "/" not in step)
    rows = []
    for step in dict.fromkeys(step for run in timed for step in run):
        took = sorted(run[step] for run in timed if step in run)
        shown = [f"{_quantile(took, share):.1f}" for share in (0.5, 0.9, 1.0)]
        rows.append((step, str(len(took)), *shown, f"{sum(took) / total:.1%}" if total else "-"))
    return rows


def _fault_row(name: str, injected: list[FaultResult]) -> tuple[str, ...]:
    took = sorted(f.healthy_after_s for f in injected if f.healthy_after_s is not None)
    shares = [f"{_quantile(took, share):.1f}" for share in (0.5, 0.9, 1.0)] if took else ["-"] * 3
    return name, str(len(injected)), str(sum(f.bit for f in injected)), *shares


def _quantile(ordered: list[float], share: float) -> float:
    """Return a quantile of sorted values, such as the 90th percentile for a share of 0.9."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
