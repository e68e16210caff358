"""Producers of Kafka's own Java client, all in one Java process, which reads one command per line.

The `java` command runs the program directly from its source file, with the harness's jars. This needs a JDK,
because a JRE has no compiler.
"""

from __future__ import annotations

import itertools
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from harness.base.errors import HarnessError
from harness.base.partition_id import PartitionId
from harness.clients.scripted.client_libraries import CALL_S, LIBRARIES, ProducerConfig, RefusedCallError
from harness.provision.jars import ensure_jars
from harness.provision.kafka_runtime import cached_runtime

PROGRAM: Final = Path(__file__).parent / "java" / "Scripted.java"
NAME: Final = "java"


class _JavaProcess:
    """The Java process.

    It runs while a producer is open, or while the context manager `running` is active.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._users = 0

    def add_user(self) -> None:
        with self._lock:
            self._users += 1

    def remove_user(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._process is not None:
                self._process.kill()
                self._process.communicate()
                self._process = None

    def call(self, command: str) -> None:
        """Send one command and wait for its answer; raise the error that the Java client reported."""
        with self._lock:
            if self._process is None:
                self._process = _start()
                self._read_answer(self._process)
            assert self._process.stdin is not None
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
            self._read_answer(self._process)

    @staticmethod
    def _read_answer(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        answer = process.stdout.readline().rstrip("\n")
        if answer == "ok":
            return
        if not answer:
            raise HarnessError("the Java clients ended without an answer", f"try {PROGRAM} by hand")
        _, name, message = answer.split(" ", 2)
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
    # The Java program ends when its standard input is closed. The operating system closes it at the latest
    # when this Python process ends.
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


_java = _JavaProcess()
_numbers = itertools.count(1)


@contextmanager
def running() -> Iterator[None]:
    """Keep the Java process alive in the block, even without a producer: its start takes seconds."""
    _java.add_user()
    try:
        yield
    finally:
        _java.remove_user()


class JavaClient:
    """A producer of Kafka's Java client."""

    def __init__(self, config: ProducerConfig) -> None:
        self._name = f"p{next(_numbers)}"
        _java.add_user()
        self._open = True
        try:
            _java.call(
                f"open {self._name} {config.bootstrap} {config.transactional_id} {config.client_id} "
                f"{config.timeout_ms}"
            )
        except Exception:
            self._open = False
            _java.remove_user()
            raise

    def init(self) -> None:
        _java.call(f"init {self._name}")

    def begin(self) -> None:
        _java.call(f"begin {self._name}")

    def send(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        _java.call(f"send {self._name} {topic} {partition} {' '.join(value.decode() for value in values)}")

    def submit(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        _java.call(f"submit {self._name} {topic} {partition} {' '.join(value.decode() for value in values)}")

    def flush(self, limit_s: float = CALL_S) -> None:  # noqa: ARG002  # the library's flush has no limit
        _java.call(f"flush {self._name}")

    def send_offset(self, partition_id: PartitionId, offset: int, group: str, member: object) -> None:  # noqa: ARG002
        # The group is named without a member. The group coordinator then checks no generation.
        topic, partition = partition_id
        _java.call(f"offset {self._name} {group} {topic} {partition} {offset}")

    def end(self, how: str) -> None:
        _java.call(f"{how} {self._name}")

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        try:
            _java.call(f"close {self._name}")
        finally:
            _java.remove_user()


def send_plain(bootstrap: str, topic: str, value: str, settings: Mapping[str, str]) -> None:
    """Send one record with a new Java producer that has these settings and no transactional id."""
    words = [f"{key}={setting}" for key, setting in settings.items()]
    with running():
        _java.call(" ".join(["plain", bootstrap, topic, value, *words]))


LIBRARIES[NAME] = JavaClient
