"""Options that several commands share, and the function that writes their progress lines."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.provision.paths import checkout_dir

if TYPE_CHECKING:
    from harness.cluster.state_directory import State


def log(line: str) -> None:
    """Write a progress line to stderr."""
    click.echo(line, err=True)


def state_option(function: click.decorators.FC) -> click.decorators.FC:
    """Add the option --state to a command."""
    default = ".eos" if checkout_dir() else "~/.local/state/eos-harness/eos"
    return click.option(
        "--state",
        "state_path",
        type=click.Path(path_type=Path),
        metavar="DIR",
        envvar="EOS_STATE",
        help=f"State directory of the cluster.  [default: {default}]",
    )(function)


def backend_option(function: click.decorators.FC) -> click.decorators.FC:
    """Add the option --backend to a command."""
    return click.option(
        "--backend",
        type=click.Choice(["auto", "compose", "process"]),
        metavar="NAME",
        default="auto",
        show_default=True,
        help="auto, compose or process.",
    )(function)


file_option = click.option(
    "--cluster",
    "cluster_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Cluster file of an external cluster.",
)
bootstrap_option = click.option(
    "--bootstrap", required=True, metavar="HOST:PORT", help="Brokers; not the proxies."
)


def bundle(
    name: str, kind: type[Any], *options: Callable[[Any], Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds options to a command.

    The command receives the values of these options in its parameter `name`, as an object of the dataclass
    `kind`.
    """
    names = [field.name for field in dataclasses.fields(kind)]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def bundled(**values: Any) -> Any:
            fields = {field: values.pop(field) for field in names}
            return function(**values, **{name: kind(**fields)})

        for option in reversed(options):
            bundled = option(bundled)
        return bundled

    return decorate


def state_of(path: Path | None) -> State:
    """Return the state directory at `path`, or the default one."""
    from harness.cluster.state_directory import State, default_state

    return State(path or default_state())


def parse_seconds(_: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Parse a duration with its unit, such as 60s. This is a callback of click."""
    from harness.base.errors import UsageError
    from harness.base.units import Duration

    try:
        return None if text is None else float(Duration.parse(text))
    except ValueError as error:
        raise UsageError(f"--{option.name}: {error}", f"write {Duration.allowed}") from error
