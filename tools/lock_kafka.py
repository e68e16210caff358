"""Write the lock file of a version of Kafka: `python -m tools.lock_kafka 4.2.1`.

The file pins every jar that a broker or a controller needs, with its SHA-256 hash. The version can then be
used with `--kafka`. Nothing else has to be changed, unless the version lacks a feature
(harness.provision.kafka_versions).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from harness.base.errors import HarnessError
from harness.provision.jars import Jar, fetch_closure, read_lock, sha256_of
from harness.provision.kafka_versions import DEFAULT_KAFKA, lock_folder, numbers
from harness.provision.paths import cache_lock, scratch_dir

_NOT_LOADED: Final = frozenset(
    {
        "log4j-core",  # the nodes log with slf4j-simple
        "log4j-slf4j-impl",
        "log4j-1.2-api",
        "reload4j",
        "slf4j-reload4j",
        "jackson-dataformat-csv",  # for command-line tools
        "jackson-dataformat-yaml",
        "snakeyaml",
        "scala-reflect",
        "commons-beanutils",  # for features of commons-validator that Kafka does not use
        "commons-collections",
        "commons-digester",
        "jspecify",  # annotations
    }
)
"""Jars of Kafka's POMs that no node loads."""
_SLF4J: Final = "org.slf4j"


def lock_lines(version: str, folder: Path, logging: list[Jar]) -> list[str]:
    """Return the lines of a lock file for the jars in `folder`, sorted, with Kafka's own first.

    `logging` are slf4j's API and its simple logger, which replace the API that Kafka's POM names: the two
    must have the same version, or nothing is logged.
    """
    jars = []
    for file in folder.glob("*.jar"):
        group, artifact, number = file.stem.split("--")
        if artifact not in _NOT_LOADED and group != _SLF4J:
            jars.append(Jar("kafka", group, artifact, number, sha256_of(file)))
    jars.sort(key=lambda jar: (jar.group != "org.apache.kafka", jar.group, jar.artifact))
    head = f"# Jars of the brokers and controllers of Kafka {version}: set group:artifact:version sha256"
    return [head, *(f"kafka {j.group}:{j.artifact}:{j.version} {j.sha256}" for j in [*jars, *logging])]


@click.command()
@click.argument("version")
def main(version: str) -> None:
    """Write the lock file of a version of Kafka, such as 4.2.1."""
    try:
        numbers(version)
        logging = [jar for jar in read_lock(lock_folder() / f"{DEFAULT_KAFKA}.lock") if jar.group == _SLF4J]
        with cache_lock(), scratch_dir("ivy") as scratch:
            fetched = fetch_closure("org.apache.kafka", "kafka_2.13", version, scratch)
            lines = lock_lines(version, fetched, logging)
    except HarnessError as error:
        click.echo(f"error: {error.message}\nhint: {error.hint}", err=True)
        sys.exit(error.exit_code)
    target = lock_folder() / f"{version}.lock"
    target.write_text("".join(f"{line}\n" for line in lines))
    click.echo(f"{target}: {len(lines) - 1} jars; start it with `eos up --kafka {version}`")


if __name__ == "__main__":
    main()
