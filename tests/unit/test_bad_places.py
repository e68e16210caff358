"""Places that a command cannot use: each is an error with a hint, and nothing is left behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.base.errors import ExitCode
from harness.cli.main import main

WITH_STATE = (
    "status",
    "up",
    "down",
    "doctor",
    "heal",
    "facts",
    "audit",
    "logs kafka-1",
    "tool topics --list",
)
OF_RUNS = ("check", "report", "diagram", "shrink", "walkthrough", "late")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder: it has a file, an empty folder, and a folder with a foreign file."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EOS_STATE", raising=False)
    return tmp_path


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def error_of(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must end with a usage error; return its message."""
    monkeypatch.setattr(sys, "argv", ["eos", *line.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    output = capsys.readouterr().err
    assert ended.value.code == ExitCode.USAGE, output
    message, hint = output.split("\n\nhint: ")
    assert hint.strip()
    return message.removeprefix("error: ")


NO_STATE = [
    (command, *wrong)
    for command in WITH_STATE
    for wrong in (
        ("file", "is a file"),
        ("file/deeper", "is a file"),
        ("x" * 5000, "file name too long"),
        ("foreign", "is not a state directory"),
    )
]


@pytest.mark.parametrize("case", NO_STATE, ids=[f"{command}-{state}"[:25] for command, state, _ in NO_STATE])
def test_a_place_that_cannot_be_a_state_directory_is_refused(
    place: Path,
    case: tuple[str, str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command, state, problem = case
    before = everything(place)
    name, *arguments = command.split()
    message = error_of(" ".join([name, "--state", state, *arguments]), monkeypatch, capsys)
    assert problem in message
    assert len(message) < 400
    assert everything(place) == before


@pytest.mark.parametrize("command", OF_RUNS)
@pytest.mark.parametrize("directory", ["none", "file", "empty", "foreign", "x" * 5000])
def test_a_place_that_is_no_run_is_refused(
    place: Path,
    command: str,
    directory: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = everything(place)
    assert error_of(f"{command} {directory}", monkeypatch, capsys)
    assert everything(place) == before


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("run jitter --runs file", "file is a file"),
        ("run jitter --runs /proc/x", "--runs /proc/x is not writable"),
        ("run jitter --runs none/deeper --junit none/out.xml", "--junit none/out.xml cannot be written"),
        ("run jitter --junit empty", "--junit empty cannot be written"),
        ("run jitter --junit /proc/out.xml", "--junit /proc is not writable"),
        ("run jitter --state /proc/x", "--state /proc/x is not writable"),
        ("up --state /proc/x", "--state /proc/x is not writable"),
        ("run jitter --tries 3", "--tries: jitter is not a walkthrough"),
        ("run jitter --dry-run", "need --cluster"),
        ("run jitter --cluster none.toml", "there is no file none.toml"),
        ("new /proc/x.toml", "FILE /proc is not writable"),
        ("index none", "none holds no run"),
        ("results none", "none cannot be read"),
        ("compare none empty", "none is not the directory of a run"),
        ("verify --bootstrap localhost:1 --topic x --ledger none", "none"),
    ],
)
def test_other_places_that_cannot_be_used_are_refused(
    place: Path, line: str, problem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = everything(place)
    assert problem in error_of(line, monkeypatch, capsys)
    assert everything(place) == before


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "runs/x"), 2, "runs/x cannot be written: no space"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "the output cannot be written: no space"),
        (PermissionError(errno.EACCES, "Permission denied", "a"), 4, "a cannot be used: permission denied"),
        (OSError(errno.EROFS, "Read-only file system", "a"), 4, "a cannot be used: read-only file system"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "a"), 4, "a cannot be used: is a directory"),
    ],
)
def test_an_error_of_the_system_about_a_place_has_a_hint(
    error: OSError, code: int, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr("harness.scenario.shipped", fails)
    monkeypatch.setattr(sys, "argv", ["eos", "list"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    output = capsys.readouterr().err
    assert text in output
    assert "hint: " in output
    assert "Traceback" not in output


def test_a_full_output_is_not_reported_as_a_bug() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "harness", "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ},
        )
    assert done.returncode == ExitCode.UNKNOWN
    assert "the output cannot be written: no space left on device" in done.stderr
    assert "Traceback" not in done.stderr
