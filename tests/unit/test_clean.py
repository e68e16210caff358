"""Removal of local files by `make clean`, even if the record of the local cluster is damaged.

The state directory of an external cluster is kept while it lists an unhealed fault or a created topic.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cluster.external.created_resources import TOPICS
from harness.cluster.state_directory import State
from harness.faults.intents import open_journal
from harness.provision.paths import checkout_dir

EOS = """#!/bin/sh
echo "$@" >> called
case "$*" in *--force*) exit 0;; esac
exit {code}
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a stand-in for a checkout, with files of a cluster, a run and an external cluster.

    Its `eos` command only records its arguments.
    """
    (tmp_path / "scripts").mkdir()
    shutil.copy(checkout_dir() / "scripts" / "clean.sh", tmp_path / "scripts")
    tools = tmp_path / "venv" / "bin"
    tools.mkdir(parents=True)
    python = f'#!/bin/sh\nPYTHONPATH="{checkout_dir()}" exec "{sys.executable}" "$@"\n'
    for name, text in (("eos", EOS.format(code=0)), ("python", python)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    for folder in (".eos", "runs", ".eos-external/abc", "kept-logs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / ".eos" / "cluster.json").write_text("{}")
    return tmp_path


def clean(checkout: Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(checkout / "scripts" / "clean.sh"), "venv"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def left(checkout: Path) -> set[str]:
    return {path.name for path in checkout.iterdir()} - {"called", "scripts"}


def test_everything_made_in_the_checkout_is_removed(checkout: Path) -> None:
    assert clean(checkout).returncode == 0
    assert left(checkout) == set()
    assert (checkout / "called").read_text() == "down --state .eos\n"


def test_a_damaged_record_is_taken_down_by_force(checkout: Path) -> None:
    (checkout / "venv" / "bin" / "eos").write_text(EOS.format(code=4))
    assert clean(checkout).returncode == 0
    assert left(checkout) == set()
    assert (checkout / "called").read_text().splitlines()[1] == "down --force --state .eos"


@pytest.mark.parametrize("what", ["fault", "topic"])
def test_notes_on_an_external_cluster_stay(checkout: Path, what: str) -> None:
    state = State(checkout / ".eos-external" / "abc")
    if what == "topic":
        (state.path / TOPICS).write_text("eos-orders\n")
    else:
        with open_journal(state) as journal:
            journal.fault_intent("jitter", "one", ["b"], params={}, undo={"steps": []})

    done = clean(checkout)

    assert done.returncode == 0
    assert "eos heal --cluster" in done.stderr
    assert left(checkout) == {".eos-external", "runs"}
