"""`make PYTHON=...` with a virtual environment that exists."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.provision.paths import checkout_dir


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a stand-in for a checkout: its environment is ready, and its `eos` prints its arguments."""
    root = checkout_dir()
    assert root is not None
    shutil.copy(root / "Makefile", tmp_path)
    (tmp_path / "scripts").mkdir()
    shutil.copy(root / "scripts" / "make-venv.sh", tmp_path / "scripts")
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    (tools / "python").symlink_to(sys.executable)
    (tools / "eos").write_text('#!/bin/sh\necho eos "$@"\n')
    (tools / "eos").chmod(0o755)
    for name in ("requirements.lock", "pyproject.toml", ".venv/.ready"):
        (tmp_path / name).touch()
    return tmp_path


def make(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `make` without the variables of the `make` that may run these tests."""
    outer = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "BACKEND", "PYTHON")
    command = ["make", "-C", str(checkout), *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


@pytest.mark.parametrize("arguments", [(), (f"PYTHON={sys.executable}",)])
def test_the_python_of_the_environment_is_accepted(checkout: Path, arguments: tuple[str, ...]) -> None:
    done = make(checkout, "demo", *arguments)
    assert done.returncode == 0, done.stderr
    assert "eos demo --backend auto" in done.stdout


def test_another_python_is_refused_instead_of_ignored(checkout: Path) -> None:
    other = checkout / "other"
    is_other = 'case "$2" in *base_prefix*) echo 3.99.1 in /other; exit;; esac'
    other.write_text(f'#!/bin/sh\n{is_other}\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    done = make(checkout, "demo", f"PYTHON={other}")
    assert done.returncode == 2
    assert f"error: .venv was made with Python {sys.version.split()[0]} in" in done.stderr
    assert "hint: leave out PYTHON, or make a new one: rm -r .venv" in done.stderr
    assert "eos demo" not in done.stdout


def test_a_python_that_is_missing_is_refused(checkout: Path) -> None:
    done = make(checkout, "demo", "PYTHON=python-that-is-missing")
    assert done.returncode == 2
    assert "error: no python-that-is-missing on PATH" in done.stderr
