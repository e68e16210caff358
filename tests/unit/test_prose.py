"""The prose check finds phrases in text and names, also across line breaks, and suggests a replacement."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.prose import check_text, tracked_files

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("text", "line", "phrase"),
    [
        ("the broker told it\n", 1, "told"),
        ("first\ndef test_not_told() -> None:\n", 2, "told"),
        ("# waits so\n# long\n", 1, "so long"),
        ("It runs so many times.\n", 1, "so many"),
        ("first line\nOf a transaction nothing is left.\n", 2, "Of a"),
        ("begun anew 3 times", 1, "begun anew"),
        ("Each broker has four doors.", 1, "doors"),
    ],
)
def test_a_phrase_is_found_with_its_line(text: str, line: int, phrase: str) -> None:
    first = next(check_text("page.md", text))

    assert (first.path, first.line, first.phrase) == ("page.md", line, phrase)
    assert first.instead


@pytest.mark.parametrize(
    "text",
    [
        "as long as it takes, as many as fit",
        "untold, outdoors, hearing, standalone, essay",
        'the log contains "Replica 1 says no"  # prose: keep\n',
    ],
)
def test_plain_text_passes(text: str) -> None:
    assert list(check_text("page.md", text)) == []


def test_pages_code_and_shipped_scenarios_are_checked() -> None:
    expected = {"README.md", "docs/spark.md", "harness/scenario/shipped/jitter.toml", "harness/run/run.py"}

    assert expected <= set(tracked_files([]))


def test_the_command_fails_and_prints_the_place(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path)]
    (tmp_path / "page.md").write_text("plain\nthe broker was told\n")
    subprocess.run([*git, "init", "--quiet"], check=True, timeout=60)
    subprocess.run([*git, "add", "page.md"], check=True, timeout=60)

    command = [sys.executable, "-m", "tools.prose"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path, env=environment
    )

    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith('page.md:2: "told": report')
    assert "\nhint: " in done.stdout
