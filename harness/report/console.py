"""The console: one line an event; on a terminal a last paragraph that keeps counting.

Nothing here is said by colour alone, and NO_COLOR turns colour off.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from typing import TextIO

from harness.base.events import (
    ClientEnded,
    Event,
    Healed,
    Injected,
    NoBite,
    PhaseEvent,
    ProgressEvent,
    Started,
    VerdictEvent,
)
from harness.report.text_format import flat

PLAIN_PROGRESS_EVERY_S = 5.0
_COLOURS = {"valid": 32, "invalid": 31, "unknown": 33}


class Console:
    """Writes a run's events for a person."""

    def __init__(self, out: TextIO = sys.stderr) -> None:
        self._out = out
        self._terminal = out.isatty()
        self._colour = self._terminal and "NO_COLOR" not in os.environ
        self._counting = 0
        """Lines of the paragraph that keeps counting, which the next one takes the place of."""
        self._last_progress = -PLAIN_PROGRESS_EVERY_S

    def __call__(self, event: Event) -> None:
        """Show one event."""
        if isinstance(event, ProgressEvent):
            self._progress(event)
        else:
            self._line(event.at, self._text(event))

    def _progress(self, event: ProgressEvent) -> None:
        lag = "?" if event.lso_lag is None else str(event.lso_lag)
        text = (
            f"{event.phase}: {event.acknowledged} acknowledged ({event.rate:.0f}/s), transactions "
            f"{event.committed} committed {event.aborted} aborted {event.unknown} unknown, "
            f"{event.in_flight} in flight, {lag} not yet stable"
        )
        text += f"; Spark {event.spark}" if event.spark else ""
        text += f"; {', '.join(event.active)}" if event.active else ""
        if self._terminal:
            self._erase()
            # One column is left free: some terminals wrap when a line is full.
            width = max(20, shutil.get_terminal_size().columns - 1)
            lines = textwrap.wrap(f"{event.at:6.1f}  {text}", width, subsequent_indent=" " * 8)
            self._out.write("\n".join(lines))
            self._out.flush()
            self._counting = len(lines)
        elif event.at - self._last_progress >= PLAIN_PROGRESS_EVERY_S:
            self._last_progress = event.at
            self._line(event.at, text)

    def _line(self, at: float, text: str) -> None:
        self._erase()
        first, *rest = text.splitlines()
        self._out.write("\n".join([f"{at:6.1f}  {first}", *(f"        {line}" for line in rest)]) + "\n")
        self._out.flush()

    def _erase(self) -> None:
        if self._counting:
            up = f"\x1b[{self._counting - 1}A" if self._counting > 1 else ""
            self._out.write(f"\r{up}\x1b[J")
            self._counting = 0

    def _text(self, event: Event) -> str:
        text = str(event)
        match event:
            case Started():
                found = ", ".join(f"{k} {flat(v)}" for k, v in event.environment.items() if v)
                text = f"{event.scenario}, seed {event.seed}, run {event.run}\n{event.directory}\n{found}"
            case PhaseEvent():
                text = f"== {event.name}" + (f": {event.detail}" if event.detail else "")
            case Injected():
                bite = flat(event.bite)
                text = f"{event.fault} on {', '.join(event.names)} bit after {event.took_s:.1f} s: {bite}"
            case NoBite():
                text = f"{event.fault} did NOT bite: {event.reason}"
            case Healed():
                text = f"{event.fault} on {', '.join(event.names)} healed in {event.took_s:.1f} s"
            case ClientEnded():
                text = f"client {event.client} ended ({event.exit_code}): {event.last_line}"
            case VerdictEvent():
                text = self._verdict(event)
        return text

    def _verdict(self, event: VerdictEvent) -> str:
        word = event.verdict.upper()
        if self._colour:
            word = f"\x1b[1;{_COLOURS[event.verdict]}m{word}\x1b[0m"
        expected = "as expected" if event.expected else "NOT as expected"
        details, _, _ = event.text.rstrip().rpartition("\n")
        return f"{details}\n{event.directory}\nagain: {event.replay}\n{word}, {expected}"
