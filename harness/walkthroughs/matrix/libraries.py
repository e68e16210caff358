"""The client libraries of the matrix: their versions, and how to start the driver of each."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from harness.base.errors import MachineError, UsageError
from harness.clients.scripted.java_client import PROGRAM
from harness.provision.client_programs import (
    find_node,
    go_program,
    java_classes,
    node_program,
    python_packages,
    rust_program,
)
from harness.provision.jars import ensure_client
from harness.provision.java import find_java, jdk_problem
from harness.provision.kafka_versions import DEFAULT_KAFKA, NEWEST_CLIENT
from harness.provision.paths import resource
from harness.walkthroughs.matrix.driver import Driver

Report = Callable[[str], None]


class Launch(NamedTuple):
    """The command line of a driver, and the variables that it needs beside those of this process."""

    command: list[str]
    environment: Mapping[str, str]

    def start(self, log: Path) -> Driver:
        """Start the driver. Its errors are appended to `log`."""
        return Driver(self.command, {**os.environ, **self.environment}, log)


class Library(NamedTuple):
    """A client library at one version."""

    name: str
    version: str
    prepare: Callable[[Report], Launch]
    """Builds or fetches what is missing. Raises MachineError if this machine cannot run it."""

    @property
    def key(self) -> str:
        """Name and version, such as `sarama 1.61.1`."""
        return f"{self.name} {self.version}"


def _python(library: str) -> Callable[[Report], Launch]:
    def prepare(report: Report) -> Launch:
        command = [sys.executable, "-m", "harness.walkthroughs.matrix.python_driver", library]
        if library != "aiokafka":
            return Launch(command, {})
        installed = python_packages(resource(f"clients/{library}.txt"), report)
        packages = [str(installed), os.environ.get("PYTHONPATH", "")]
        return Launch(command, {"PYTHONPATH": os.pathsep.join(filter(None, packages))})

    return prepare


def _java(client: str) -> Callable[[Report], Launch]:
    def prepare(report: Report) -> Launch:
        if problem := jdk_problem():
            raise MachineError(problem, "install a JDK (Debian: apt-get install openjdk-17-jdk-headless)")
        jars = ensure_client(report, client)
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx160m"]
        options.append("-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
        class_path = os.pathsep.join(map(str, jars))
        class_path += os.pathsep + str(java_classes(PROGRAM, client, class_path, report))
        return Launch([str(find_java().executable), *options, "-cp", class_path, PROGRAM.stem], {})

    return prepare


def _go(name: str, *, cgo: bool = False) -> Callable[[Report], Launch]:
    return lambda report: Launch([str(go_program(resource("clients/go"), report, name, cgo=cgo))], {})


def _node(name: str, *, compiles: bool = False) -> Callable[[Report], Launch]:
    return lambda report: Launch([find_node(), str(node_program(name, report, compiles=compiles))], {})


LIBRARIES: Final = (
    Library("java", NEWEST_CLIENT, _java(NEWEST_CLIENT)),
    Library("java", DEFAULT_KAFKA, _java(DEFAULT_KAFKA)),
    Library("java", "3.9.2", _java("3.9.2")),
    Library("confluent-kafka", version("confluent-kafka"), _python("confluent-kafka")),
    Library("kafka-python", version("kafka-python"), _python("kafka-python")),
    Library("aiokafka", "0.14.0", _python("aiokafka")),
    Library("franz-go", "1.22.2", _go("franz")),
    Library("sarama", "1.61.1", _go("sarama")),
    Library("confluent-kafka-go", "2.11.1", _go("confluent", cgo=True)),
    Library("rdkafka", "0.39.0", lambda report: Launch([str(rust_program(report))], {})),
    Library("kafkajs", "2.2.4", _node("kafkajs")),
    Library("kafka-javascript", "1.10.1", _node("kafka-javascript", compiles=True)),
)


def find_libraries(names: tuple[str, ...]) -> tuple[Library, ...]:
    """Return the libraries with these names, such as `sarama` or `java 3.9.2`; all if there are no names."""
    known = {library.name for library in LIBRARIES} | {library.key for library in LIBRARIES}
    if unknown := sorted(set(names) - known):
        hint = f"libraries are {', '.join(library.key for library in LIBRARIES)}"
        raise UsageError(f"there is no client library {unknown[0]!r} in the matrix", hint)
    return tuple(one for one in LIBRARIES if not names or {one.name, one.key} & set(names))
