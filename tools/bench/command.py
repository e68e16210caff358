"""The options and the error handling that all benchmarks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from harness.base.errors import HarnessError
from harness.cli.options import log, state_of
from harness.cluster import lifecycle
from harness.cluster.broker_settings import Profile
from harness.cluster.cluster import Cluster
from harness.cluster.state_directory import BackendChoice

Decorator = Callable[[Any], Any]


class _Benchmark(click.Command):
    """A command that prints an expected error with its hint, and exits with the error's code."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except HarnessError as error:
            log(f"error: {error.message}\n\nhint: {error.hint}")
            context.exit(error.exit_code)


def benchmark(name: str, example: str = "") -> Decorator:
    """Return a decorator that makes a function the command of the benchmark `tools.bench.NAME`."""
    epilog = f"Example:  python -m tools.bench.{name} {example}".rstrip()
    return click.command(name=name, cls=_Benchmark, epilog=epilog)


def records_option(default: int, what: str = "Records per run.") -> Decorator:
    """Return a decorator that adds the option --records to a command."""
    return number_option("--records", default, what)


def rounds_option(default: int, what: str = "Number of rounds that count.") -> Decorator:
    """Return a decorator that adds the option --rounds to a command."""
    return number_option("--rounds", default, what)


def seconds_option(default: float, what: str, name: str = "--seconds") -> Decorator:
    """Return a decorator that adds an option for a number of seconds to a command.

    The option is --seconds, unless `name` names another one.
    """
    return click.option(
        name, type=click.FloatRange(0), metavar="S", default=default, show_default=True, help=what
    )


def sizes_option(name: str, default: tuple[int, ...], what: str) -> Decorator:
    """Return a decorator that adds an option for one or more sizes to a command.

    The command receives the sizes as a tuple named `sizes`.
    """
    return click.option(
        name,
        "sizes",
        type=click.IntRange(1),
        metavar="N",
        multiple=True,
        default=default,
        show_default=True,
        help=f"{what} Repeatable.",
    )


def number_option(name: str, default: int, what: str) -> Decorator:
    """Return a decorator that adds an option for a number of 1 or more to a command."""
    return click.option(
        name, type=click.IntRange(1), metavar="N", default=default, show_default=True, help=what
    )


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
keep_option = click.option("--keep", is_flag=True, help="Leave a cluster up that this command started.")


def spark_options(function: Any) -> Any:
    """Add the options --master and --heap to a command."""
    from harness.witness.spark.spark_session import DEFAULT_MASTER

    master = click.option(
        "--master", metavar="URL", default=DEFAULT_MASTER, show_default=True, help="Spark master."
    )
    heap = click.option(
        "--heap", metavar="SIZE", default="2g", show_default=True, help="Heap of the Spark driver."
    )
    return master(heap(function))


@contextmanager
def cluster_up(
    backend: BackendChoice,
    state_path: Path | None,
    profile: Profile,
    *,
    keep: bool = False,
    internal_tap: bool = False,
) -> Iterator[Cluster]:
    """Yield the cluster that is already up or, if there is none, start one and yield it.

    After the block, remove the cluster if this function started it, unless `keep` is set.
    """
    state = state_of(state_path)
    cluster, started = lifecycle.up(state, backend, profile, log, internal_tap=internal_tap)
    try:
        yield cluster
    finally:
        if started and not keep:
            lifecycle.down(state)
