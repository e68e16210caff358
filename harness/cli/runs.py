"""The commands that lead to a run: list, plan, run, verify, demo."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from harness.base.errors import ExitCode, UsageError
from harness.cli.external import ExternalOptions, external_options, run_external
from harness.cli.options import again, backend_option, in_seconds, keep_result, report, state_of, state_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.base.events import EventListener
    from harness.run import Outcome

RUNS: Final = Path("runs")


def _overrides(values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        if "=" not in value:
            raise UsageError(
                f"--set {value} has no value", "write --set key=value, such as --set plan.duration=60s"
            )
    return dict(value.split("=", 1) for value in values)


def scenario_options(function: click.decorators.FC) -> click.decorators.FC:
    """Add --seed, --set and --duration."""
    for option in (
        click.option("--duration", callback=in_seconds, help="How long faults are injected, such as 60s."),
        click.option(
            "--set",
            "changes",
            multiple=True,
            metavar="KEY=VALUE",
            help="Change a key of the scenario, such as workload.0.rate=500.",
        ),
        click.option("--seed", type=click.IntRange(0), help="Draw this plan again; else one is drawn."),
    ):
        function = option(function)
    return function


@click.command("list", epilog="Example:  eos list")
def list_() -> None:
    """Show the scenarios that come with the harness, and what each is expected to end with."""
    from harness.scenario import load, shipped

    for path in shipped():
        scenario = load(path)
        shows = " ".join(scenario.scenario.shows.split())
        click.echo(f"{scenario.name:24} {scenario.scenario.expect:8} {shows}")


@click.command(epilog="Example:  eos plan demo --seed 7")
@click.argument("scenario")
@scenario_options
def plan(scenario: str, seed: int | None, changes: tuple[str, ...], duration: float | None) -> None:
    """Print the drawn timetable and how its targets resolve; touches nothing."""
    from harness.scenario import find, load
    from harness.scenario.plan import draw

    loaded = load(find(scenario), _overrides(changes))
    drawn = draw(loaded, _seed(seed), duration)
    click.echo(f"{loaded.name}, seed {drawn.seed}: {' '.join(loaded.scenario.shows.split())}")
    click.echo(f"expected: {loaded.scenario.expect} {' '.join(loaded.scenario.anomalies)}".rstrip())
    if loaded.flow is not None:
        from harness.walkthroughs.stage import walkthrough_of

        for number, title in enumerate(walkthrough_of(loaded.flow.steps).TITLES, 1):
            click.echo(f"  step {number}  {title}")
        return
    click.echo(f"faults for {drawn.duration:g} s after {loaded.plan.steady:g} s without")
    for step in drawn.injections:
        click.echo(f"  {step.text}  -> {step.entry.target.preview(step.seed)}")
    click.echo("the seed replays this plan, not the timing of requests")


@click.command(
    epilog="\b\nExample:  eos run demo --seed 7 --set plan.duration=60s\n"
    "          eos run jitter --cluster live.toml --dry-run\n"
    "          eos run jitter --cluster live.toml --i-understand 4L6g3nShT-eMCtK--X86sw"
)
@click.argument("scenario")
@scenario_options
@backend_option
@click.option("--keep", is_flag=True, help="Leave a cluster up that this command started.")
@click.option(
    "--runs",
    type=click.Path(path_type=Path),
    default=RUNS,
    show_default=True,
    help="Where the run's directory is made.",
)
@click.option("--tries", type=click.IntRange(1), help="How often a flow that makes tries makes each of them.")
@click.option("--junit", type=click.Path(path_type=Path), help="Also write JUnit XML into this file.")
@external_options
@state_option
def run(
    scenario: str,
    seed: int | None,
    changes: tuple[str, ...],
    duration: float | None,
    backend: str,
    *,
    keep: bool,
    runs: Path,
    junit: Path | None,
    state_path: Path | None,
    tries: int | None,
    cluster_file: Path | None,
    understood: str,
    moves_foreign: bool,
    dry_run: bool,
) -> None:
    """Run a scenario on a cluster, started if none is up; the exit code is the verdict.

    With --cluster on one that is not ours: whatever speaks against it is told, and refused with exit code 5.
    """
    where = RunOptions(backend, keep, runs, state_path, junit)
    where.check()
    changed = _overrides(changes) | ({"flow.tries": str(tries)} if tries else {})
    live = ExternalOptions(cluster_file, understood, moves_foreign, dry_run)
    live.check()
    if live.file is not None:
        sys.exit(
            _execute_external(live, scenario, where, seed=_seed(seed), changes=changed, duration=duration)
        )
    outcome = execute(scenario, _seed(seed), changed, duration, where)
    sys.exit(outcome.exit_code)


DEMO_SCENARIOS: Final = ("everything", "without-idempotence")
"""What the demo runs: one that must hold, and a planted fault that must be found."""


@click.command(epilog="Example:  eos demo")
@backend_option
@click.option("--keep", is_flag=True, help="Leave the cluster up, to look around.")
def demo(backend: str, *, keep: bool) -> None:
    """Start a cluster, break it under load, say the verdict; then plant a fault that must be found."""
    from harness.cluster import lifecycle
    from harness.provision.paths import checkout_dir

    state = state_of(checkout_dir() / ".eos-demo")
    where = RunOptions(backend, True, RUNS, state.path)
    where.check()
    shown: list[Outcome] = []
    try:
        for name in DEMO_SCENARIOS:
            shown.append(execute(name, _seed(None), {}, None, where))
            if shown[-1].interrupted:
                break
    finally:
        if not keep and lifecycle.down(state):
            report("removed the demo's cluster (--keep leaves it up)")
    for outcome in shown:
        found = ", ".join(sorted(set(outcome.judgement.names()))) or "no anomaly"
        expected = "as expected" if outcome.expected else "NOT as expected"
        verdict = str(outcome.judgement.verdict)
        click.echo(f"{outcome.scenario:20} {verdict:8} {found}, {expected}   {outcome.directory}")
    report("")
    report(f"look further:  {shown[0].directory}/report.html   in a browser")
    report(f"               eos check {shown[0].directory}   the verdict again, offline, with its evidence")
    report(f"               less {shown[0].directory}/history/*.jsonl   what every client was told")
    report("               eos list   other scenarios;   eos up   a cluster to try things on")
    sys.exit(surprise_of(shown))


def surprise_of(shown: Sequence[Outcome]) -> int:
    """The exit code of a demo: 0 if every run ended as it was expected to.

    The planted fault that was found is what was wanted; that it was not found is no success, though its run
    is valid then.
    """
    surprises = [one for one in shown if one.interrupted or not one.expected]
    return max((max(one.exit_code, ExitCode.ANOMALY) for one in surprises), default=ExitCode.VALID)


@click.command(
    epilog="Example:  eos verify --bootstrap localhost:9092 --topic orders --ledger runs/mine/latest"
)
@click.option("--bootstrap", required=True, help="Brokers of a listener that no fault touches.")
@click.option("--topic", "topics", required=True, multiple=True, help="What to read; may be given again.")
@click.option("--ledger", type=click.Path(path_type=Path), help="The run that wrote them, by its directory.")
@click.option("--master", help="Where Spark runs, such as spark://host:7077.  [default: this machine]")
def verify(bootstrap: str, topics: tuple[str, ...], ledger: Path | None, master: str | None) -> None:
    """Let Spark read topics, read_committed to their frozen ends, and say what is wrong with them.

    Without a ledger it says what the records alone tell (holes, duplicates, order, records that were meant
    to be aborted), and what it could not check.
    """
    from harness.evidence.checkers.model import Expect
    from harness.evidence.run_directory import RunDirectory
    from harness.witness.spark.spark_session import DEFAULT_MASTER
    from harness.witness.spark.topic_verification import verify_topics
    from harness.witness.spark.verify_report import exit_code_of, format_verification

    run = RunDirectory.open(ledger) if ledger else None
    found = verify_topics(
        bootstrap,
        topics,
        master=master or DEFAULT_MASTER,
        report=report,
        history=run.histories if run else None,
        expect=run.read("expect.json", Expect, Expect()) if run else None,
    )
    click.echo("\n".join(format_verification(found)))
    sys.exit(exit_code_of(found))


class RunOptions(NamedTuple):
    """What a run is executed on, and what becomes of it."""

    backend: str
    keep: bool
    runs: Path
    state: Path | None
    junit: Path | None = None

    def check(self) -> None:
        """Refuse now what could not be written when the cluster is up."""
        runs = self.runs.absolute()
        there = next(path for path in (runs, *runs.parents) if path.exists())
        if not there.is_dir() or not os.access(there, os.W_OK):
            problem = "may not be written to" if there.is_dir() else "is a file"
            raise UsageError(f"--runs {self.runs}: {there} {problem}", "name a folder; it is made if need be")
        if self.junit and (self.junit.is_dir() or not self.junit.parent.is_dir()):
            raise UsageError(
                f"--junit {self.junit} cannot be written", "name a file in a folder that is there"
            )

    def words(self) -> list[str]:
        """What was typed of it, for who wants to have the same again."""
        words = ["--backend", self.backend] if self.backend != "auto" else []
        words += ["--runs", str(self.runs)] if self.runs != RUNS else []
        words += ["--state", str(self.state)] if self.state else []
        return words + (["--keep"] if self.keep else [])

    def listeners(self) -> list[EventListener]:
        """Who is told of what happens in the run."""
        from harness.report.console import Console
        from harness.report.github import GitHub, in_actions
        from harness.report.junit import JUnit

        listeners: list[EventListener] = [Console()]
        listeners += [JUnit(self.junit)] if self.junit else []
        return listeners + ([GitHub()] if in_actions() else [])


def execute(
    name: str, seed: int, changes: dict[str, str], duration: float | None, where: RunOptions
) -> Outcome:
    """Bring a cluster up if none is, run the scenario on it, and take down what was started for it."""
    from harness.cluster import lifecycle
    from harness.report.recorder import Recorder
    from harness.run import make_run
    from harness.scenario import find, load
    from harness.scenario.plan import draw

    loaded = load(find(name), changes)
    drawn = draw(loaded, seed, duration)
    state = state_of(where.state)
    cluster, started = lifecycle.up(state, where.backend, loaded.cluster.profile, report)  # type: ignore[arg-type]
    try:
        for entry in loaded.fault:
            cluster.require(entry.capability)
        run = make_run(cluster, loaded, drawn, where.runs, where.listeners())
        run.again = again(name, drawn.seed, changes, duration, where.words())
        with Recorder(run.directory.path) as recorder:
            run.listen(recorder)
            outcome = run.execute()
        keep_result(outcome.directory, where.runs)
        return outcome
    finally:
        if started and not where.keep:
            report("removing the cluster that was started for this run (--keep leaves it up)")
            lifecycle.down(state)


def _execute_external(
    live: ExternalOptions,
    name: str,
    where: RunOptions,
    *,
    seed: int,
    changes: dict[str, str],
    duration: float | None,
) -> int:
    from harness.cluster.state_directory import State
    from harness.scenario import find, load
    from harness.scenario.plan import draw

    loaded = load(find(name), changes)
    drawn = draw(loaded, seed, duration)
    state = State(where.state) if where.state else None
    said = again(name, drawn.seed, changes, duration, [*live.words(), *where.words()])
    return run_external(
        live, loaded, drawn, where.runs, state, keep=where.keep, listeners=where.listeners, again=said
    )


def _seed(seed: int | None) -> int:
    return random.SystemRandom().randrange(1_000_000) if seed is None else seed


COMMANDS = (list_, plan, run, verify, demo)
