"""The console of a run: plain lines, or lines above a live progress paragraph."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.base.events import Injected, NoBite, PhaseEvent, ProgressEvent, Started, VerdictEvent
from harness.evidence.run_directory import PropertySummary, Summary
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
    assert "\nINVALID, NOT as expected: 0 s\nreport: runs/x/report.html\n" in out.getvalue()


def test_a_long_line_is_not_cut_or_wrapped() -> None:
    out = io.StringIO()
    reason = "word " * 200 + "[end]"
    Console(out)(NoBite(at=2.0, fault="sever", reason=reason))
    assert out.getvalue() == f"   2.0  sever did NOT bite: {reason}\n"


@pytest.mark.parametrize("verbose", [False, True])
def test_only_a_terminal_without_verbose_cuts_the_measurement_of_a_fault(
    terminal: Terminal, *, verbose: bool
) -> None:
    event = Injected(at=2.0, fault="kill", names=["kafka-1"], bite={"why": "word " * 40 + "end"}, took_s=1.0)
    plain = io.StringIO()
    Console(plain, verbose=verbose)(event)
    Console(terminal, verbose=verbose)(event)
    assert "end" in plain.getvalue()
    assert ("end" in terminal.getvalue()) is verbose


def summary(**fields: Any) -> Summary:
    return Summary(
        **{
            "run": "ab12cd34",
            "scenario": "jitter",
            "seed": 7,
            "started": "2026-11-19T10:00:00",
            "verdict": "valid",
            "exit_code": 0,
            "operations": 10,
            "records": 39297,
            "witnesses": ["reader"],
            "anomalies": {},
            "permitted": {},
            "properties": {},
            "limits": {},
            "reasons": [],
            "notes": [],
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "VALID, as expected: no anomaly; 39297 records, 3 transactions, 1 fault that bit, 43 s"),
        (
            {"verdict": "invalid", "anomalies": {"lost": 2, "duplicate": 50}},
            "INVALID, as expected: duplicate 50, lost 2; ",
        ),
        ({"verdict": "unknown", "reasons": ["a", "b", "c"]}, "UNKNOWN, as expected: a (more reasons: 2); "),
        ({"verdict": "unknown", "reasons": ["a"]}, "UNKNOWN, as expected: a; "),
    ],
)
def test_the_last_lines_are_a_sentence_with_numbers_the_report_and_the_next_step(
    tmp_path: Path, fields: dict[str, Any], sentence: str
) -> None:
    (tmp_path / "summary.json").write_bytes(msgspec.json.encode(summary(**fields)))
    ending = verdict(verdict=fields.get("verdict", "valid"), expected=True, at=43.2, directory=str(tmp_path))
    for quiet in (False, True):
        out = io.StringIO()
        console = Console(out, quiet=quiet)
        console(Started(scenario="x", run="r", seed=1, directory="d", environment={}, lasts_s=30.0))
        console(Injected(at=2.0, fault="kill", names=["kafka-1"], bite={}, took_s=1.0))
        console(progress(100, []))
        console(ending)
        *_, verdict_line, report, following, replay = ["", "", "", *out.getvalue().splitlines()]
        if quiet:
            verdict_line, report = following, replay
            assert len(out.getvalue().splitlines()) == 2
        else:
            assert following.startswith("next:   ")
            assert replay == "replay: eos run x --seed 1"
        assert verdict_line.startswith(sentence)
        assert report == f"report: {tmp_path}/report.html"


@pytest.mark.parametrize(("kills", "counts"), [(0, "28 s"), (1, "1 fault that bit, 28 s")])
def test_the_last_line_of_a_walkthrough_counts_its_faults_and_no_transactions(
    tmp_path: Path, kills: int, counts: str
) -> None:
    (tmp_path / "summary.json").write_bytes(msgspec.json.encode(summary(records=318)))
    out = io.StringIO()
    console = Console(out, quiet=True)
    console(Started(scenario="w", run="r", seed=1, directory=str(tmp_path), environment={}))
    for _ in range(kills):
        console(Injected(at=2.0, fault="kill", names=["kafka-1"], bite={}, took_s=1.0))
    console(verdict(verdict="valid", expected=True, at=28.4, directory=str(tmp_path)))

    assert out.getvalue().startswith(f"VALID, as expected: no anomaly; 318 records, {counts}\n")


@pytest.mark.parametrize(
    ("found", "expected", "following"),
    [
        ("invalid", False, "after-invalid"),
        ("unknown", False, "after-unknown"),
        ("invalid", True, "eos index"),
    ],
)
def test_only_a_surprise_needs_a_search_for_its_cause(*, found: str, expected: bool, following: str) -> None:
    out = io.StringIO()
    Console(out)(verdict(verdict=found, expected=expected))
    assert following in out.getvalue().partition("next:")[2]


def test_progress_shows_how_much_of_the_plan_is_done() -> None:
    out = io.StringIO()
    console = Console(out)
    console(Started(scenario="x", run="r", seed=1, directory="d", environment={}, faults=3, lasts_s=30.0))
    console(PhaseEvent(at=5.0, name="faults"))
    console(NoBite(at=6.0, fault="sever", reason="nothing was cut"))
    console(progress(100, [], at=17.0))
    assert "faults 12 of 30 s, 1 of 3 faults: 100 acknowledged" in out.getvalue()
    console(progress(200, [], at=44.0))
    assert "faults 30 of 30 s and 9 s more, 1 of 3 faults: 200 acknowledged" in out.getvalue()


def test_a_terminal_breaks_lines_between_words(terminal: Terminal) -> None:
    console = Console(terminal)
    console(NoBite(at=2.0, fault="sever", reason="a reason of many words " * 5))
    lines = [line for line in terminal.screen if line]
    assert len(lines) == 3
    assert all(len(line) < 60 for line in lines)
    assert all(line.startswith(" " * 8) for line in lines[1:])
    assert (
        " ".join(line.strip() for line in lines).split()[1:]
        == f"sever did NOT bite: {'a reason of many words ' * 5}".split()
    )


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


def verdict(**fields: Any) -> VerdictEvent:
    return VerdictEvent(
        **{
            "verdict": "invalid",
            "expected": False,
            "exit_code": 1,
            "text": "lost: 1\nINVALID\n",
            "directory": "runs/x",
            "replay": "eos run x --seed 1",
            **fields,
        }
    )


@pytest.mark.parametrize(("exit_code", "shown"), [(3, True), (1, False), (2, False)])
def test_an_exceeded_limit_that_determines_the_exit_code_is_explained(*, exit_code: int, shown: bool) -> None:
    for quiet in (False, True):
        out = io.StringIO()
        Console(out, quiet=quiet)(verdict(exit_code=exit_code, breaches=["nothing moved, so wait longer"]))
        assert ("\nlimit:  exit code 3: nothing moved, so wait longer\n" in out.getvalue()) == shown


def test_the_last_lines_of_an_application_name_whose_transactions_they_count(tmp_path: Path) -> None:
    properties = {
        name: PropertySummary(verdict="valid", compared=597, unit="x") for name in ("contract", "atomicity")
    }
    (tmp_path / "summary.json").write_bytes(msgspec.json.encode(summary(properties=properties)))
    (tmp_path / "app.json").write_text("{}")
    out = io.StringIO()
    console = Console(out)
    console(Started(scenario="x", run="r", seed=1, directory="d", environment={}, lasts_s=30.0))
    console(verdict(verdict="valid", expected=True, directory=str(tmp_path)))
    assert "597 transactions of the inputs, 0 faults" in out.getvalue()
    assert "docs/application.md has what follows" in out.getvalue().partition("next:")[2]
