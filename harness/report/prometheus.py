"""Counters of runs in Prometheus' text format, for a collector of text files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple

from harness.base.errors import HarnessError
from harness.base.events import ProgressEvent
from harness.evidence.run_directory import RunDirectory, Summary
from harness.report.metric_curves import metric_curves
from harness.report.results import result_of
from harness.report.timeline_data import read_events

_VERDICTS: Final = ("valid", "unknown", "invalid")
_SECONDS: Final = len("2026-01-02T03:04:05")
_TRANSACTIONS: Final = ("committed", "aborted", "unknown")


class Family(NamedTuple):
    """One metric: its type and the line that explains it."""

    kind: Literal["gauge", "counter"]
    help: str


FAMILIES: Final = {
    "eos_run_info": Family("gauge", "A run of a scenario; always 1."),
    "eos_run_started_timestamp_seconds": Family("gauge", "Start of the run, as seconds since 1970."),
    "eos_run_verdict": Family("gauge", "Verdict of the run: 1 for the one that it has."),
    "eos_run_as_expected": Family("gauge", "Whether the verdict is the one that the scenario expects."),
    "eos_run_records_total": Family("counter", "Distinct records that the clients sent."),
    "eos_run_acknowledged_total": Family("counter", "Records that a broker acknowledged."),
    "eos_run_transactions_total": Family("counter", "Transactions by what the clients know of their end."),
    "eos_run_anomalies_total": Family("counter", "Anomalies by name; a name that is missing was not found."),
    "eos_run_compared_total": Family("counter", "Facts that the check of a property compared."),
    "eos_run_property_valid": Family("gauge", "Whether a property was checked and holds."),
    "eos_run_faults_total": Family("counter", "Injections by fault, and whether the fault bit."),
    "eos_run_limit_measured": Family("gauge", "Measured value of a limit of the scenario."),
    "eos_run_limit_held": Family("gauge", "Whether a limit of the scenario was held."),
    "eos_run_phase_seconds": Family("gauge", "Seconds of a phase of the run, or of a step of its check."),
    "eos_run_broker_errors_total": Family("counter", "Errors in answers of brokers, by request and error."),
}

Sample = tuple[str, dict[str, str], float]


def export(directories: Sequence[Path], warn: Callable[[str], None] = lambda _: None) -> str:
    """Return the counters of these runs.

    A run without a verdict, such as one that was killed, has none: it is left out with a warning. If no run
    has any, raise the error of the first one.
    """
    samples: list[Sample] = []
    errors: list[HarnessError] = []
    for directory in directories:
        RunDirectory.open(directory)  # a path that is no run is a mistake of the user
        try:
            samples += list(_samples(directory))
        except HarnessError as error:
            errors.append(error)
            if len(directories) > 1:
                warn(f"{directory} has no counters and is left out: {error.message}; {error.hint}")
    if errors and not samples:
        raise errors[0]
    return format_samples(FAMILIES, samples)


def format_samples(families: Mapping[str, Family], samples: Sequence[Sample]) -> str:
    """Return samples as text. All samples of a metric are together, as the format requires."""
    lines = []
    for name, family in families.items():
        own = [(labels, value) for metric, labels, value in samples if metric == name]
        if own:
            lines += [f"# HELP {name} {family.help}", f"# TYPE {name} {family.kind}"]
            lines += [f"{name}{_braces(labels)} {_number(value)}" for labels, value in own]
    return "".join(f"{line}\n" for line in lines)


def _samples(directory: Path) -> Iterator[Sample]:
    result = result_of(directory)
    summary = RunDirectory.open(directory).read("summary.json", Summary)
    run = {"scenario": result.scenario, "run": result.run}
    about = {"backend": result.backend, "kafka": summary.kafka, "seed": str(result.seed)}
    yield "eos_run_info", run | about, 1
    started = datetime.strptime(result.started[:_SECONDS], "%Y-%m-%dT%H:%M:%S").timestamp()
    yield "eos_run_started_timestamp_seconds", run, started
    for verdict in _VERDICTS:
        yield "eos_run_verdict", run | {"verdict": verdict}, verdict == result.verdict
    yield "eos_run_as_expected", run, result.expected
    yield "eos_run_records_total", run, result.records
    if progress := [event for event in read_events(directory) if isinstance(event, ProgressEvent)]:
        last = progress[-1]
        yield "eos_run_acknowledged_total", run, last.acknowledged
        for end in _TRANSACTIONS:
            yield "eos_run_transactions_total", run | {"end": end}, getattr(last, end)
    for name, count in result.anomalies.items():
        yield "eos_run_anomalies_total", run | {"name": name}, count
    for name, checked in summary.properties.items():
        yield "eos_run_compared_total", run | {"property": name, "unit": checked.unit}, checked.compared
        yield "eos_run_property_valid", run | {"property": name}, checked.verdict == "valid"
    faults: dict[tuple[str, bool], int] = {}
    for fault in result.faults:
        faults[fault.fault, fault.bit] = faults.get((fault.fault, fault.bit), 0) + 1
    for (name, bit), count in faults.items():
        yield "eos_run_faults_total", run | {"fault": name, "bit": str(bit).lower()}, count
    for name, limit in summary.limits.items():
        yield "eos_run_limit_measured", run | {"limit": name, "unit": limit.unit}, limit.measured
        yield "eos_run_limit_held", run | {"limit": name}, limit.held
    for name, seconds in result.seconds.items():
        yield "eos_run_phase_seconds", run | {"phase": name}, seconds
    for (request, error), count in metric_curves(directory, 0).counted.items():
        yield "eos_run_broker_errors_total", run | {"request": request, "error": error}, count


def _braces(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    number = float(value)
    return str(int(number)) if number.is_integer() else repr(number)
