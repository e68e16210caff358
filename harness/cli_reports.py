"""The commands that read runs which are over: report, compare, index, results."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli_common import write_report


@click.command(epilog="Example:  eos report runs/demo/latest")
@click.argument("directory", type=click.Path(path_type=Path))
def report(directory: Path) -> None:
    """Write report.html of a run: one file, for a browser or a printer, with the evidence in it."""
    click.echo(write_report(directory))


@click.command(epilog="Example:  eos compare runs/demo/2026-11-18T101500-7 runs/demo/latest")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
def compare(first: Path, second: Path) -> None:
    """Show what two runs differ in: verdict, what was compared, limits, faults, versions."""
    from harness.report.compare import differences

    click.echo("\n".join(differences(first, second)))


@click.command(epilog="Example:  eos index runs")
@click.argument("runs", type=click.Path(path_type=Path), default=Path("runs"))
def index(runs: Path) -> None:
    """Write index.html over all runs of a folder, the newest first."""
    from harness.report.index import write

    click.echo(write(runs))


@click.command(epilog="Example:  eos results runs/results.jsonl")
@click.argument("file", type=click.Path(path_type=Path), default=Path("runs/results.jsonl"))
def results(file: Path) -> None:
    """Show what all runs of a folder came to: verdicts by scenario, recovery times by fault."""
    from harness.report.results import read, tell

    click.echo("\n".join(tell(read(file))))


COMMANDS = (report, compare, index, results)
