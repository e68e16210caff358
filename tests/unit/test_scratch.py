"""Temporary folders: none stays behind, whether its process ends, fails or is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.base.scratch import scratch_folder

HOLD = """
import sys
from harness.base.scratch import scratch_until_exit
folder = scratch_until_exit("test")
(folder / "library.so").write_text("x")
print(folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that is used instead of /tmp."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def holder(temporary: Path) -> subprocess.Popen[str]:
    """Start a process that holds a folder until its standard input is closed."""
    environment = {**os.environ, "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    assert (folder / "library.so").exists()
    return process


def end(process: subprocess.Popen[str]) -> int:
    process.communicate(timeout=60)
    return process.returncode


def test_a_folder_is_removed_at_the_end_of_its_block_even_after_an_error(temporary: Path) -> None:
    def fail() -> None:
        with scratch_folder("test") as folder:
            (folder / "file").write_text("x")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(temporary.iterdir()) == []


def test_a_process_that_ends_leaves_no_folder(temporary: Path) -> None:
    assert end(holder(temporary)) == 0
    assert list(temporary.iterdir()) == []


def test_the_next_folder_removes_that_of_a_killed_process(temporary: Path) -> None:
    killed = holder(temporary)
    killed.send_signal(signal.SIGKILL)
    assert end(killed) == -signal.SIGKILL
    assert len(list(temporary.iterdir())) == 1
    with scratch_folder("test") as folder:
        assert list(temporary.iterdir()) == [folder]
    assert list(temporary.iterdir()) == []


def test_a_folder_in_use_or_of_another_program_stays(temporary: Path) -> None:
    used = holder(temporary)
    foreign = temporary / "eos-other-program"
    foreign.mkdir()
    linked = temporary / "eos-test-linked"
    linked.symlink_to(temporary.parent)
    with scratch_folder("test"):
        assert len(list(temporary.iterdir())) == 4
    assert len(list(temporary.iterdir())) == 3
    assert end(used) == 0
    assert sorted(temporary.iterdir()) == [foreign, linked]
