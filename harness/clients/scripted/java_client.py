"""Kafka's own Java client: producers in one process beside this one, told by lines what to do.

The program is one source file, which the JDK runs as it stands against the jars that the harness has. A JRE
cannot: it has no compiler.
"""

from __future__ import annotations

import itertools
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from harness.base.errors import HarnessError
from harness.clients.scripted.client_libraries import LIBRARIES, Named, RefusedCallError
from harness.provision.jars import ensure_jars
from harness.provision.java import find_java
from harness.provision.kafka_runtime import cached_runtime

PROGRAM: Final = Path(__file__).parent / "java" / "Scripted.java"
NAME: Final = "java"


@cache
def jdk_problem() -> str | None:
    """Why this machine cannot run a Java source file; nothing if it can."""
    try:
        java = find_java()
    except HarnessError as error:
        return error.message
    done = subprocess.run(
        [java.executable, "--describe-module", "jdk.compiler"], capture_output=True, timeout=30, check=False
    )
    return None if done.returncode == 0 else f"{java.executable} has no compiler: it is a JRE, not a JDK"


class _Host:
    """The process; it lives as long as a producer of it does, because to compile and start takes seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._open: set[str] = set()
        self._kept = 0

    def open(self, name: str, named: Named) -> None:
        with self._lock:
            if self._process is None:
                self._process = _start()
                self._answer()
            self._open.add(name)
            self._send(
                f"open {name} {named.bootstrap} {named.transactional_id} {named.client_id} {named.timeout_ms}"
            )

    def tell(self, line: str) -> None:
        with self._lock:
            self._send(line)

    def close(self, name: str) -> None:
        with self._lock:
            if name not in self._open or self._process is None:
                return
            self._open.remove(name)
            self._send(f"close {name}")
            self._end_if_unused()

    def keep(self) -> None:
        with self._lock:
            self._kept += 1

    def let_go(self) -> None:
        with self._lock:
            self._kept -= 1
            self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self._process is not None and not self._open and not self._kept:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _send(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        self._answer()

    def _answer(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        said = self._process.stdout.readline().rstrip("\n")
        if said == "ok":
            return
        if not said:
            raise HarnessError("the Java clients ended without an answer", f"try {PROGRAM} by hand")
        _, name, message = said.split(" ", 2)
        raise RefusedCallError(name, message)


def _start() -> subprocess.Popen[str]:
    ensure_jars(lambda _: None, "kafka")
    runtime = cached_runtime()
    command = [
        str(runtime.java),
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Xmx160m",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
        "-cp",
        runtime.class_path,
        str(PROGRAM),
    ]
    # It reads its commands from us, and ends when we do.
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


_host = _Host()
_numbers = itertools.count(1)


@contextmanager
def running() -> Iterator[None]:
    """Keep the process of the producers inside the block, also while there is none."""
    _host.keep()
    try:
        yield
    finally:
        _host.let_go()


class JavaClient:
    """A producer of Kafka's Java client."""

    def __init__(self, named: Named) -> None:
        self._name = f"p{next(_numbers)}"
        _host.open(self._name, named)

    def init(self) -> None:
        """Take over the transactional id."""
        _host.tell(f"init {self._name}")

    def begin(self) -> None:
        """Begin a transaction."""
        _host.tell(f"begin {self._name}")

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """Send records, and wait until each is acknowledged."""
        _host.tell(f"send {self._name} {topic} {partition} {' '.join(value.decode() for value in values)}")

    def end(self, how: str) -> None:
        """Commit or abort."""
        _host.tell(f"{how} {self._name}")

    def close(self) -> None:
        """Go, without ending anything."""
        _host.close(self._name)


LIBRARIES[NAME] = JavaClient
