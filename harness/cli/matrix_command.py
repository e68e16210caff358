"""The command `eos matrix`: cases of exactly-once with every client library."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.base.errors import ExitCode
from harness.cli.options import WholeNumber, log, state_of, state_option

if TYPE_CHECKING:
    from harness.cluster.cluster import Cluster
    from harness.cluster.state_directory import State
    from harness.walkthroughs.matrix.sweep import Attempt


@click.command(
    short_help="Run cases with every client library.",
    epilog="\b\nExample:  eos matrix\n"
    "          eos matrix --library sarama --library 'java 3.9.2'\n"
    "          eos matrix --case 'late abort' --tries 3\n"
    "          eos matrix --kafka 3.9.2 --output matrix.jsonl",
)
@click.option("--library", "libraries", multiple=True, metavar="NAME", help="Library [default: all].")
@click.option("--case", "cases", multiple=True, metavar="NAME", help="Case [default: all].")
@click.option("--tries", type=WholeNumber(1), default=1, show_default=True, help="Attempts of each cell.")
@click.option(
    "--kafka", "versions", multiple=True, metavar="VERSION", help="Start a cluster of this version."
)
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Add attempts; make only missing ones."
)
@click.option(
    "--runs",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Folder for frames and logs.",
)
@state_option
def matrix(
    *,
    libraries: tuple[str, ...],
    cases: tuple[str, ...],
    tries: int,
    versions: tuple[str, ...],
    output: Path | None,
    runs: Path,
    state_path: Path | None,
) -> None:
    """Run cases of exactly-once with every client library, and print a table.

    Each client library is driven by a small program, which is built when it is needed for the first time.
    With --kafka, each version of Kafka has a cluster of its own, which is removed at the end; from 4.0 on,
    it runs with transaction version 2 and then with version 1. With --output, attempts that the file has
    already are not made again, so a sweep that was interrupted continues. Ctrl-C and SIGTERM end a sweep
    after the attempt under way. The exit code is 1 if a cell is broken, and 2 if one is not shown or if
    attempts differ.
    """
    from harness.run.shutdown import StopRequest, interruptible
    from harness.walkthroughs.matrix.cases import find_cases
    from harness.walkthroughs.matrix.libraries import find_libraries
    from harness.walkthroughs.matrix.sweep import Sweep
    from harness.walkthroughs.matrix.table import append, describe_attempt, read_attempts, shown

    wanted, asked = find_libraries(libraries), find_cases(cases)
    attempts = read_attempts(output) if output is not None and output.exists() else []
    done = shown(attempts)
    folder = runs / "matrix" / time.strftime("%Y-%m-%dT%H%M%S")
    stop = StopRequest()
    with interruptible(stop), closing(_clusters(state_of(state_path), versions)) as clusters:
        for cluster in clusters:
            for attempt in Sweep(cluster, tries, folder, log, done).attempts(wanted, asked):
                attempts.append(attempt)
                log(describe_attempt(attempt))
                if output is not None:
                    append(output, attempt)
                if stop.is_set():
                    raise KeyboardInterrupt
    _conclude(attempts if output is None else read_attempts(output))


def _conclude(attempts: list[Attempt]) -> None:
    """Print the tables, and exit with the code of the worst attempt."""
    from harness.walkthroughs.matrix.cases import NOT_SHOWN
    from harness.walkthroughs.matrix.table import (
        describe_attempt,
        describe_cell,
        differing_cells,
        format_place,
        places,
    )

    for place in places(attempts):
        click.echo(f"Kafka {place[0]}, transaction.version {place[1]}")
        click.echo("\n".join(format_place(attempts, place)))
    differing = differing_cells(attempts)
    for cell in differing:
        log(f"attempts differ: {describe_attempt(cell[0])}: {describe_cell(cell)}")
    marks = {attempt.mark for attempt in attempts}
    if "broken" in marks:
        sys.exit(ExitCode.ANOMALY)
    if NOT_SHOWN in marks or differing:
        sys.exit(ExitCode.UNKNOWN)


def _clusters(state: State, versions: tuple[str, ...]) -> Generator[Cluster]:
    """Yield the cluster that is up, or one of each version; with each transaction version that it has."""
    from harness.cluster import lifecycle
    from harness.cluster.state_directory import State
    from harness.faults import FeatureLevel, inject
    from harness.provision.kafka_versions import KafkaFeature, check_version, supports

    if not versions:
        yield lifecycle.attach(state)
        return
    for version in map(check_version, versions):
        own = State(state.path.with_name(f"{state.path.name}-matrix-{version}"))
        try:
            cluster, _ = lifecycle.up(own, "process", "quick", log, kafka=version)
            yield cluster
            if supports(version, KafkaFeature.TRANSACTION_VERSION):
                with inject(cluster, FeatureLevel(level=1), "all"):
                    yield cluster
        finally:
            lifecycle.down(own)
