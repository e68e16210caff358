"""Console output of a run: one line per event and, on a terminal, a paragraph with the current progress."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final, TextIO

import msgspec
from rich.console import Console as RichConsole
from rich.constrain import Constrain
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.base.errors import ExitCode
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
from harness.base.texts import count_of
from harness.evidence.app_list import FILE as APP_FILE
from harness.evidence.run_directory import Summary
from harness.provision.paths import checkout_dir
from harness.report.text_format import format_value

PLAIN_PROGRESS_EVERY_S = 5.0
_STYLES = {"valid": "bold green", "invalid": "bold red", "unknown": "bold yellow"}
_NEXT: Final = {
    "valid": "`eos index` lists all runs on one page",
    "invalid": "docs/how-to/after-invalid.md describes how to find the cause",
    "unknown": "docs/how-to/after-unknown.md lists the reasons and what to do about them",
}
_NEXT_OF_APP: Final = "docs/application.md has what follows: more seeds, tests, and continuous integration"
_CONTRACT: Final = "contract"
"""Property of runs with an application; the transactions that the harness counts are those of its inputs."""
_INDENT: Final = 8
_LONGEST_LINE: Final = 106
"""Length from which on a terminal shows the measurement of a fault cut. A file, a pipe, `--verbose` and
events.jsonl have all of it.
"""
_FAULTS: Final = "faults"
"""Name of the phase in which faults are injected."""


class Console:
    """Event listener that prints the events of a run for a person to read.

    Without a terminal, and in CI, it prints progress as a plain line every few seconds. NO_COLOR turns colour
    off. The text is complete without colour. If `quiet`, it prints the verdict and its last lines only. If
    `verbose`, it also prints the versions of the software, the seconds of each step, and whole measurements.
    """

    def __init__(self, out: TextIO | None = None, *, quiet: bool = False, verbose: bool = False) -> None:
        out = sys.stderr if out is None else out
        terminal = out.isatty() and os.environ.get("TERM") != "dumb"
        coloured = terminal and "NO_COLOR" not in os.environ
        self._rich = RichConsole(
            file=out, force_terminal=terminal, color_system="standard" if coloured else None
        )
        self._replaces = terminal and "CI" not in os.environ
        self._quiet = quiet
        self._verbose = verbose
        self._started = Started(scenario="", run="", seed=0, directory="", environment={})
        self._phase_began = 0.0
        self._bit = self._missed = 0
        self._transactions = 0
        self._live: Live | None = None
        self._last_progress = -PLAIN_PROGRESS_EVERY_S

    def __call__(self, event: Event) -> None:
        """Print one event."""
        self._count(event)
        if isinstance(event, VerdictEvent):
            self._print_verdict(event)
        elif self._quiet or (isinstance(event, Timed) and not self._verbose):
            return
        elif not isinstance(event, ProgressEvent):
            self._print(event.at, Text(_format(event, verbose=self._verbose, cut=self._replaces)))
        elif self._replaces:
            self._show_progress(event)
        elif event.at - self._last_progress >= PLAIN_PROGRESS_EVERY_S:
            self._last_progress = event.at
            self._print(event.at, Text(self._format_progress(event)))

    def close(self) -> None:
        """Remove the progress paragraph and show the cursor again.

        This method also runs before each printed line.
        """
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _count(self, event: Event) -> None:
        match event:
            case Started():
                self._started = event
            case PhaseEvent(name=name) if name == _FAULTS:
                self._phase_began = event.at
            case Injected():
                self._bit += 1
            case NoBite():
                self._missed += 1
            case ProgressEvent():
                self._transactions = event.committed + event.aborted + event.unknown

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
        paragraph.add_row(Text(f"{event.at:6.1f}"), Text(self._format_progress(event)))
        # One column stays free, because some terminals wrap a line that is exactly as wide as the terminal.
        self._live.update(Constrain(paragraph, max(20, self._rich.width - 1)), refresh=True)

    def _print(self, at: float, text: Text) -> None:
        """Print text with its time. On a terminal, break lines between words, and indent the rest of them."""
        self.close()
        lines = list(text.split("\n"))
        if self._replaces:
            width = max(20, self._rich.width - 1 - _INDENT)
            lines = [part for line in lines for part in line.wrap(self._rich, width)]
        first, *rest = lines
        shown = [Text.assemble(f"{at:6.1f}  ", first), *(Text.assemble(" " * _INDENT, line) for line in rest)]
        # Without soft_wrap, rich would break long lines, even if the output is a pipe.
        self._rich.print(Text("\n").join(shown), soft_wrap=True)

    def _print_verdict(self, event: VerdictEvent) -> None:
        details, _, _ = event.text.rstrip().rpartition("\n")
        if not self._quiet:
            self._print(event.at, Text(details))
        self.close()
        style = _STYLES[event.verdict]
        lines = [
            Text.assemble((event.verdict.upper(), style), f", {event.comparison}: {self._sentence(event)}"),
            *(Text(f"limit:  exit code 3: {breach}") for breach in _shown_breaches(event)),
            Text(f"report: {event.directory}/report.html"),
        ]
        if not self._quiet:
            pages = (
                f"{checkout}/" if (checkout := checkout_dir()) else ""
            )  # the reader may be in another folder
            following = _NEXT["valid" if event.expected else event.verdict]
            if event.expected and (Path(event.directory) / APP_FILE).exists():
                following = _NEXT_OF_APP
            lines.append(Text(f"next:   {following.replace('docs/', f'{pages}docs/')}"))
            lines.append(Text(f"replay: {event.replay}"))
        self._rich.print(Text("\n").join(lines), soft_wrap=True)

    def _sentence(self, event: VerdictEvent) -> str:
        """Return the result of the run in one sentence: what was found, in how many records."""
        try:
            summary = msgspec.json.decode((Path(event.directory) / "summary.json").read_bytes(), type=Summary)
        except (OSError, msgspec.DecodeError):
            return f"{event.at:.0f} s"
        found = ", ".join(f"{name} {count}" for name, count in sorted(summary.anomalies.items()))
        if not found and summary.reasons:
            more = len(summary.reasons) - 1
            found = summary.reasons[0] + (f" (more reasons: {more})" if more else "")
        counts = [count_of(summary.records, "record")]
        if self._started.lasts_s:  # a walkthrough does not count its transactions
            whose = " of the inputs" if _CONTRACT in summary.properties else ""
            counts.append(count_of(summary.transactions or self._transactions, "transaction", whose))
        if self._started.lasts_s or self._bit:
            counts.append(count_of(self._bit, "fault", " that bit"))
        return f"{found or 'no anomaly'}; {', '.join(counts)}, {event.at:.0f} s"

    def _format_progress(self, event: ProgressEvent) -> str:
        return f"{event.phase}{self._format_plan(event)}: {_format_counts(event)}"

    def _format_plan(self, event: ProgressEvent) -> str:
        """Return how much of the plan is done: seconds, and injections."""
        if event.phase != _FAULTS or not self._started.lasts_s:
            return ""
        elapsed, planned = event.at - self._phase_began, self._started.lasts_s
        done = f" {min(elapsed, planned):.0f} of {planned:g} s"
        if elapsed >= planned + 1:  # the faults follow each other, and some took longer than planned
            done += f" and {elapsed - planned:.0f} s more"
        return f"{done}, {self._bit + self._missed} of {self._started.faults} faults"


def _shown_breaches(event: VerdictEvent) -> list[str]:
    """Return why limits were exceeded, if this determines the exit code of the run."""
    return event.breaches if event.exit_code == ExitCode.LIMIT else []


def _format(event: Event, *, verbose: bool, cut: bool) -> str:
    text = str(event)
    match event:
        case Started():
            versions = ", ".join(f"{k} {format_value(v)}" for k, v in event.environment.items() if v)
            text = f"{event.scenario}, seed {event.seed}, run {event.run}\n{event.directory}"
            text += f"\n{versions}" if verbose else ""
        case PhaseEvent():
            text = f"== {event.name}" + (f": {event.detail}" if event.detail else "")
        case Injected():
            bite = format_value(event.bite)
            text = f"{event.fault} on {', '.join(event.names)} bit after {event.took_s:.1f} s: {bite}"
            if cut and not verbose and len(text) > _LONGEST_LINE:
                text = f"{text[:_LONGEST_LINE]} ..."
        case NoBite():
            text = f"{event.fault} did NOT bite: {event.reason}"
        case Healed():
            text = f"{event.fault} on {', '.join(event.names)} healed in {event.took_s:.1f} s"
        case ClientEnded():
            text = f"client {event.client} ended ({event.exit_code}): {event.last_line}"
        case Timed():
            text = f"{event.step} took {event.took_s:.1f} s"
    return text


def _format_counts(event: ProgressEvent) -> str:
    lag = "?" if event.lso_lag is None else str(event.lso_lag)
    text = (
        f"{event.acknowledged} acknowledged ({event.rate:.0f}/s), transactions "
        f"{event.committed} committed {event.aborted} aborted {event.unknown} unknown, "
        f"{event.in_flight} in flight, {lag} not yet stable"
    )
    text += f"; Spark {event.spark}" if event.spark else ""
    return text + (f"; {', '.join(event.active)}" if event.active else "")
