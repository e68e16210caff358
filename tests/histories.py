"""What a run's histories say: lines of one kind, and which faults bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from harness.evidence.history import Fault, Line, history_files

Kind = TypeVar("Kind", bound=Line)


class Bite(NamedTuple):
    """An injection that took effect, and what was measured of it."""

    fault: str
    measured: dict[str, Any]
    wall: int


def lines(run: Path, kind: type[Kind]) -> Iterator[Kind]:
    """The lines of one kind, whoever wrote them."""
    for file in history_files(run / "history"):
        yield from (line for _, line in file.read() if isinstance(line, kind))


def bites(run: Path) -> list[Bite]:
    """The injections of a run that bit, in order."""
    stages = list(lines(run, Fault))
    names = {line.id: line.fault or "" for line in stages if line.stage == "intent"}
    return [Bite(names[line.id], line.measured, line.wall) for line in stages if line.stage == "bite"]
