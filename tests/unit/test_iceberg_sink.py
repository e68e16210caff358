"""The reader of Iceberg's table prints the rows that the contract needs."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "apps" / "iceberg"
OFFSETS = "kafka.connect.offsets.connect-1a2b3c4d-control.sink.1a2b3c4d"


class Status(Enum):
    EXISTING = 0
    ADDED = 1


@dataclass
class Entry:
    path: str
    snapshot_id: int
    status: Status = Status.ADDED

    @property
    def data_file(self) -> SimpleNamespace:
        return SimpleNamespace(file_path=self.path)


@dataclass
class Snapshot:
    """A snapshot with the entries of its manifests, as PyIceberg reads them."""

    snapshot_id: int
    control_offset: int | None
    entries: list[Entry] = field(default_factory=list)

    @property
    def sequence_number(self) -> int:
        return self.snapshot_id

    @property
    def summary(self) -> SimpleNamespace:
        offsets = {} if self.control_offset is None else {OFFSETS: json.dumps({"0": self.control_offset})}
        return SimpleNamespace(additional_properties={"kafka.connect.task-id": "copy-0", **offsets})

    def manifests(self, _: Any) -> list[SimpleNamespace]:
        return [SimpleNamespace(fetch_manifest_entry=lambda _: self.entries)]


def table_of(*snapshots: Snapshot) -> SimpleNamespace:
    return SimpleNamespace(metadata=SimpleNamespace(snapshots=list(snapshots)), io=None)


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "pyiceberg", ModuleType("pyiceberg"))
    manifest = ModuleType("pyiceberg.manifest")
    manifest.ManifestEntryStatus = Status  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyiceberg.manifest", manifest)
    spec = importlib.util.spec_from_file_location("sink", FOLDER / "sink.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("stack", None)


def steps_back(rows: list[dict[str, Any]]) -> int:
    """Return what the contract's aggregate over the snapshots is."""
    (output,) = [
        each
        for each in tomllib.loads((FOLDER / "iceberg.toml").read_text())["output"]
        if each["table"] == "snapshots"
    ]
    assert output["conserve"]["inputs"] == "0"
    values = ", ".join(f"({row['control_offset'] or 'null'}, {row['before']})" for row in rows)
    query = f"select {output['conserve']['outputs']} from o"
    with sqlite3.connect(":memory:") as database:
        database.execute("create table o (control_offset, before)")
        database.execute(f"insert into o values {values}")
        return int(database.execute(query).fetchone()[0])


def test_a_file_of_two_snapshots_is_printed_twice(sink: ModuleType) -> None:
    first = Snapshot(1, 10, [Entry("a", 1), Entry("b", 1)])
    second = Snapshot(2, 20, [Entry("a", 1, Status.EXISTING), Entry("c", 2), Entry("b", 2)])
    rows = [(row["snapshot"], row["file"]) for row in sink.files(table_of(first, second))]
    assert rows == [("1", "a"), ("1", "b"), ("2", "c"), ("2", "b")]


@pytest.mark.parametrize(
    ("offsets", "found"),
    [([10, 20, 30], 0), ([10, 20, 20], 1), ([10, 30, 20, 25], 2), ([10, None, 30], 1)],
    ids=["later", "the same", "earlier", "none"],
)
def test_the_contract_counts_snapshots_that_are_not_later(
    sink: ModuleType, offsets: list[int | None], found: int
) -> None:
    snapshots = [Snapshot(number, offset) for number, offset in enumerate(offsets, 1)]
    rows = list(sink.snapshots(table_of(*reversed(snapshots))))
    assert [row["control_offset"] for row in rows] == offsets, "in the order of their sequence numbers"
    assert steps_back(rows) == found


def test_a_worker_without_a_database_gives_up(
    sink: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sink.await_port.__globals__, "START_LIMIT_S", 0)
    with pytest.raises(SystemExit, match="there is no database after 0 s; look at the log of the first"):
        sink.run_worker(tmp_path)
