"""What the commands share: the --state and --backend options, and how they talk."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.cluster.state_directory import State


def report(line: str) -> None:
    """Say what is being done, on stderr."""
    click.echo(line, err=True)


def state_option(function: click.decorators.FC) -> click.decorators.FC:
    """Add --state, the directory that stands for one cluster."""
    return click.option(
        "--state",
        "state_path",
        type=click.Path(path_type=Path),
        envvar="EOS_STATE",
        help="The directory that stands for the cluster: another one, another cluster.  [default: .eos]",
    )(function)


def backend_option(function: click.decorators.FC) -> click.decorators.FC:
    """Add --backend."""
    return click.option(
        "--backend",
        type=click.Choice(["auto", "compose", "process"]),
        default="auto",
        show_default=True,
        help="Containers, plain processes, or containers where a Docker engine answers.",
    )(function)


def state_of(path: Path | None) -> State:
    """The state directory that was named, or the checkout's own."""
    from harness.cluster.state_directory import State, default_state

    return State(path or default_state())


def write_report(directory: Path) -> Path:
    """Write the report of a run, with its sequence diagram where the run used the wire tap."""
    from harness.report.diagram.diagram_file import write as draw
    from harness.report.page import write

    if (directory / "frames.jsonl").exists() and not (directory / "diagram.svg").exists():
        draw(directory)
    return write(directory)


def keep_result(directory: Path, runs: Path) -> None:
    """Add the line of a run that was judged to the results of its folder, and write its report."""
    from harness.report import results

    results.append(runs / results.NAME, results.result_of(directory))
    write_report(directory)


def again(
    scenario: str, seed: int, changes: Mapping[str, str], duration: float | None, more: Sequence[str] = ()
) -> str:
    """The command that has the same plan again, as a person types it."""
    from harness.base.units import exact

    words = ["eos", "run", scenario, "--seed", str(seed)]
    words += [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    words += ["--duration", f"{exact(duration)}s"] if duration is not None else []
    return shlex.join([*words, *more])


def in_seconds(_: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Read an option that is a duration with its unit: a callback of click."""
    from harness.base.errors import UsageError
    from harness.base.units import Duration

    try:
        return None if text is None else float(Duration.parse(text))
    except ValueError as error:
        raise UsageError(f"--{option.name}: {error}", f"write {Duration.allowed}") from error
