"""Environment of a run as recorded in run.json: versions, images, machine, and git commit."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from typing import Any

from harness import __version__
from harness.cluster.cluster import Cluster
from harness.kafka.librdkafka import library_versions
from harness.provision.java import find_java
from harness.provision.paths import checkout_dir


def environment(cluster: Cluster) -> dict[str, Any]:
    """Return the environment of a run: versions, images, machine and git commit. This runs git and java."""
    return {
        "harness": __version__,
        "git": _git("rev-parse", "HEAD") + ("+changes" if _git("status", "--porcelain") else ""),
        **library_versions(),
        "kafka_python": version("kafka-python"),
        "python": platform.python_version(),
        "java": find_java().version,
        "system": platform.platform(),
        **cluster.facts(),
    }


def _git(*arguments: str) -> str:
    """Return the output of a git command in the checkout; return "" if there is no checkout or no git."""
    checkout = checkout_dir()
    if checkout is None:
        return ""
    command = ["git", "-C", str(checkout), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
