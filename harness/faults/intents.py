"""Intents of a cluster on disk. An intent is a record of an injection, written before the injection.

The intents are in files in <state>/intents/, in the format of docs/history-format.md. Each process that
injects or heals faults has its own file, so two processes never write to the same file. When a fault has been
healed, the process writes a line `healed` with the id of the intent. An intent is unhealed if no file
contains a `healed` line with its id.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.cluster.external.created_resources import NOTES
from harness.cluster.state_directory import State
from harness.evidence.history import FaultLine, HistoryWriter, history_files


def open_journal(state: State) -> HistoryWriter:
    """Open a new file for the intents that this process writes."""
    client = f"faults-{os.getpid()}-{time.time_ns()}"
    return HistoryWriter(state.intents / f"{client}.jsonl", run=state.path.name, client=client, role="faults")


@contextmanager
def journal_in(state: State, path: Path, run: str) -> Iterator[HistoryWriter]:
    """Open the file `path` in the run directory for the intents of a run.

    A symbolic link in the state directory points to this file, so that `eos heal` finds the intents.
    """
    state.intents.mkdir(parents=True, exist_ok=True)
    client = f"faults-{run}"
    with HistoryWriter(path, run=run, client=client, role="faults") as journal:
        (state.intents / f"{client}.jsonl").symlink_to(path.resolve())
        yield journal


def unhealed(state: State) -> list[FaultLine]:
    """Return the unhealed intents of a cluster, oldest first."""
    return fold(state.intents)


def has_leftovers(folder: Path) -> bool:
    """Return whether any external cluster needs a cleanup.

    `folder` contains the state directories of these clusters. A cluster needs a cleanup if it has unhealed
    intents, or topics or groups that a run created.
    """
    states = [State(path) for path in folder.glob("*") if path.is_dir()]
    return any(unhealed(state) or any((state.path / note).exists() for note in NOTES) for state in states)


def fold(folder: Path) -> list[FaultLine]:
    """Return the unhealed intents in the files of a folder, oldest first.

    An intent is unhealed if no file in the folder contains a `healed` line with its id.
    """
    intents: dict[str, FaultLine] = {}
    healed: set[str] = set()
    for file in history_files(folder) if folder.exists() else []:
        if not file.path.exists():
            continue  # the symbolic link points to a run directory that no longer exists
        for _, line in file.read():
            if isinstance(line, FaultLine):
                if line.stage == "intent":
                    intents[line.id] = line
                elif line.stage == "healed":
                    healed.add(line.id)
    return sorted((line for ident, line in intents.items() if ident not in healed), key=lambda f: f.wall)
