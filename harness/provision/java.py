"""The Java that runs Kafka and Spark: found on PATH or JAVA_HOME, at least 17."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from harness.base.errors import HarnessError

OLDEST_JAVA = 17
_HINT = "install a Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"


@dataclass(frozen=True)
class Java:
    """A Java launcher and what it says of itself."""

    executable: Path
    major: int
    version: str


@cache
def find_java() -> Java:
    """The Java of JAVA_HOME, else of PATH; an error with a hint where there is none or it is too old."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not found or not Path(found).exists():
        where = f"JAVA_HOME={home}" if home else "PATH"
        raise HarnessError(f"no java was found in {where}", _HINT)
    said = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    match = re.search(r'version "(\d+)[^"]*"', said)
    if not match:
        raise HarnessError(f"{found} -version said {said[:100]!r}", _HINT)
    java = Java(Path(found), int(match[1]), said.splitlines()[0])
    if java.major < OLDEST_JAVA:
        raise HarnessError(f"{found} is Java {java.major}, older than {OLDEST_JAVA}", _HINT)
    return java
