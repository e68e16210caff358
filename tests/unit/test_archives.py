"""Archives are unpacked with every supported version of Python."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from harness.provision import archives


def packed() -> io.BytesIO:
    """Return an archive with two files."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name in ("one", "two"):
            member = tarfile.TarInfo(name)
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
    data.seek(0)
    return data


@pytest.mark.parametrize("options", [archives._FILTER, {}], ids=["this Python", "Python before 3.11.4"])
@pytest.mark.parametrize(("member", "files"), [(None, ["one", "two"]), ("two", ["two"])])
def test_an_archive_is_unpacked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    member: str | None,
    files: list[str],
) -> None:
    monkeypatch.setattr(archives, "_FILTER", options)
    with tarfile.open(fileobj=packed()) as archive:
        archives.unpack(archive, tmp_path, member)
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    assert all(path.read_text() == path.name for path in tmp_path.iterdir())
