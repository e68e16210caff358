"""Start of Spark sessions. This is the only module with Spark's settings, masters and jars.

A session starts sooner for three reasons. It has no web interface. Its JVM maps classes from an archive
(cds_archive.py) instead of reading 300 jars. With `quick_start`, its JVM compiles only with its
first compiler.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import harness
from harness.base.errors import HarnessError, describe_error
from harness.base.scratch import scratch_until_exit
from harness.provision.jars import ensure_jars
from harness.provision.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[2,4]"
"""Spark's master on this machine: two parallel tasks, and up to four attempts for each task. With plain
`local[N]`, a job fails at the first error of a task.
"""

SPARK_VERSION: Final = "4.2.0"
DRIVER_HEAP: Final = "1g"
_LAST_LINES: Final = 10

QUICK_START_RATE: Final = 20_000
"""Records per second below which a streaming job uses `quick_start`."""

_FIRST_COMPILER_ONLY: Final = "-XX:TieredStopAtLevel=1"
"""JVM option of `quick_start`. The second compiler makes faster code, but only after the few seconds
for which most sessions last, and it takes half of their processor time.
"""

_SETTINGS: Final[dict[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # Without this setting, Spark uses its older Kafka source, which reads at a third of the speed.
    "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.cleaner.periodicGC.interval": "60min",
    "spark.log.level": "ERROR",
}


def is_local(master: str) -> bool:
    """Return whether this master runs driver and executors in one JVM on this machine."""
    return master.startswith("local")


def settings_for(
    master: str, jars: list[Path], java_options: list[str], overrides: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return all settings of a session; `overrides` replace settings with the same name."""
    settings = {
        **_SETTINGS,
        "spark.master": master,
        "spark.driver.memory": DRIVER_HEAP,
        "spark.driver.extraJavaOptions": " ".join(java_options),
    }
    if is_local(master):
        # Put the jars on the JVM's class path when it starts. The setting spark.jars would add them later,
        # and the class-data archive (CDS) cannot contain classes of jars that are added later.
        settings["spark.driver.extraClassPath"] = ":".join(map(str, jars))
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    else:
        settings["spark.jars"] = ",".join(map(str, jars))
    return {**settings, **(overrides or {})}


def start_session(
    name: str,
    master: str = DEFAULT_MASTER,
    log: Callable[[str], None] = lambda _: None,
    overrides: Mapping[str, str] | None = None,
    *,
    more_jars: Sequence[Path] = (),
    quiet: bool = False,
    quick_start: bool = False,
    scratch: Path | None = None,
) -> SparkSession:
    """Start a session with the Kafka connector and the code that Spark's Python workers import.

    Use `quick_start` if few records are read: the session and its first queries then need half of the
    processor time, and large reads are slower. `more_jars` are behind all others on the class path, so the
    archive of classes stays valid. With `quiet`, the lines that Spark's JVM writes to stderr go to a file. If
    the session does not start, their last lines are in the error. `scratch` is the folder for temporary
    files; without it, the session has its own, which is removed when this process exits.
    """
    from harness.witness.spark.cds_archive import share_options

    jars = [*ensure_jars(log, "spark"), *more_jars]
    # The option -Xss8m enlarges the stack. Spark matches the text of a query with recursive patterns, which
    # overflow the default stack if the query has a dozen topics.
    options = ["-XX:+UseParallelGC", "-Djava.net.preferIPv4Stack=true", "-Xss8m", "-XX:-UsePerfData"]
    if is_local(master):
        options += share_options()
        options += [_FIRST_COMPILER_ONLY] if quick_start else []
    scratch = scratch or scratch_until_exit("spark")
    options.append(temporary_files_in(scratch))
    settings = settings_for(master, jars, options, overrides)
    if not quiet:
        return build_session(name, settings, scratch)
    # The JVM inherits this file and writes to it until it ends; the file has no name, so nothing is left.
    with tempfile.TemporaryFile() as lines:
        try:
            with _stderr_in(lines.fileno()):
                return build_session(name, settings, scratch)
        except Exception as error:
            lines.seek(0)
            last = lines.read().decode(errors="replace").splitlines()[-_LAST_LINES:]
            raise HarnessError(
                f"Spark did not start: {describe_error(error)}",
                "\n".join(["`--verbose` shows all lines of Spark; the last ones are:", *last]),
            ) from error


@contextlib.contextmanager
def _stderr_in(file: int) -> Iterator[None]:
    """Let this process, and the processes that it starts here, write stderr to a file."""
    sys.stderr.flush()
    saved = os.dup(2)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def temporary_files_in(folder: Path) -> str:
    """Return the JVM option that lets Spark write its temporary files into a folder.

    A JVM that is killed cannot remove them itself.
    """
    return f'"-Djava.io.tmpdir={folder}"'


def build_session(name: str, settings: Mapping[str, str], scratch: Path) -> SparkSession:
    """Start a session with exactly these settings. `scratch` receives the code for Spark's workers."""
    from pyspark.sql import SparkSession

    java = find_java().executable
    if not java.is_symlink() and java.parent.name == "bin":
        os.environ["JAVA_HOME"] = str(java.parent.parent)
    # Spark's Python workers must run this process's Python interpreter, because it has numpy and the right
    # version. On a remote Spark cluster the interpreter may have another path, which the user sets in
    # PYSPARK_PYTHON.
    remote = None if is_local(settings["spark.master"]) else os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = settings.get("spark.pyspark.python") or remote or sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    code = str(code_archive(scratch))
    session.sparkContext.addPyFile(code)
    # Remove the zip file of code from the import path of this process. Only Spark's workers import from the
    # zip file; this process imports the original files.
    sys.path[:] = [entry for entry in sys.path if Path(entry).name != Path(code).name]
    return session


def code_archive(folder: Path) -> Path:
    """Write a zip of the code that Spark's workers import: the jobs and modules of `harness.evidence`."""
    root = Path(harness.__file__).parent.parent
    evidence = root / "harness" / "evidence"
    shipped = [evidence / f"{name}.py" for name in ("record", "bit_words", "eight_bytes")]
    files = [*sorted((root / "spark_jobs").glob("*.py")), *shipped]
    path = folder / "eos_spark_jobs.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in files:
            archive.write(file, file.relative_to(root))
        for package in ("harness", "harness/evidence"):
            archive.writestr(f"{package}/__init__.py", "")
    return path
