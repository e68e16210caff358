"""Output for GitHub Actions: annotations for unexpected results, and one line per run in the step summary."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO

from harness.base.errors import ExitCode
from harness.base.events import Event, NoBite, Started, VerdictEvent


def in_actions() -> bool:
    """Return whether the process runs in a step of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


class GitHub:
    """Event listener that prints annotations, and appends one line per run to the step's summary file."""

    def __init__(self, out: TextIO = sys.stdout, summary: Path | None = None) -> None:
        self._out = out
        named = os.environ.get("GITHUB_STEP_SUMMARY")
        self._summary = summary or (Path(named) if named else None)
        self._title = "run"

    def __call__(self, event: Event) -> None:
        match event:
            case Started():
                self._title = f"{event.scenario}, seed {event.seed}"
            case NoBite():
                self._annotate("warning", f"{event.fault} did not bite: {event.reason}")
            case VerdictEvent():
                if not event.expected or event.exit_code == ExitCode.LIMIT:
                    self._annotate(
                        "error", f"{event.verdict}, {event.comparison}. {event.replay}\n{event.text}"
                    )
                self._summarise(event)

    def _annotate(self, level: str, text: str) -> None:
        # Characters with a special meaning in a workflow command must be written as percent codes.
        for sign, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
            text = text.replace(sign, code)
        title = self._title.replace(",", "%2C").replace(":", "%3A")
        self._out.write(f"::{level} title={title}::{text}\n")
        self._out.flush()

    def _summarise(self, event: VerdictEvent) -> None:
        if self._summary is None:
            return
        comparison = event.comparison.replace("NOT", "**not**")
        with self._summary.open("a") as file:
            file.write(f"- {self._title}: **{event.verdict}**, {comparison}. `{event.replay}`\n")
