"""Manifest of a run: every evidence file with its size and SHA-256, and what the run promised.

A run writes manifest.json after its last witness has read the topics, and before the verdict. Each later
check compares the files with the manifest first. A file that is missing, changed or not listed makes the
verdict unknown. The last line of the manifest is a SHA-256 over all bytes before it, so a changed manifest is
noticed too. The manifest protects against accidents. It does not protect against a person who also rewrites
the manifest.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from harness.base.errors import HarnessError, describe_error
from harness.base.unreadable import UNREADABLE, is_present, printable, read_regular
from harness.evidence.run_directory import VERDICT_FILES, RunDirectory, replace_file

NAME: Final = "manifest.json"
FORMAT: Final = 1

FILES: Final = (
    "run.json",
    "scenario.json",
    "plan.json",
    "names.json",
    "expect.json",
    "limits.json",
    "clients.json",
    "app.json",
    "audit.json",
    "walkthrough.json",
    "frames.jsonl",
    "frames-internal.jsonl",
    "logsteps.jsonl",
    "metrics.jsonl",
)
"""Evidence files directly in the run directory. A run has only those that apply to it."""

REQUIRED: Final = ("run.json", "scenario.json", "plan.json", "names.json", "expect.json", "limits.json")
"""Evidence files that every run has."""

FOLDERS: Final = ("history/*.jsonl", "observations/*/*", "rows/*.jsonl")
"""Patterns of the other evidence files: histories of clients, observations of witnesses, and rows."""

_DIGEST_MARK: Final = b',\n  "sha256": "'


class FileEntry(msgspec.Struct, frozen=True):
    """Size in bytes and SHA-256 of one evidence file."""

    size: int
    sha256: str


class Promises(msgspec.Struct, kw_only=True):
    """What a run promised: clients, witnesses, number of faults, and names of limits.

    The clients are those that left a history. checkers/promises.py compares the promises with the evidence.
    """

    clients: list[str] = []
    witnesses: list[str] = []
    faults: int = 0
    limits: list[str] = []


class Manifest(msgspec.Struct, kw_only=True):
    """The manifest of a run. The keys of `files` are paths relative to the run directory."""

    format: int = FORMAT
    run: str
    promised: Promises
    files: dict[str, FileEntry]

    def encode(self) -> bytes:
        """Return the content of manifest.json: JSON with the digest of its bytes at the end."""
        body = msgspec.json.format(msgspec.json.encode(self))
        return body.removesuffix(b"\n}") + _DIGEST_MARK + _digest(body) + b'"\n}\n'


class MissingManifestError(HarnessError):
    """An error for a run directory without a manifest."""


class DamagedManifestError(HarnessError):
    """An error for a manifest that was changed after it was written, or that cannot be read."""


def write(run: RunDirectory, run_id: str, promised: Promises) -> Manifest:
    """List the evidence files that a run directory now has, and write its manifest."""
    files = {name: _entry(run.path / name) for name in evidence_files(run.path)}
    manifest = Manifest(run=run_id, promised=promised, files=files)
    # Write without redaction: a short secret could occur in a digest by chance, and the manifest contains
    # only names, sizes and digests.
    replace_file(run.path / NAME, manifest.encode())
    return manifest


def read(run: RunDirectory) -> Manifest:
    """Return the manifest of a run.

    Raise MissingManifestError if there is none, and DamagedManifestError if it was changed.
    """
    path = run.path / NAME
    if not is_present(path):
        raise MissingManifestError(*_missing(run))
    hint = "restore manifest.json from a copy of the run directory, or run the scenario again"
    try:
        data = read_regular(path)
        head, _, digest = data.rpartition(_DIGEST_MARK)
        body = head + b"\n}"
        if digest != _digest(body) + b'"\n}\n':
            raise DamagedManifestError(f"{NAME} was changed after the run wrote it", hint)
        manifest = msgspec.json.decode(body, type=Manifest)
    except UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) else describe_error(error)
        raise DamagedManifestError(f"{NAME} cannot be read: {reason}", hint) from error
    if manifest.format != FORMAT:
        raise DamagedManifestError(
            f"{NAME} has format {manifest.format}, but this version reads {FORMAT}",
            "check the run with the version of the harness that made it",
        )
    return manifest


def find_damage(run: RunDirectory, manifest: Manifest) -> list[str]:
    """Return one sentence for each evidence file that differs from the manifest."""
    present = evidence_files(run.path)
    damage = [_difference(run.path, name, entry) for name, entry in sorted(manifest.files.items())]
    damage += [f"{name} is missing" for name in REQUIRED if name not in {*manifest.files, *present}]
    extra = [name for name in present if name not in manifest.files]
    damage += [f"{printable(name)} is not in {NAME}: it is not evidence of this run" for name in extra]
    return [problem for problem in damage if problem]


def problems_of(run: RunDirectory) -> list[str]:
    """Return why the evidence of a run is incomplete: the problem of its manifest, or each damaged file."""
    try:
        return find_damage(run, read(run))
    except HarnessError as error:
        return [error.message]


def evidence_files(directory: Path) -> list[str]:
    """Return the evidence files that a run directory has, as sorted relative paths.

    Files and folders whose names begin with a dot are left out: no checker reads them.
    """
    found = [directory / name for name in FILES]
    found += [path for pattern in FOLDERS for path in directory.glob(pattern)]
    names = [path.relative_to(directory).as_posix() for path in found if is_present(path)]
    return sorted(name for name in names if "/." not in name)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _entry(path: Path) -> FileEntry:
    with path.open("rb") as file:
        return FileEntry(os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _difference(directory: Path, name: str, entry: FileEntry) -> str:
    """Return a sentence on how a file differs from its entry, or "" if it is the same."""
    path = directory / name
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return f"{name} is not a regular file"
        if status.st_size != entry.size:
            return f"{name} has {status.st_size} bytes, but {NAME} lists {entry.size}"
        if _entry(path) != entry:
            return f"{name} was changed: its SHA-256 differs from {NAME}"
    except FileNotFoundError:
        return f"{name} is missing"
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}"
    return ""


def _missing(run: RunDirectory) -> tuple[str, str]:
    """Return the message and the hint for a run directory without a manifest."""
    if any(is_present(run.path / name) for name in VERDICT_FILES):
        return (
            f"the run has a verdict but no {NAME}: the file was removed, an earlier version made the run, or "
            "`eos check --write` recorded the verdict",
            "restore the file, or check the run with the version that made it, which run.json names",
        )
    return f"the run did not finish, or it is still running: it has no {NAME}", "run the scenario again"
