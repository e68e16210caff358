"""The class-data archive of Spark's JVM: made once for a Java, a Spark and a list of jars."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from harness.provision.jars import class_path, ensure_jars
from harness.provision.java import find_java
from harness.provision.paths import cache_dir
from harness.witness.spark.spark_session import SPARK_VERSION

TRAINING_LIMIT_S: Final = 600.0
"""Training is bound by the processor: where it shares two cores with dozens of JVMs it took minutes."""

_QUIET: Final = ["-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off"]


def archive_path(jars: list[Path]) -> Path:
    """Where the archive for this Java, this Spark and these jars stands."""
    import pyspark

    java = find_java()
    jars_folder = Path(pyspark.__file__).parent / "jars"
    told = [java.version, str(java.executable), SPARK_VERSION, str(jars_folder), *map(str, jars)]
    key = hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]
    return cache_dir() / "spark" / f"classes-{key}.jsa"


def share_options() -> list[str]:
    """JVM options that use the archive where it was made; a session starts without it too, only later."""
    path = archive_path(class_path("spark"))
    return [f"-XX:SharedArchiveFile={path}", "-Xshare:auto", *_QUIET] if path.exists() else []


def make_archive(report: Callable[[str], None]) -> Path:
    """Make the archive if there is none: never on the way to a verdict, because it takes a minute or more."""
    path = archive_path(ensure_jars(report, "spark"))
    path.parent.mkdir(parents=True, exist_ok=True)
    # A lock of its own: whoever fetches jars meanwhile need not wait for this.
    with (path.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            report("preparing Spark's class archive, once for this virtual environment")
            _train(path)
    return path


def _train(path: Path) -> None:
    """Run a session that loads what a verification loads, and keep its classes."""
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        made = Path(scratch) / "classes.jsa"
        done = subprocess.run(
            [sys.executable, "-m", "harness.witness.spark.cds_training", str(made)],
            capture_output=True,
            text=True,
            timeout=TRAINING_LIMIT_S,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        if done.returncode != 0 or not made.exists():
            raise RuntimeError(f"training of Spark's class archive failed:\n{done.stderr[-2000:]}")
        made.replace(path)


if __name__ == "__main__":
    make_archive(print)
