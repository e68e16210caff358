"""Rows of a database: the jars of its driver, and a Java program that prints the result of a query.

The user names the driver by its Maven coordinates. No hash of it is pinned here; the run reports the one that
was fetched.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.base.errors import HarnessError
from harness.base.secrets import look_up, redact
from harness.evidence.row_output import RowSource
from harness.provision.jars import Jar, fetch_into
from harness.provision.java import find_java
from harness.provision.paths import cache_dir, cache_lock, resource

COORDINATES: Final = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")
PASSWORD: Final = "EOS_JDBC_PASSWORD"  # noqa: S105 - the name of a variable


def ensure_driver(driver: str) -> list[Path]:
    """Fetch the jars with these Maven coordinates, separated by spaces, and return their paths."""
    jars = []
    for coordinates in driver.split():
        group, artifact, version = coordinates.split(":")
        jars.append(Jar("driver", group, artifact, version, ""))
    paths = [cache_dir() / "drivers" / jar.fetched_name for jar in jars]
    if not all(path.exists() for path in paths):
        with cache_lock():
            fetch_into(cache_dir() / "drivers", jars)
    return paths


def digests(paths: Sequence[Path]) -> str:
    """Describe jars by their names and the beginnings of their SHA-256 hashes."""
    return ", ".join(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()[:12]}" for path in paths)


def write_rows(row: RowSource, path: Path, limit_s: float) -> None:
    """Write the rows of a query into a file, as JSON lines. Raise HarnessError if the query fails."""
    env = dict(os.environ)
    if row.password:
        env[PASSWORD] = look_up(row.password)
    command = [str(find_java().executable), "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    command += [
        "-cp",
        os.pathsep.join(row.driver),
        str(resource("JdbcRows.java")),
        row.jdbc,
        row.query,
        row.user,
    ]
    with path.open("wb") as file:
        try:
            done = subprocess.run(
                command, stdout=file, stderr=subprocess.PIPE, env=env, timeout=limit_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise HarnessError(
                f"the query of output {row.name} took longer than {limit_s:g} s", "look at the database"
            ) from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.decode(errors="replace").splitlines() if "Exception" in line]
        problem = redact(lines[0].rpartition("Exception: ")[2] if lines else f"exit code {done.returncode}")
        raise HarnessError(
            f"output {row.name} could not be read: {problem}",
            "check jdbc, query, driver and user of this [[output]]; the java in use must be that of a JDK",
        )
