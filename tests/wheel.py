"""The wheel of this repository in an environment of its own, as a user installs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

import numpy

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


def install_wheel(folder: Path) -> Path:
    """Return a virtual environment with the wheel; it uses the dependencies of the current environment."""
    wheel = build_wheel(folder)
    venv.create(folder / "venv", symlinks=True)
    python = folder / "venv" / "bin" / "python"
    pip(folder, "--python", python, "install", *OFFLINE, wheel)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    # Borrow the installed packages. Their folder may hold the .pth file of the checkout, but Python does not
    # read .pth files in a folder that another .pth file adds. So the checkout stays off the import path.
    (site / "borrowed.pth").write_text(f"{Path(numpy.__file__).parents[1]}\n")
    return folder / "venv"
