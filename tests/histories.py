"""Readers of a run's histories: lines of one type, and injections that took effect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from harness.evidence.history import FaultLine, Line, history_files

Kind = TypeVar("Kind", bound=Line)


class Bite(NamedTuple):
    """An injection that took effect, with its measurement."""

    fault: str
    measured: dict[str, Any]
    wall: int


def lines(run: Path, kind: type[Kind]) -> Iterator[Kind]:
    """Return the lines of one type, such as Invoke or Fault, from all histories of a run."""
    for file in history_files(run / "history"):
        yield from (line for _, line in file.read() if isinstance(line, kind))


def bites(run: Path) -> list[Bite]:
    """Return the injections that took effect, in order."""
    stages = list(lines(run, FaultLine))
    names = {line.id: line.fault or "" for line in stages if line.stage == "intent"}
    return [Bite(names[line.id], line.measured, line.wall) for line in stages if line.stage == "bite"]
