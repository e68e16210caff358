"""Lookup of the Java that runs Kafka and Spark.

The module searches JAVA_HOME and PATH, and accepts version 17 or newer.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.base.errors import HarnessError, MachineError

OLDEST_JAVA = 17
_HINT = "install a Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"


@dataclass(frozen=True)
class Java:
    """A Java installation: the path of its launcher `java`, and its version."""

    executable: Path
    major: int
    version: str


@cache
def find_java() -> Java:
    """Return the Java in JAVA_HOME, or else the one on PATH.

    Raise MachineError if it is missing or too old.
    """
    home = os.environ.get("JAVA_HOME")
    launcher = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not launcher or not Path(launcher).exists():
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise MachineError(f"no java was found in {where}", _HINT)
    done = subprocess.run([launcher, "-version"], capture_output=True, text=True, timeout=30, check=False)
    match = re.search(r'version "(\d+)[^"]*"', done.stderr)
    if not match:
        raise MachineError(f"`{launcher} -version` printed {done.stderr[:100]!r}", _HINT)
    java = Java(Path(launcher), int(match[1]), done.stderr.splitlines()[0])
    if java.major < OLDEST_JAVA:
        raise MachineError(f"{launcher} is Java {java.major}, older than {OLDEST_JAVA}", _HINT)
    return java


@cache
def jdk_problem() -> str | None:
    """Return why this machine cannot run a Java source file, or None if it can."""
    try:
        java = find_java()
    except HarnessError as error:
        return error.message
    done = subprocess.run(
        [java.executable, "--describe-module", "jdk.compiler"], capture_output=True, timeout=30, check=False
    )
    return None if done.returncode == 0 else f"{java.executable} has no compiler: it is a JRE, not a JDK"
