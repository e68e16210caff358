"""The commands that begin with runs which are over: check, report, diagram, compare, results, shrink."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from harness.base.errors import ExitCode
from harness.cli.options import backend_option, in_seconds, state_of, state_option, write_report
from harness.cli.options import report as say


@click.command(epilog="Example:  eos check runs/demo/latest")
@click.argument("directory", type=click.Path(path_type=Path))
def check(directory: Path) -> None:
    """Judge a run again from its directory: no cluster, no Java, the same bytes."""
    from harness.evidence.checkers.check_run import check_run, describe

    code, judgement = check_run(directory)
    click.echo(describe(judgement), nl=False)
    sys.exit(code)


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
    from harness.report.results import format_results, read

    click.echo("\n".join(format_results(read(file))))


@click.command(epilog="Example:  eos late runs/slow-links/*")
@click.argument("directories", type=click.Path(path_type=Path), nargs=-1, required=True)
def late(directories: tuple[Path, ...]) -> None:
    """Show which transactions are not read as their client was told, and which a late EndTxn has broken.

    Of runs whose clients passed the wire tap; with how often that is, all runs together.
    """
    from harness.report.late_endtxn_audit import broken_of
    from harness.report.proportions import in_a_thousand

    found, transactions = [], 0
    for directory in dict.fromkeys(directory.resolve() for directory in directories):
        broken, judged = broken_of(directory)
        transactions += judged
        click.echo(f"{directory.name}: {len(broken)} of {judged} transactions are broken")
        for one in broken:
            click.echo(f"  {one.text}")
        found += broken
    if not transactions:
        say("nothing was judged: these runs have no transactions that were read back")
        sys.exit(ExitCode.UNKNOWN)
    hits = sum(one.late for one in found)
    click.echo(f"by a late EndTxn: {in_a_thousand(hits, transactions)}")
    click.echo(f"of another kind: {in_a_thousand(len(found) - hits, transactions)}")


@click.command(epilog="Example:  eos diagram runs/mine/latest --transactional-id orders-1.ab12cd34")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--transactional-id", help="Draw this transactional id alone.")
@click.option("--from", "first", type=float, default=0.0, help="Seconds after the first frame.")
@click.option("--to", "last", type=float, default=1e6, help="Seconds after the first frame.")
@click.option("--most", type=click.IntRange(1), default=120, show_default=True, help="How many steps.")
@click.option("--everything", is_flag=True, help="Also metadata, fetches and what else is left out.")
def diagram(
    directory: Path, transactional_id: str | None, first: float, last: float, most: int, *, everything: bool
) -> None:
    """Draw what passed between clients and brokers in a run that used the wire tap, as Mermaid and SVG."""
    from harness.report.diagram.diagram_file import write
    from harness.report.diagram.sequence import SequenceFilter

    wanted = SequenceFilter(
        window=(first, last), transactional_id=transactional_id, most=most, everything=everything
    )
    drawn, files = write(directory, wanted)
    say(drawn.text)
    for path in files:
        click.echo(path)


@click.command(epilog="Example:  eos walkthrough runs/idempotent-walkthrough/latest > page.md")
@click.argument("directory", type=click.Path(path_type=Path))
def walkthrough(directory: Path) -> None:
    """Print a walkthrough as a page: textbook claims and observations, evidence, sequence diagram."""
    from harness.walkthroughs.walkthrough_page import document

    click.echo(document(directory), nl=False)


@click.command(epilog="Example:  eos shrink runs/everything/latest --budget 15m")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--budget",
    default="10m",
    show_default=True,
    callback=in_seconds,
    help="How long to search; repeats come after it.",
)
@click.option(
    "--tries",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Runs of a candidate before it is given up: timing is not replayed.",
)
@click.option(
    "--repeats",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Runs of the result, to say how often it breaks.",
)
@backend_option
@state_option
def shrink(
    directory: Path, *, budget: float, tries: int, repeats: int, backend: str, state_path: Path | None
) -> None:
    """Search a smaller scenario that breaks as an invalid run did, and write it into the run's directory."""
    from harness.cluster import lifecycle
    from harness.run.shrink import SearchLimits, failed_run
    from harness.run.shrink import shrink as search

    state = state_of(state_path)
    failed = failed_run(directory)
    profile = failed.scenario.cluster.profile
    cluster, started = lifecycle.up(state, backend, profile, say)  # type: ignore[arg-type]
    try:
        click.echo(search(cluster, failed, SearchLimits(budget, tries, repeats), say))
    finally:
        if started:
            lifecycle.down(state)


COMMANDS = (check, report, compare, index, results, late, diagram, walkthrough, shrink)
