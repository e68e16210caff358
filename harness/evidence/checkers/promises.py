"""Promises of a run: the clients, witnesses, faults and limits that its manifest lists.

The manifest repeats what clients.json, expect.json and limits.json contain. So if a file and its line in the
manifest are both gone, the manifest still names the client, the witness or the limit that is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.base.unreadable import printable
from harness.evidence import client_list
from harness.evidence.checkers.model import Expect
from harness.evidence.checkers.verdict import Limit
from harness.evidence.client_list import ClientList
from harness.evidence.history import history_files
from harness.evidence.manifest import NAME, Promises
from harness.evidence.run_directory import RunDirectory, RunInfo


def promises_of(run: RunDirectory) -> Promises:
    """Return what the files of a run promise now. Raise UsageError if one of them cannot be read."""
    expect = run.read("expect.json", Expect)
    started = run.read(client_list.FILE, ClientList, ClientList(run="", clock=""))
    limits: list[Limit] = run.read("limits.json", list[Limit], [])
    histories = {file.name for file in history_files(run.histories)}
    return Promises(
        clients=[client.name for client in started.clients if client.name in histories],
        witnesses=expect.witnesses,
        faults=expect.faults,
        limits=[limit.name for limit in limits],
    )


def broken_promises(run: RunDirectory, promised: Promises) -> list[str]:
    """Return one sentence for each difference between the manifest's promises and the files of the run."""
    kept = promises_of(run)
    sources = {
        "client": (promised.clients, kept.clients, f"{client_list.FILE} and the histories do"),
        "witness": (promised.witnesses, kept.witnesses, "expect.json does"),
        "limit": (promised.limits, kept.limits, "limits.json does"),
    }
    differences = [text for kind, source in sources.items() for text in _differences(kind, *source)]
    if promised.faults != kept.faults:
        differences.append(f"{NAME} promises {promised.faults} faults, but expect.json {kept.faults}")
    return differences


def _differences(kind: str, promised: Sequence[str], kept: Sequence[str], source: str) -> list[str]:
    gone = [name for name in promised if name not in kept]
    new = [name for name in kept if name not in promised]
    return [
        *(f"{NAME} promises {kind} {printable(name)}, but {source} not" for name in gone),
        *(f"{NAME} does not promise {kind} {printable(name)}, but {source}" for name in new),
    ]


def foreign_plans(run: RunDirectory, info: RunInfo) -> list[str]:
    """Return one sentence for each of the files that describe the plan if it belongs to another run."""
    names = run.read("names.json", dict[str, Any])
    scenario = run.read("scenario.json", dict[str, Any]).get("scenario")
    found = {
        "names.json": ("run", info.run, names.get("run")),
        "plan.json": ("seed", info.seed, run.read("plan.json", dict[str, Any]).get("seed")),
        "scenario.json": (
            "scenario",
            info.scenario,
            scenario.get("name") if isinstance(scenario, dict) else None,
        ),
    }
    return [
        f"{name} has the {key} {value!r:.40}, but run.json names the {key} {expected!r}"
        for name, (key, expected, value) in found.items()
        if value != expected
    ]
