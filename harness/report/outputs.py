"""Files that a run writes for users: events.jsonl, a line of results.jsonl, the diagram and the report."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import msgspec

from harness.base.events import Event, EventHandler, VerdictEvent
from harness.report import page, results
from harness.report.diagram import diagram_file
from harness.tap.tap_client import LOG_NAME

EVENTS = "events.jsonl"


class Recorder(EventHandler):
    """Event handler that appends each event to events.jsonl at once, so that a killed run loses no event."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None

    def start(self, directory: Path) -> None:
        self._file = (directory / EVENTS).open("ab", buffering=0)

    def handle(self, event: Event) -> None:
        assert self._file is not None
        self._file.write(msgspec.json.encode(event) + b"\n")

    def shutdown(self) -> None:
        if self._file is not None:
            self._file.close()


class FinalFiles(EventHandler):
    """Event handler that writes the final files of a run: a line of results.jsonl, diagram and report.

    It writes them only if the run has a verdict.
    """

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._directory: Path | None = None
        self._judged = False

    def start(self, directory: Path) -> None:
        self._directory = directory

    def handle(self, event: Event) -> None:
        """Record whether a verdict event has arrived, because `shutdown` writes files only in that case."""
        self._judged = self._judged or isinstance(event, VerdictEvent)

    def shutdown(self) -> None:
        """Write the files if the run has a verdict."""
        if self._judged and self._directory is not None:
            results.append(self._runs / results.NAME, results.result_of(self._directory))
            write_report(self._directory)


def write_report(directory: Path) -> Path:
    """Write report.html of a run and return the file.

    If the run has a frame log but no diagram yet, draw the diagram first.
    """
    if (directory / LOG_NAME).exists() and not (directory / "diagram.svg").exists():
        diagram_file.write(directory)
    return page.write(directory)
