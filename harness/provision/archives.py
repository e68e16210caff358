"""Unpacking of tar archives that a container of the harness made."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any, Final

_FILTER: Final[dict[str, Any]] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Option that refuses paths outside the target. Python has it since 3.11.4."""


def unpack(archive: tarfile.TarFile, target: Path, member: str | None = None) -> None:
    """Unpack an archive, or one member of it, into a folder."""
    if member is None:
        archive.extractall(target, **_FILTER)  # noqa: S202 - a container of the harness made the archive
    else:
        archive.extract(member, target, **_FILTER)
