"""The directory of a run. It remains readable after a crash at any moment.

    runs/<scenario>/<time>-<seed>/
        run.json            identity of the run and versions of the software; written first
        scenario.json       the scenario with all overrides of this run
        plan.json           the timetable of faults, drawn from the seed
        names.json          prefix and run id that the names of topics and groups contain
        expect.json         the properties to check
        clients.json        the clients that the run started, and how each of them ended
        app.json            the starts of the application under test, and how each of them ended
        audit.json          markers, positions and decisions that the search for damage compares
        limits.json         measured values and their limits
        history/*.jsonl     one file per client process
        observations/*/     one directory per witness
        rows/*.jsonl        outputs of an application that are no topic, such as calls or rows of a table
        walkthrough.json    the steps of a walkthrough with their evidence
        frames.jsonl        the frames that the wire tap relayed, if the clients used it
        frames-internal.jsonl   the frames between brokers, if the cluster has a tap there
        logsteps.jsonl      entries of the brokers' logs that no frame contains, such as transaction markers
        metrics.jsonl       metrics of brokers and clients, if the scenario asks for them
        manifest.json       every file above with size and SHA-256; written after the last witness has read
        verdict.json        the complete verdict, with its evidence
        summary.json        the summary, with a published schema
        figures.json        numbers of records by topic and over time, which report.html shows
    runs/<scenario>/latest  link to the newest run

All files except histories and logs are written atomically: to a temporary file, which is then renamed. The
files down to metrics.jsonl are the evidence, which only the run itself writes. A run directory without a
manifest is that of a run that did not finish.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from harness.base.errors import UsageError
from harness.base.secrets import redact_bytes
from harness.base.texts import shorten
from harness.base.unreadable import is_present, read_regular, readable
from harness.evidence import log_line

FORMAT: Final = 1

VERDICT_FILES: Final = ("verdict.json", "summary.json")
"""Files that contain the recorded verdict."""

OUTPUTS: Final = (*VERDICT_FILES, "figures.json")
"""Files that are computed from the evidence and are no evidence: the recorded verdict and its figures."""

T = TypeVar("T")


class RunInfo(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Identity of a run: scenario, seed, start time, environment, and the command that repeats its plan."""

    format: int = FORMAT
    run: str
    scenario: str
    seed: int
    started: str
    environment: dict[str, Any] = {}
    replay: str = ""


class PropertySummary(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The verdict on one property.

    `compared` is the number of items that the checker compared, and `unit` is the kind of these items.
    """

    verdict: str
    compared: int
    unit: str


RECOVERY: Final = "recovery"
IDLE_PHASES: Final = "phases without progress"
"""Names of the limits of a run: the time to recover, and the phases in which no record was acknowledged."""


class LimitSummary(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A measured value, its limit, and whether the value is within the limit.

    `where` names the phases in which it was exceeded, or what the run waited for in vain.
    """

    measured: float
    limit: float
    unit: str
    held: bool
    where: str = ""


class Summary(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Summary of a run for programs. Its schema is harness/evidence/schemas/summary.schema.json.

    `spark_rows` is the number of rows that Spark read, by its stream and by its batch job. It is empty if
    Spark is not a witness of the run. `spark_readers` is the reader of each batch job of Spark. The counts of
    `anomalies` and `permitted` are of distinct records, transactions or positions; `seen_by` names the
    witnesses that found them. `kafka` is the version of Kafka, or the feature level of an external cluster.
    """

    format: int = FORMAT
    run: str
    scenario: str
    seed: int
    started: str
    kafka: str = ""
    verdict: str
    exit_code: int
    operations: int
    records: int
    witnesses: list[str]
    spark_rows: dict[Literal["stream", "batch"], int] = {}
    spark_readers: dict[str, str] = {}
    anomalies: dict[str, int]
    permitted: dict[str, int]
    seen_by: dict[str, list[str]] = {}
    properties: dict[str, PropertySummary]
    limits: dict[str, LimitSummary]
    reasons: list[str]
    notes: list[str]

    @property
    def transactions(self) -> int:
        """Number of transactions that were checked, also those that no client ended."""
        checked = self.properties.get("atomicity")
        return checked.compared if checked else 0


def schema_text() -> str:
    """Return the JSON schema of summary.json."""
    return log_line.schema_text(f"The summary of a run, format {FORMAT}", Summary)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file atomically, with secrets redacted."""
    replace_file(path, redact_bytes(data))


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically. A reader finds either the old content or the new one, even after a crash."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class RunDirectory:
    """The directory of one run, for writing and reading its files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, root: Path, info: RunInfo) -> RunDirectory:
        """Create the directory of a new run, and make the link `latest` point to it."""
        path = root / info.scenario / f"{info.started.replace(':', '')}-{info.seed}"
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            raise UsageError(
                f"the run directory {path} already exists",
                "two runs of this scenario started in the same second with the same seed: start it again",
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
        """Open the directory of an existing run; `path` may also be a link to it.

        A directory that has lost its run.json is recognised by its manifest.
        """
        try:
            path.stat()
        except FileNotFoundError:
            pass  # reported below
        except OSError as error:
            raise UsageError(
                f"{shorten(str(path))} cannot be read: {error.strerror}",
                "name a directory such as runs/<scenario>/latest",
            ) from error
        if not any(is_present(path / name) for name in ("run.json", "manifest.json")):
            raise UsageError(
                f"{shorten(str(path))} is not the directory of a run: it has no run.json",
                "name a directory such as runs/<scenario>/latest",
            )
        return cls(path)

    @property
    def histories(self) -> Path:
        """Directory of the client processes' histories."""
        return self.path / "history"

    @property
    def observations(self) -> Path:
        """Directory of the witnesses' observations."""
        return self.path / "observations"

    def write(self, name: str, value: msgspec.Struct | dict[str, Any] | list[Any] | str | bytes) -> None:
        """Write one file of the run atomically. A value that is neither text nor bytes is written as JSON."""
        if isinstance(value, str):
            value = value.encode()
        data = value if isinstance(value, bytes) else msgspec.json.format(msgspec.json.encode(value)) + b"\n"
        write_atomic(self.path / name, data)

    def read(self, name: str, kind: type[T], default: T | None = None) -> T:
        """Decode one JSON file of the run as type `kind`; return the default if the file does not exist."""
        path = self.path / name
        hint = "the run ended before it wrote the file, or the file was changed afterwards"
        if name in OUTPUTS:
            hint = f"`eos check --write {self.path}` checks the run again and records its verdict"
        with readable(path, hint):
            if default is not None and not is_present(path):
                return default
            return msgspec.json.decode(read_regular(path), type=kind)
