"""Curves and totals of the metrics that a run sampled, for its report and for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.cluster.broker_metrics import ERROR, LOADS, PRODUCER_IDS, UNDER_MIN_ISR
from harness.evidence.metric_samples import MetricSample, growth, read_samples

Line = list[tuple[float, float]]

ERRORS_SHOWN: Final = 3
"""Number of errors whose curves are drawn: those that the brokers counted most often."""
RETRIED: Final = ("request retries", "request timeouts")
"""Statistics of the clients that are drawn."""


@dataclass
class MetricCurves:
    """The metrics of a run over time, summed over its brokers or clients. Times are seconds of the run."""

    errors: dict[str, Line] = field(default_factory=dict)
    """Errors per second by their names."""
    retries: dict[str, Line] = field(default_factory=dict)
    """Requests per second that the clients repeated, or that had no answer in time."""
    loads: dict[str, Line] = field(default_factory=dict)
    """Milliseconds of the longest load of a coordinator's partition in the last 30 s."""
    under_min_isr: Line = field(default_factory=list)
    producer_ids: Line = field(default_factory=list)
    counted: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of errors during the run, by request and name of the error."""


def metric_curves(directory: Path, began: int) -> MetricCurves:
    """Return the metrics of a run that began at this monotonic time; without curves if it has no samples."""
    return _curves(read_samples(directory), began)


def _curves(samples: Iterable[MetricSample], began: int) -> MetricCurves:
    curves = MetricCurves()
    values: dict[str, dict[str, float]] = {}
    before: float | None = None
    for sample in samples:
        at = (sample.at - began) / 1e9
        grown = _growth(sample, values)
        errors: Counter[str] = Counter()
        for metric, count in grown.items():
            if metric.startswith(f"{ERROR} "):
                _, request, error = metric.split(" ")
                errors[error] += count
                curves.counted[request, error] += count
        if before is not None and at > before:
            for error in errors.keys() - curves.errors.keys():
                curves.errors[error] = [(before, 0.0)]
            for error, line in curves.errors.items():
                line.append((at, errors[error] / (at - before)))
            for metric in RETRIED:
                curves.retries.setdefault(metric, []).append((at, grown[metric] / (at - before)))
        _add_levels(curves, at, values)
        before = at
    most = sorted(curves.errors, key=lambda error: -sum(value for _, value in curves.errors[error]))
    curves.errors = {error: curves.errors[error] for error in most[:ERRORS_SHOWN]}
    return curves


def _growth(sample: MetricSample, values: dict[str, dict[str, float]]) -> Counter[str]:
    """Return by how much each counter has grown over all brokers and clients, and take over the new values.

    Counters in the first sample of a broker do not count: they may be older than the run.
    """
    grown: Counter[str] = Counter()
    for known, from_zero in ((sample.brokers, False), (sample.clients, True)):
        for name, changed in known.items():
            own = values.setdefault(name, {})
            counts = from_zero or bool(own)
            for metric, value in changed.items():
                if counts and (more := int(growth(own.get(metric), value))):
                    grown[metric] += more
            own.update(changed)
    return grown


def _add_levels(curves: MetricCurves, at: float, values: dict[str, dict[str, float]]) -> None:
    """Add the metrics that have a level at each moment."""
    brokers = [own for own in values.values() if PRODUCER_IDS in own]
    if not brokers:
        return
    curves.producer_ids.append((at, sum(own[PRODUCER_IDS] for own in brokers)))
    curves.under_min_isr.append((at, sum(own.get(UNDER_MIN_ISR, 0.0) for own in brokers)))
    for name, metric in LOADS.items():
        curves.loads.setdefault(name, []).append((at, max(own.get(metric, 0.0) for own in brokers)))
