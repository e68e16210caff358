"""All benchmarks in one run: a page of figures with their targets, and a history that shows regressions."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from harness.base.errors import HarnessError, UsageError
from harness.cli.options import backend_option, log
from harness.cluster.state_directory import BackendChoice
from harness.report.text_format import format_table
from tools.bench.command import benchmark
from tools.bench.figure import Figure
from tools.bench.interleaved_runs import WIDEST, Spread

HISTORY: Final = Path("bench-history.jsonl")
RECENT: Final = 5
"""Number of earlier runs with which a figure is compared."""
_WITH_CLUSTER: Final = ("--backend", "{backend}")
BENCHMARKS: Final[dict[str, Sequence[str]]] = {
    "startup": ("--rounds", "3", *_WITH_CLUSTER),
    "checker": ("--transactions", "1000000", "--transactions", "10000000"),
    "producers": ("--part", "transactions", "--part", "bookkeeping", "--rounds", "4", *_WITH_CLUSTER),
    "tap": ("--rounds", "4", *_WITH_CLUSTER),
    "verify": ("--records", "3600000", "--rounds", "4", *_WITH_CLUSTER),
    "scale": ("--rows", "10000000"),
    "app": ("--records", "4000000", "--rounds", "4", *_WITH_CLUSTER),
}
"""The benchmarks of the page in their order, each with its arguments."""


def run_benchmark(name: str, backend: str) -> list[Figure]:
    """Run a benchmark in its own process, and return its figures. Its messages go to standard error.

    Raise HarnessError if it prints no figures. A missed target is not an error.
    """
    arguments = [argument.format(backend=backend) for argument in BENCHMARKS[name]]
    command = [sys.executable, "-m", f"tools.bench.{name}", *arguments, "--json"]
    log(f"=== {name}: {' '.join(command[1:])}")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    try:
        return [Figure.of(plain) for plain in json.loads(done.stdout)["figures"]]
    except (json.JSONDecodeError, KeyError) as error:
        problem = f"the benchmark `{name}` ended with exit code {done.returncode} and printed no figures"
        raise HarnessError(problem, "read its messages above") from error


class Entry(msgspec.Struct):
    """A line of the history: the figures of one benchmark, with its time, machine and load."""

    at: str
    machine: str
    load: float
    figures: list[dict[str, Any]]


def recent_medians(history: Iterable[Entry], machine: str) -> dict[tuple[str, str], list[float]]:
    """Return the latest medians of each figure on a machine, by the figure's name and unit."""
    medians: dict[tuple[str, str], list[float]] = {}
    for entry in history:
        for plain in entry.figures if entry.machine == machine else ():
            medians.setdefault((plain["name"], plain["unit"]), []).append(plain["median"])
    return {key: values[-RECENT:] for key, values in medians.items()}


def change_of(figure: Figure, earlier: Sequence[float]) -> str:
    """Return how a figure differs from earlier runs, as text. It is empty without earlier runs.

    A figure with a target is worse if its median is on the wrong side of the earlier median by more than
    WIDEST.
    """
    if not earlier:
        return ""
    median, before = Spread.over(figure.values).median, Spread.over(earlier).median
    if not before:
        return ""
    change = median / before - 1
    worse = (figure.most is not None and change > WIDEST) or (figure.least is not None and change < -WIDEST)
    return f"{change:+.0%}{', WORSE' if worse else ''}"


def read_history(path: Path) -> list[Entry]:
    """Return the entries of a history file. A file that does not exist has none."""
    if not path.exists():
        return []
    try:
        return msgspec.json.Decoder(Entry).decode_lines(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path} is no history of benchmarks", "name another file with --history") from error


def add_entry(path: Path, machine: str, load: float, figures: list[Figure]) -> None:
    """Append the figures of a benchmark to a history file."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    entry = Entry(now, machine, round(load, 1), [figure.plain() for figure in figures])
    with path.open("ab") as file:
        file.write(msgspec.json.Encoder().encode_lines([entry]))


def page(measured: dict[str, list[Figure]], earlier: dict[tuple[str, str], list[float]]) -> list[str]:
    """Return the lines of the page: a table of all figures, by benchmark."""
    rows = [
        (
            "" if number else name,
            *figure.cells(),
            change_of(figure, earlier.get((figure.name, figure.unit), ())),
        )
        for name, figures in measured.items()
        for number, figure in enumerate(figures)
    ]
    return format_table(rows, ("benchmark", "figure", "median (quartiles)", "target", "", "against earlier"))


@benchmark("page", "--only checker --only verify")
@click.option(
    "--only", multiple=True, type=click.Choice(list(BENCHMARKS)), help="Run this benchmark; repeatable."
)
@click.option(
    "--history",
    type=click.Path(dir_okay=False, path_type=Path),
    default=HISTORY,
    show_default=True,
    help="File to which the figures are added, and with which they are compared.",
)
@backend_option
def main(only: tuple[str, ...], history: Path, backend: BackendChoice) -> None:
    """Measure every figure that the documentation quotes, and print one page.

    The benchmarks run one after the other, each in its own process. Figures on a shared machine vary, so most
    are ratios within a round, with quartiles. The last column compares a figure with the median of the latest
    runs on the same machine. Figures are added to the history after each benchmark. If a benchmark prints no
    figures, the others run all the same. The exit code is 1 if one did, or if a target was missed.
    """
    machine = f"{platform.node()}, {os.cpu_count()} cores, {platform.machine()}"
    entries, load = read_history(history), os.getloadavg()[0]
    measured: dict[str, list[Figure]] = {}
    failures: list[str] = []
    for name in only or BENCHMARKS:
        start = time.monotonic()
        try:
            measured[name] = run_benchmark(name, backend)
        except HarnessError as error:
            failures.append(f"{error.message}: {error.hint}, and repeat it with --only {name}")
            continue
        add_entry(history, machine, load, measured[name])
        log(f"=== {name} took {time.monotonic() - start:.0f} s")
    click.echo("\n".join([*page(measured, recent_medians(entries, machine)), *failures]))
    click.echo(f"\n{machine}; load average before {load:.1f}")
    held = all(figure.held for figures in measured.values() for figure in figures)
    sys.exit(0 if held and not failures else 1)


if __name__ == "__main__":
    main()
