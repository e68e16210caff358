"""Commands about scenario files: list, show, new, plan."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.base.errors import UsageError
from harness.cli.options import (
    WholeNumber,
    bundle,
    check_writable,
    complete_scenario,
    json_option,
    log,
    parse_seconds,
    print_json,
)

if TYPE_CHECKING:
    from harness.scenario import Scenario
    from harness.scenario.plan import Plan


@dataclass(frozen=True)
class PlanOptions:
    """Options that determine the plan of a scenario."""

    seed: int | None = None
    changes: tuple[str, ...] = ()
    duration: float | None = None

    def overrides(self) -> dict[str, str]:
        """Return the values of --set, by key."""
        for change in self.changes:
            if "=" not in change:
                raise UsageError(
                    f"--set {change} has no value", "write --set key=value, such as --set plan.duration=60s"
                )
        return dict(change.split("=", 1) for change in self.changes)

    def scenario(self, name: str, *, external: bool = False) -> Scenario:
        """Return a scenario with the changes of --set; with `external`, it may name any broker."""
        from harness.scenario import find

        path = find(name)  # a wrong name is reported before the loader, which takes longer, is imported
        from harness.scenario import load

        return load(path, self.overrides(), external=external)

    def load(self, name: str, *, external: bool = False) -> tuple[Scenario, Plan]:
        """Return a scenario with the changes of --set, and a plan that is drawn from it."""
        if self.duration is not None and self.duration < 1:
            raise UsageError(f"--duration {self.duration:g}s is too short", "use --duration 1s or more")
        scenario = self.scenario(name, external=external)
        from harness.scenario import find
        from harness.scenario.loader import located
        from harness.scenario.plan import draw

        seed = random.SystemRandom().randrange(1_000_000) if self.seed is None else self.seed
        try:
            return scenario, draw(scenario, seed, self.duration)
        except UsageError as error:
            raise located(error, find(name), self.overrides()) from None

    def replay_command(self, name: str, seed: int, more: Sequence[str]) -> str:
        """Return the command that runs the same plan again."""
        from harness.scenario.plan import format_replay_command

        return format_replay_command(name, seed, self.overrides(), self.duration, more)


plan_options = bundle(
    "drawn",
    PlanOptions,
    click.option("--seed", type=WholeNumber(0), metavar="N", help="Seed of the plan.  [default: random]"),
    click.option(
        "--set",
        "changes",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change a key, such as workload.0.rate=500.",
    ),
    click.option("--duration", callback=parse_seconds, metavar="TIME", help="Time for faults, such as 60s."),
)


_scenario = click.argument("scenario", shell_complete=complete_scenario)


@click.command(
    "list",
    short_help="List the shipped scenarios.",
    epilog="\b\nExample:  eos list\n"
    "          eos list --json\n"
    "          eos list | grep walkthrough\n"
    "          eos list | less",
)
@json_option
def list_(*, as_json: bool) -> None:
    """List the shipped scenarios: kind, expected verdict, planned seconds, and what each one shows.

    The expected verdict is about the records: a scenario that breaks them on purpose expects invalid. A
    walkthrough whose hazard harms positions or producers, and no record, expects valid; its steps show the
    harm. The seconds are the time for the load and the faults. The start of a cluster, the checks and the
    report come on top. On a terminal, what a scenario shows is cut: `eos show NAME` prints the whole text.
    """
    from harness.scenario import shipped
    from harness.scenario.headline import read_headline

    headlines = [read_headline(path) for path in shipped()]
    if as_json:
        print_json(headlines)
        return
    from harness.report.text_format import format_table

    head = ("scenario", "kind", "expected", "seconds", "shows")
    shown = [
        (line.name, line.kind, line.expect, "-" if line.seconds is None else str(line.seconds), line.shows)
        for line in headlines
    ]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for line in format_table(shown, head, right=(3,)):
        click.echo(f"{line[: width - 3]}..." if 0 < width < len(line) else line)
    log("")
    log("invalid: records break on purpose; `eos list --help` explains the columns")


@click.command(
    short_help="Print a scenario file.",
    epilog="\b\nExample:  eos show jitter\n          eos show jitter > mine.toml",
)
@_scenario
def show(scenario: str) -> None:
    """Print the file of a scenario, to read it or to begin a scenario of your own with it."""
    from harness.base.strict_toml import text_in
    from harness.scenario import find, shipped

    path = find(scenario)
    if path not in shipped():
        from harness.scenario import load

        load(path, external=True)
    click.echo(text_in(path), nl=False)


@click.command(
    short_help="Write a scenario file to begin with.",
    epilog="\b\nExample:  eos new mine.toml\n          eos plan mine.toml\n          eos run mine.toml",
)
@click.argument("file", type=click.Path(path_type=Path))
def new(file: Path) -> None:
    """Write a new scenario file: clients, faults, and a comment for each key.

    docs/reference/scenario.md describes every key, fault and target.
    """
    from harness.scenario.new_scenario import NAME, text_of

    if file.suffix != ".toml" or not NAME.fullmatch(file.stem):
        raise UsageError(
            f"{str(file)!r} cannot be a scenario file",
            "name a file such as mine.toml: letters, digits, '.', '_' and '-'",
        )
    if not file.parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}", "make the folder first")
    check_writable(file.parent, "FILE")
    try:
        with file.open("x") as out:
            out.write(text_of(file.stem))
    except FileExistsError as error:
        raise UsageError(f"{file} exists", "use another name, or remove the file") from error
    log(f"wrote {file}; next: eos plan {file}, eos run {file}")


@click.command(
    short_help="Print when each fault of a scenario would hit which target.",
    epilog="\b\nExample:  eos plan demo --seed 7\n"
    "          eos plan jitter --duration 2m\n"
    "          eos plan jitter --set workload.0.rate=500\n"
    "          eos plan mine.toml --json",
)
@_scenario
@plan_options
@json_option
def plan(scenario: str, drawn: PlanOptions, *, as_json: bool) -> None:
    """Print the plan of a scenario: when each fault hits which target.

    The command touches no cluster. The same seed gives the same plan.
    """
    loaded, timetable = drawn.load(scenario, external=True)
    from harness.scenario.plan import brokers_of_others, faults_left_out

    header = loaded.scenario
    if as_json:
        from msgspec import structs

        from harness.scenario.headline import headline_of

        steps = [
            {
                "fault": step.entry.fault,
                "target": str(step.entry.target),
                "preview": step.entry.target.preview(step.seed),
                "at_s": step.at,
                "lasts_s": step.lasts,
                "throughout": step.entry.throughout,
                "parameters": step.entry.parameters,
            }
            for step in timetable.injections
        ]
        print_json(
            structs.asdict(headline_of(loaded))
            | {"seed": timetable.seed, "duration_s": timetable.duration, "faults": steps}
        )
        return
    click.echo(f"{loaded.name}, seed {timetable.seed}: {' '.join(header.shows.split())}")
    click.echo(f"expected: {header.expect} {' '.join(header.anomalies)}".rstrip())
    if loaded.walkthrough is not None:
        from harness.walkthroughs.catalogue import WALKTHROUGHS

        for number, title in enumerate(WALKTHROUGHS[loaded.walkthrough.steps].titles, 1):
            click.echo(f"  step {number}  {title}")
        return
    click.echo(f"{loaded.plan.steady:g} s without faults, then {timetable.duration:g} s with faults")
    for step in timetable.injections:
        click.echo(f"  {step.text}  -> {step.entry.target.preview(step.seed)}")
    left_out = faults_left_out(loaded, timetable)
    for note in filter(None, (timetable.delayed, timetable.waiting, left_out, brokers_of_others(loaded))):
        click.echo(note)
    click.echo("the seed replays this plan, not the timing of requests")
    click.echo(f"to run it: {drawn.replay_command(scenario, timetable.seed, [])}")
