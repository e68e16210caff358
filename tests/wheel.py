"""The wheel of this repository, as a user installs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.unit.test_repo import FILES, ROOT

OFFLINE: Final = ["--quiet", "--no-deps", "--no-index"]


def pip(folder: Path, *arguments: str | Path, seconds: float = 180) -> None:
    """Run pip in a folder outside the checkout."""
    # Remove the checkout from the import path. Otherwise pip would consider the package installed.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    subprocess.run(command, cwd=folder, env=clean, check=True, timeout=seconds)


def build_wheel(folder: Path) -> Path:
    """Build the wheel from the files of the repository, and return its path."""
    source = folder / "source"
    for path in FILES:
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy, follow_symlinks=False)
    for link in (path for path in (ROOT / "harness").rglob("*") if path.is_symlink() and path.is_dir()):
        (source / link.relative_to(ROOT)).symlink_to(link.readlink())
    pip(folder, "wheel", *OFFLINE, "--no-build-isolation", "--wheel-dir", folder, source)
    (wheel,) = folder.glob("*.whl")
    return wheel
