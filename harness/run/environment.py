"""Environment of a run as recorded in run.json: versions, images, machine, and git commit."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from harness import __version__
from harness.app.app_spec import AppSpec
from harness.app.container_launch import app_image
from harness.app.launch_template import LOCK_SUFFIX, app_locks, arguments
from harness.cluster.cluster import Cluster
from harness.kafka.librdkafka import library_versions
from harness.provision.app_processes import image_digest
from harness.provision.client_programs import pinned_packages, required_modules
from harness.provision.jars import read_app_lock
from harness.provision.java import find_java
from harness.provision.paths import checkout_dir

CHANGES: Final = "+changes"
"""What follows a git commit if its folder has changes that are not committed."""


def environment(cluster: Cluster) -> dict[str, Any]:
    """Return the environment of a run: versions, images, machine and git commit. This runs git and java."""
    return {
        "harness": __version__,
        "git": _git("rev-parse", "HEAD") + (CHANGES if _git("status", "--porcelain") else ""),
        **library_versions(),
        "kafka_python": version("kafka-python"),
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        "java": find_java().version,
        "system": platform.platform(),
        "cores": os.cpu_count(),
        **cluster.facts(),
    }


def app_identity(app: AppSpec) -> dict[str, str]:
    """Return what identifies the application under test: its image, its files, and its git commit.

    The files are those that the command names and that exist, such as a jar or a script, and those that pin
    its jars, packages and modules.
    """
    folder = Path(app.directory)
    texts = app.all_texts
    words = [part for word in [*app.command, *app.again] for part in word.split(os.pathsep)]
    words += [name for name in arguments(texts, "jars") if name.endswith(LOCK_SUFFIX)]
    words += [*arguments(texts, "pip"), *(f"{name}/go.sum" for name in arguments(texts, "go"))]
    files = {word: folder / word for word in words if word and (folder / word).is_file()}
    identity = {name: _sha256(path) for name, path in sorted(files.items())}
    if image := app_image(app):
        identity[image] = image_digest(image) or "not present"
    if commit := _git("rev-parse", "HEAD", folder=folder):
        changed = CHANGES if _git("status", "--porcelain", "--", ".", folder=folder) else ""
        identity["commit"] = f"{commit}{changed}"
    return identity


def describe_identity(identity: dict[str, str]) -> str:
    """Return a short text for the identity of an application: each name, and the beginning of its hash."""
    return ", ".join(f"{name} {_short(text)}" for name, text in identity.items())


def _short(text: str) -> str:
    changed = CHANGES if text.endswith(CHANGES) else ""
    return f"{text.removesuffix(CHANGES).removeprefix('sha256:')[:12]}{changed}"


def app_packages(app: AppSpec) -> list[str]:
    """Return the jars, Python packages and Go modules that the application pins, in their order."""
    texts, folder = app.all_texts, Path(app.directory)
    locks = app_locks(texts, folder)
    jars = [f"{jar.group}:{jar.artifact}:{jar.version}" for lock in locks for jar in read_app_lock(lock)]
    packages = [each for name in arguments(texts, "pip") for each in pinned_packages(folder / name)]
    modules = [each for name in arguments(texts, "go") for each in required_modules(folder / name)]
    return [*jars, *packages, *modules]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _git(*arguments: str, folder: Path | None = None) -> str:
    """Return the output of a git command in a folder, by default the checkout; "" without git."""
    place = folder or checkout_dir()
    if place is None:
        return ""
    command = ["git", "-C", str(place), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
