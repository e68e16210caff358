"""The console of a run: plain lines, or lines above a live progress paragraph."""

from __future__ import annotations

import io
import re

import pytest

from harness.base.events import NoBite, PhaseEvent, ProgressEvent, VerdictEvent
from harness.report.console import Console


class Terminal(io.StringIO):
    """A terminal that applies the control codes of the console to its screen."""

    cursor = True
    """Whether the cursor is shown."""

    def isatty(self) -> bool:
        return True

    @property
    def screen(self) -> list[str]:
        lines, row, column = [""], 0, 0
        for part in re.findall(r"\x1b\[\??\d*[A-Za-z]|\n|\r|[^\x1b\n\r]+", self.getvalue()):
            if part == "\n":
                row, column = row + 1, 0
                lines += [""] * (row + 1 - len(lines))
            elif part == "\r":
                column = 0
            elif part.endswith("A"):
                row -= int(part[2:-1])
            elif part.endswith("J"):
                lines = [*lines[:row], lines[row][:column]]
            elif part == "\x1b[2K":
                lines[row] = ""
            elif part in ("\x1b[?25l", "\x1b[?25h"):
                self.cursor = part.endswith("h")
            else:
                assert not part.startswith("\x1b"), part
                lines[row] = lines[row][:column] + part + lines[row][column + len(part) :]
                column += len(part)
        return lines


def progress(acknowledged: int, active: list[str], at: float = 0.0) -> ProgressEvent:
    return ProgressEvent(
        at=at,
        phase="faults",
        acknowledged=acknowledged,
        rate=10.0,
        committed=1,
        aborted=2,
        unknown=0,
        in_flight=3,
        active=active,
        lso_lag=4,
    )


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return a terminal of 60 columns."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    for name in ("NO_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    return Terminal()


def test_a_terminal_keeps_the_lines_and_replaces_the_progress_paragraph(terminal: Terminal) -> None:
    console = Console(terminal)
    console(PhaseEvent(at=1.0, name="faults", detail="3 planned"))
    console(progress(100, ["jitter(kafka-1)", "kill(kafka-2)", "pause(kafka-3)"]))
    console(progress(200, []))
    console(NoBite(at=2.0, fault="sever", reason="nothing was cut"))
    console(progress(300, ["jitter(kafka-1)"], at=3.0))

    screen = terminal.screen
    assert screen[:2] == ["   1.0  == faults: 3 planned", "   2.0  sever did NOT bite: nothing was cut"]
    shown = " ".join(line.strip() for line in screen[2:])
    assert shown.startswith("3.0  faults: 300 acknowledged")
    assert shown.endswith("4 not yet stable; jitter(kafka-1)")
    assert "100 acknowledged" not in "\n".join(screen)
    assert all(len(line) < 60 for line in screen)

    console(PhaseEvent(at=4.0, name="heal"))
    assert [line for line in terminal.screen if line][2:] == ["   4.0  == heal"]
    assert terminal.cursor, "a run that ends in an error leaves the cursor shown"


def test_plain_output_has_a_progress_line_every_few_seconds_and_no_colour() -> None:
    out = io.StringIO()
    console = Console(out)
    console(progress(100, [], at=0.0))
    console(progress(200, [], at=1.0))
    console(progress(300, [], at=6.0))
    console(verdict())

    assert "\x1b" not in out.getvalue()
    assert "200 acknowledged" not in out.getvalue(), "a line every few seconds is enough for a log"
    assert out.getvalue().count("acknowledged") == 2
    assert out.getvalue().endswith("INVALID, NOT as expected\n")


def test_a_long_line_is_not_cut_or_wrapped() -> None:
    out = io.StringIO()
    reason = "word " * 200 + "[end]"
    Console(out)(NoBite(at=2.0, fault="sever", reason=reason))
    assert out.getvalue() == f"   2.0  sever did NOT bite: {reason}\n"


def test_a_terminal_in_ci_has_plain_progress_lines(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    console = Console(terminal)
    for at in range(7):
        console(progress(at, [], at=at))
    assert [line.split()[2] for line in terminal.screen if line] == ["0", "5"]
    assert "\x1b" not in terminal.getvalue()


def test_no_color_turns_colour_off_on_a_terminal(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    Console(terminal)(verdict())
    assert "\x1b[1;31mINVALID\x1b[0m" in terminal.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    Console(plain)(verdict())
    assert "\x1b" not in plain.getvalue()


def verdict() -> VerdictEvent:
    return VerdictEvent(
        verdict="invalid",
        expected=False,
        exit_code=1,
        text="lost: 1\nINVALID\n",
        directory="runs/x",
        replay="eos run x --seed 1",
    )
