"""Samples of metrics during a run: those of the brokers, and the statistics of the clients' library.

A file has one sample per line. A sample contains only the values that have changed since the sample before,
so a run of many hours has a file of moderate size. The checkers do not read it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from harness.base.closing import Closing
from harness.base.unreadable import UNREADABLE

FILE: Final = "metrics.jsonl"

Values = dict[str, float]


class MetricSample(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The metrics that have changed, by broker and by client, and why a broker could not be read.

    `at` is the monotonic time in nanoseconds, as in the histories.
    """

    at: int
    brokers: dict[str, Values] = {}
    clients: dict[str, Values] = {}
    problems: dict[str, str] = {}


class SampleWriter(Closing):
    """Writer of a run's samples. It keeps the last value of each metric and nothing else."""

    def __init__(self, directory: Path) -> None:
        self._file = (directory / FILE).open("ab")
        self._last: dict[tuple[str, str], Values] = {}

    def write(
        self,
        at: int,
        brokers: Mapping[str, Values],
        clients: Mapping[str, Values],
        problems: Mapping[str, str],
    ) -> None:
        """Write one sample."""
        sample = MetricSample(
            at=at,
            brokers=self._changed("broker", brokers),
            clients=self._changed("client", clients),
            problems=dict(problems),
        )
        self._file.write(msgspec.json.encode(sample) + b"\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _changed(self, kind: str, values: Mapping[str, Values]) -> dict[str, Values]:
        changed: dict[str, Values] = {}
        for name, own in values.items():
            last = self._last.setdefault((kind, name), {})
            if new := {metric: value for metric, value in own.items() if last.get(metric) != value}:
                changed[name] = new
                last.update(new)
        return changed


def read_samples(directory: Path) -> Iterator[MetricSample]:
    """Yield the samples of a run; none if it has none. A line that cannot be decoded is left out."""
    path = directory / FILE
    if not path.is_file():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                yield msgspec.json.decode(line, type=MetricSample)
            except UNREADABLE:
                continue


def growth(before: float | None, now: float) -> float:
    """Return by how much a counter has grown. A counter that is lower than before was reset to 0."""
    return now if before is None or now < before else now - before
