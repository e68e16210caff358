"""Console output of a run: one line per event and, on a terminal, a paragraph with the current progress."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from rich.console import Console as RichConsole
from rich.constrain import Constrain
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.base.events import (
    ClientEnded,
    Event,
    Healed,
    Injected,
    NoBite,
    PhaseEvent,
    ProgressEvent,
    Started,
    Timed,
    VerdictEvent,
)
from harness.report.text_format import format_value

PLAIN_PROGRESS_EVERY_S = 5.0
_STYLES = {"valid": "bold green", "invalid": "bold red", "unknown": "bold yellow"}


class Console:
    """Event listener that prints the events of a run for a person to read.

    Without a terminal, and in CI, it prints progress as a plain line every few seconds. NO_COLOR turns colour
    off. The text is complete without colour.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        out = sys.stderr if out is None else out
        terminal = out.isatty() and os.environ.get("TERM") != "dumb"
        coloured = terminal and "NO_COLOR" not in os.environ
        self._rich = RichConsole(
            file=out, force_terminal=terminal, color_system="standard" if coloured else None
        )
        self._replaces = terminal and "CI" not in os.environ
        self._live: Live | None = None
        self._last_progress = -PLAIN_PROGRESS_EVERY_S

    def __call__(self, event: Event) -> None:
        """Print one event."""
        if not isinstance(event, ProgressEvent):
            self._print(event.at, self._format(event))
        elif self._replaces:
            self._show_progress(event)
        elif event.at - self._last_progress >= PLAIN_PROGRESS_EVERY_S:
            self._last_progress = event.at
            self._print(event.at, Text(_format_progress(event)))

    def close(self) -> None:
        """Remove the progress paragraph and show the cursor again.

        This method also runs before each printed line.
        """
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _show_progress(self, event: ProgressEvent) -> None:
        if self._live is None:
            self._live = Live(
                console=self._rich,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        paragraph = Table.grid(padding=(0, 2, 0, 0))
        paragraph.add_row(Text(f"{event.at:6.1f}"), Text(_format_progress(event)))
        # One column stays free, because some terminals wrap a line that is exactly as wide as the terminal.
        self._live.update(Constrain(paragraph, max(20, self._rich.width - 1)), refresh=True)

    def _print(self, at: float, text: Text) -> None:
        self.close()
        first, *rest = text.split("\n")
        lines = [Text.assemble(f"{at:6.1f}  ", first), *(Text.assemble(" " * 8, line) for line in rest)]
        # Without soft_wrap, rich would break long lines, even if the output is a pipe.
        self._rich.print(Text("\n").join(lines), soft_wrap=True)

    def _format(self, event: Event) -> Text:
        text = str(event)
        match event:
            case Started():
                versions = ", ".join(f"{k} {format_value(v)}" for k, v in event.environment.items() if v)
                text = f"{event.scenario}, seed {event.seed}, run {event.run}\n{event.directory}\n{versions}"
            case PhaseEvent():
                text = f"== {event.name}" + (f": {event.detail}" if event.detail else "")
            case Injected():
                bite = format_value(event.bite)
                text = f"{event.fault} on {', '.join(event.names)} bit after {event.took_s:.1f} s: {bite}"
            case NoBite():
                text = f"{event.fault} did NOT bite: {event.reason}"
            case Healed():
                text = f"{event.fault} on {', '.join(event.names)} healed in {event.took_s:.1f} s"
            case ClientEnded():
                text = f"client {event.client} ended ({event.exit_code}): {event.last_line}"
            case Timed():
                text = f"{event.step} took {event.took_s:.1f} s"
            case VerdictEvent():
                expected = "as expected" if event.expected else "NOT as expected"
                details, _, _ = event.text.rstrip().rpartition("\n")
                return Text.assemble(
                    f"{details}\n{event.directory}\nreplay: {event.replay}\n",
                    (event.verdict.upper(), _STYLES[event.verdict]),
                    f", {expected}",
                )
        return Text(text)


def _format_progress(event: ProgressEvent) -> str:
    lag = "?" if event.lso_lag is None else str(event.lso_lag)
    text = (
        f"{event.phase}: {event.acknowledged} acknowledged ({event.rate:.0f}/s), transactions "
        f"{event.committed} committed {event.aborted} aborted {event.unknown} unknown, "
        f"{event.in_flight} in flight, {lag} not yet stable"
    )
    text += f"; Spark {event.spark}" if event.spark else ""
    return text + (f"; {', '.join(event.active)}" if event.active else "")
