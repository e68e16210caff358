"""The part of a run's ledger that a verification of some topics can check, and a list of the rest.

`eos verify` reads the topics that the user names. It checks these with the same expectations as `eos check`.
What it cannot check is listed, so that no result covers more than was read.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np

from harness.base.errors import HarnessError, UsageError, describe_error
from harness.base.strict_toml import meant
from harness.evidence import client_list, manifest
from harness.evidence.checkers.model import Evidence, Expect, Pipeline
from harness.evidence.checkers.promises import broken_promises
from harness.evidence.checkers.verdict import properties_of
from harness.evidence.client_list import ClientList
from harness.evidence.history import history_files
from harness.evidence.ledger import Ledger, fold
from harness.evidence.run_directory import RunDirectory, RunInfo

OF_TOPICS: Final = ("exactly_once", "atomicity", "order", "offsets", "pipeline", "fencing", "coverage")
"""Properties of the records in topics. `eos verify` checks those that apply to the run."""

_ONLY_CHECK: Final = {
    "liveness": "liveness: the histories of the run show it, not its topics",
    "consumers": "consumers: the histories of the run show what its consumers read, not its topics",
    "log_ends": "log_ends: only the directory of the run has the earlier ends of its partitions",
    "aggregates": "aggregates: only the witnesses of the run read the changelog",
    "contract": "contract: the outputs of an application contain tokens, which `eos check` compares",
    "walkthrough": "walkthrough: its steps have evidence only in the directory of the run",
    "fencing": "fencing by epochs: only the raw log of the run has the epochs",
    "second_opinion": "second_opinion: only the raw log of the run has the markers and the labels of records",
    "audit": "audit: only the directory of the run has the coordinators' logs; `eos audit` reads them again",
}
"""Why a property that `eos check` checks is not checked here."""

_DAMAGE: Final = (OSError, ValueError, KeyError, IndexError, TypeError, OverflowError, msgspec.MsgspecError)


class RecordedRun(NamedTuple):
    """The parts of a run's directory that a verification uses.

    These are the id of the run, its histories, its expectations, and its list of clients.
    """

    run: str
    history: Path
    expect: Expect
    clients: ClientList | None


def open_run(path: Path) -> RecordedRun:
    """Return the recorded run in a directory.

    Raise UsageError if it is not the directory of a run. Raise HarnessError if the files of the run differ
    from its manifest; the result of a verification would be unknown, as that of `eos check` is.
    """
    directory = RunDirectory.open(path)
    try:
        listed = manifest.read(directory)
        damage = manifest.find_damage(directory, listed) or broken_promises(directory, listed.promised)
    except HarnessError as error:
        damage = [error.message]
    if damage:
        raise HarnessError(
            f"the run in {path} is damaged, so the result is unknown: {'; '.join(damage[:3])}",
            f"`eos check {path}` lists all damage; without --ledger, the topics are checked alone",
        )
    run = directory.read("run.json", RunInfo).run
    has_clients = (directory.path / client_list.FILE).exists()
    clients = directory.read(client_list.FILE, ClientList) if has_clients else None
    return RecordedRun(run, directory.histories, directory.read("expect.json", Expect), clients)


@dataclass
class Selection:
    """The ledger of the named topics, the expectations that can be checked, and the list of the rest."""

    run: str
    ledger: Ledger
    expect: Expect
    unchecked: list[str]


def select_topics(
    history: Path,
    expect: Expect | None,
    topics: Collection[str],
    run: str = "",
    clients: ClientList | None = None,
) -> Selection:
    """Fold the histories of a run, and select what can be checked with these topics alone.

    `expect` contains the expectations of the run, and `clients` is the list of its clients. If `run` is
    given, the histories must belong to this run. Raise UsageError if the histories are damaged or belong to
    another run, or if a topic is not in the ledger.
    """
    ledger = read_ledger(history, clients)
    owner = _run_of(ledger, run)
    known = sorted({topic for topic, _ in ledger.places})
    for topic in topics:
        if topic not in known:
            hint = meant(topic, known) or f"the ledger has the topics {', '.join(known) or '(none)'}"
            raise UsageError(f"topic {topic!r} is not in the ledger of run {owner}", hint)
    left_out = [topic for topic in known if topic not in topics]
    unchecked = [f"topic {topic} of the ledger: it was not named" for topic in left_out]
    pipeline = expect.pipeline if expect else None
    if pipeline and (missing := [t for t in _output_topics(ledger, pipeline) if t not in topics]):
        unchecked.append(f"pipeline: its outputs are in {', '.join(missing)}, which was not named")
        pipeline = None
    recorded = expect or Expect()
    part = restrict(_with_producers_of(ledger, topics), topics)
    wanted = properties_of(Evidence(part, [], recorded))
    properties = [name for name in wanted if name in OF_TOPICS and (pipeline or name != "pipeline")]
    if not (len(part.acks) or pipeline or "offsets" in recorded.properties):
        properties.remove("offsets")  # one reader alone reports offsets, so nothing can be compared
    if expect:
        unchecked += _left_to_eos_check(expect, wanted, properties)
    narrowed = msgspec.structs.replace(
        recorded, properties=properties, pipeline=pipeline, witnesses=[], audit=False
    )
    return Selection(owner, restrict(ledger, topics) if left_out else ledger, narrowed, unchecked)


def read_ledger(history: Path, clients: ClientList | None = None) -> Ledger:
    """Fold the histories in a folder. Raise UsageError if there are none, or one of them is damaged."""
    files = history_files(history)
    if not files:
        raise UsageError(
            f"{history} contains no history", "pass the directory of a run: eos verify --ledger RUN"
        )
    try:
        return fold(files, clients.started, clients.finished) if clients else fold(files)
    except _DAMAGE as error:
        raise UsageError(
            f"the histories in {history} are damaged: {describe_error(error)}",
            "restore the directory of the run, or verify the topics without --ledger",
        ) from error


def _run_of(ledger: Ledger, run: str) -> str:
    runs = sorted({client.opening.run for client in ledger.clients if client.opening})
    if len(runs) != 1:
        raise UsageError(f"the histories belong to {len(runs)} runs", "pass the directory of one run")
    if run and runs != [run]:
        raise UsageError(
            f"the histories belong to run {runs[0]}, but run.json names run {run}",
            "restore the directory of the run: it contains files of another run",
        )
    return runs[0]


def _output_topics(ledger: Ledger, pipeline: Pipeline) -> list[str]:
    """Return the topics in which a pipeline may have written outputs.

    These are the topics of the clients with the role `pipeline`. If no history has this role, these are all
    topics of the ledger except the inputs.
    """
    openings = {client.name: client.opening for client in ledger.clients if client.opening}
    workers = {name for name, opening in openings.items() if opening.role == "pipeline"}
    declared = [one for one in ledger.producers.values() if not workers or one.client in workers]
    topics = {topic for one in declared for topic, _ in one.producer.lanes}
    return sorted(topics - {pipeline.changelog} - (set() if workers else set(pipeline.inputs)))


def _with_producers_of(ledger: Ledger, topics: Collection[str]) -> Ledger:
    """Return the ledger with only those producers that write to these topics, to find their properties."""
    part = copy.copy(ledger)
    part.producers = {
        number: declared
        for number, declared in ledger.producers.items()
        if any(topic in topics for topic, _ in declared.producer.lanes)
    }
    return part


def _left_to_eos_check(expect: Expect, wanted: Sequence[str], properties: Sequence[str]) -> list[str]:
    """List what `eos check` checks in addition, except the pipeline and the topics that were not named."""
    left = {name for name in wanted if name not in properties and name != "pipeline"}
    left.add("log_ends")  # it applies to every run whose witnesses froze the ends
    if "raw-log" in expect.witnesses:
        left |= {"fencing", "second_opinion"}
    left |= {"audit"} if expect.audit else set()
    unchecked = [_ONLY_CHECK.get(name, name) for name in sorted(left)]
    if len(expect.witnesses) > 1:
        witnesses = ", ".join(expect.witnesses)
        unchecked.append(
            f"agreement of the witnesses of the run ({witnesses}): one reader read the topics now"
        )
    unchecked.append("records that consumers of the run read while it ran, and the limits of the run")
    return unchecked


def restrict(ledger: Ledger, topics: Collection[str]) -> Ledger:
    """Return the ledger with only those lanes that are in these topics.

    Transactions and clients are kept. A transaction keeps only its records in these topics.
    """
    kept = np.array([topic in topics for topic, _ in ledger.places], np.bool_)
    number = np.cumsum(kept) - 1
    part = copy.copy(ledger)
    part.lanes = ledger.lanes[kept]
    part.places = [place for place, keep in zip(ledger.places, kept.tolist(), strict=True) if keep]
    intervals = ledger.intervals
    rows = kept[intervals.lane] if len(intervals.lane) else np.zeros(0, np.bool_)
    part.intervals = copy.copy(intervals)
    for name, column in vars(intervals).items():
        setattr(part.intervals, name, column[rows])
    part.intervals.lane = number[part.intervals.lane].astype(np.int32)
    part.acks = ledger.acks[kept[ledger.acks[:, 0]]].copy()
    part.acks[:, 0] = number[part.acks[:, 0]]
    return part
