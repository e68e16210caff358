"""The directory of a run, written so that a crash at any moment leaves something to read.

    runs/<scenario>/<time>-<seed>/
        run.json            which run this is, by which versions; written first
        scenario.json       the scenario with the changes of --set
        plan.json           the drawn timetable of faults
        names.json          the prefix and the run id that the names of topics and groups carry
        expect.json         what the run promised to check
        limits.json         what was measured against limits
        history/*.jsonl     one file per client process
        observations/*/     one directory per witness
        verdict.json        the whole judgement, with its evidence
        summary.json        the short of it, of a published schema; written last
    runs/<scenario>/latest  link to the newest run

Files other than histories appear whole or not at all: they are written beside and renamed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from harness.base.errors import UsageError
from harness.base.secrets import redact_bytes
from harness.evidence import log_line

FORMAT: Final = 1

T = TypeVar("T")


class RunInfo(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which run a directory holds."""

    format: int = FORMAT
    run: str
    scenario: str
    seed: int
    started: str
    environment: dict[str, Any] = {}


class PropertySummary(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One property: its verdict, and how many things were compared for it."""

    verdict: str
    compared: int
    unit: str


class LimitSummary(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One limit: what was measured, and whether it held."""

    measured: float
    limit: float
    unit: str
    held: bool


class Summary(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The short of a run, for programs: harness/evidence/schemas/summary.schema.json."""

    format: int = FORMAT
    run: str
    scenario: str
    seed: int
    started: str
    verdict: str
    exit_code: int
    operations: int
    records: int
    witnesses: list[str]
    anomalies: dict[str, int]
    permitted: dict[str, int]
    properties: dict[str, PropertySummary]
    limits: dict[str, LimitSummary]
    reasons: list[str]
    notes: list[str]


def schema_text() -> str:
    """Return the JSON schema of summary.json."""
    return log_line.schema_text(f"The summary of a run, format {FORMAT}", Summary)


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, finds the old content or the new and nothing between."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("wb") as file:
        file.write(redact_bytes(data))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


class RunDirectory:
    """A run on disk, while it is written and when it is read again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, root: Path, info: RunInfo) -> RunDirectory:
        """Make the directory of a new run and point `latest` to it."""
        path = root / info.scenario / f"{info.started.replace(':', '')}-{info.seed}"
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise UsageError(
                f"the run directory {path} exists already",
                "two runs of one scenario started in the same second with the same seed: start again",
            ) from None
        for name in ("history", "observations"):
            (path / name).mkdir()
        run = cls(path)
        run.write("run.json", info)
        link = path.parent / f".latest.{os.getpid()}"
        link.symlink_to(path.name)
        link.replace(path.parent / "latest")
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open a run that was written before, by its directory or by a link to it."""
        if not (path / "run.json").exists():
            raise UsageError(
                f"{path} holds no run: there is no run.json in it",
                "name a directory such as runs/<scenario>/latest",
            )
        return cls(path)

    @property
    def histories(self) -> Path:
        """Where client processes write their histories."""
        return self.path / "history"

    @property
    def observations(self) -> Path:
        """Where witnesses write what they read."""
        return self.path / "observations"

    def write(self, name: str, value: msgspec.Struct | dict[str, Any] | list[Any] | str | bytes) -> None:
        """Write one file of the run, whole or not at all."""
        if isinstance(value, str):
            value = value.encode()
        data = value if isinstance(value, bytes) else msgspec.json.format(msgspec.json.encode(value)) + b"\n"
        write_atomic(self.path / name, data)

    def read(self, name: str, kind: type[T], default: T | None = None) -> T:
        """Read one file of the run, or the default when it was never written."""
        path = self.path / name
        if not path.exists() and default is not None:
            return default
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except (OSError, msgspec.DecodeError) as error:
            raise UsageError(
                f"{path} cannot be read: {error}",
                "the run died before it was written, or the file was changed since",
            ) from error
