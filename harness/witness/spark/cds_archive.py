"""The class-data archive (CDS) of Spark's JVM, created once per combination of Java, Spark and jars."""

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
"""Time limit for creating the archive. It is long because creation took minutes on a busy machine: two cores
shared with dozens of JVMs.
"""

_QUIET: Final = ["-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off"]


def archive_path(jars: list[Path]) -> Path:
    """Return the path of the archive for this Java, this Spark and these jars."""
    import pyspark

    java = find_java()
    jars_folder = Path(pyspark.__file__).parent / "jars"
    versions = [java.version, str(java.executable), SPARK_VERSION, str(jars_folder), *map(str, jars)]
    key = hashlib.sha256("\n".join(versions).encode()).hexdigest()[:16]
    return cache_dir() / "spark" / f"classes-{key}.jsa"


def share_options() -> list[str]:
    """Return the JVM options that use the archive; an empty list if the archive does not exist.

    Without the archive, a Spark session works but starts more slowly.
    """
    path = archive_path(class_path("spark"))
    return [f"-XX:SharedArchiveFile={path}", "-Xshare:auto", *_QUIET] if path.exists() else []


def make_archive(log: Callable[[str], None]) -> Path:
    """Create the archive unless it exists. Do not call this during a run: it takes a minute or more."""
    path = archive_path(ensure_jars(log, "spark"))
    path.parent.mkdir(parents=True, exist_ok=True)
    # One process at a time creates the archive. Downloads have a lock of their own and need not wait.
    with (path.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            log("creating Spark's class archive (once per virtual environment)")
            _train(path)
    return path


def _train(path: Path) -> None:
    """Run a Spark session that loads the classes that a verification needs, and archive these classes."""
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        created = Path(scratch) / "classes.jsa"
        done = subprocess.run(
            [sys.executable, "-m", "harness.witness.spark.cds_training", str(created)],
            capture_output=True,
            text=True,
            timeout=TRAINING_LIMIT_S,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        if done.returncode != 0 or not created.exists():
            raise RuntimeError(f"training of Spark's class archive failed:\n{done.stderr[-2000:]}")
        created.replace(path)


if __name__ == "__main__":
    make_archive(print)
