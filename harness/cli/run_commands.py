"""Commands that make runs: run, demo, shrink."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from harness.base.errors import ExitCode, UsageError
from harness.cli.options import (
    RUNS,
    WholeNumber,
    backend_option,
    bundle,
    check_writable,
    complete_run,
    complete_scenario,
    file_option,
    kafka_options,
    log,
    parse_seconds,
    state_of,
    state_option,
    verbose_option,
)
from harness.cli.scenario_commands import PlanOptions, plan_options

if TYPE_CHECKING:
    from harness.base.events import EventListener
    from harness.cluster.state_directory import BackendChoice
    from harness.run import Outcome

DEMO_SCENARIOS: Final = ("demo", "without-idempotence")
"""Scenarios of `eos demo`. The first must be valid. The second has a planted fault that must be found."""


@dataclass(frozen=True)
class RunOptions:
    """Options that determine the cluster of a run and where its files are written."""

    backend: BackendChoice
    keep: bool
    runs: Path
    state_path: Path | None
    junit: Path | None = None
    quiet: bool = False
    verbose: bool = False
    kafka: str = ""
    kafka_image: str = ""
    expected: bool = False
    """Whether a run with the expected verdict is a success, whatever the verdict is."""

    def check(self) -> None:
        """Raise UsageError before the run if its folder or its JUnit file cannot be written."""
        check_writable(self.runs, "--runs")
        if self.junit is not None:
            if self.junit.is_dir() or not self.junit.parent.is_dir():
                hint = "name a file in an existing folder"
                raise UsageError(f"--junit {self.junit} cannot be written", hint)
            check_writable(self.junit.parent, "--junit")
        check_writable(state_of(self.state_path).path, "--state")

    def command_line_args(self) -> list[str]:
        """Return the arguments that differ from the defaults, for the replay command."""
        args = ["--backend", self.backend] if self.backend != "auto" else []
        args += ["--runs", str(self.runs)] if self.runs != RUNS else []
        args += ["--state", str(self.state_path)] if self.state_path else []
        args += ["--kafka-image", self.kafka_image] if self.kafka_image else []
        args += ["--expected"] if self.expected else []
        return args + (["--keep"] if self.keep else [])

    def exit_code_of(self, outcome: Outcome) -> int:
        """Return the exit code of a run."""
        return outcome.exit_code_as_expected if self.expected else outcome.exit_code

    def listeners(self) -> list[EventListener]:
        """Return the event listeners that present the run: console, JUnit file, GitHub annotations."""
        from harness.report.console import Console
        from harness.report.github import GitHub, in_actions
        from harness.report.junit import JUnit

        listeners: list[EventListener] = [Console(quiet=self.quiet, verbose=self.verbose)]
        listeners += [JUnit(self.junit, as_expected=self.expected)] if self.junit else []
        return listeners + ([GitHub()] if in_actions() else [])


runs_option = click.option(
    "--runs",
    type=click.Path(path_type=Path),
    metavar="DIR",
    default=RUNS,
    show_default=True,
    help="Folder for run directories.",
)

run_options = bundle(
    "where",
    RunOptions,
    backend_option,
    click.option("--keep", is_flag=True, help="Leave the cluster up that this command started."),
    runs_option,
    click.option(
        "--junit", type=click.Path(path_type=Path), metavar="FILE", help="Write JUnit XML to this file too."
    ),
    click.option("--quiet", "-q", is_flag=True, help="Print only the verdict and the report's path."),
    verbose_option,
    click.option("--expected", is_flag=True, help="Exit with 0 if the verdict is the expected one."),
    kafka_options,
    state_option,
)


@dataclass(frozen=True)
class ExternalOptions:
    """Options of a run on an external cluster, including the user's consent to use that cluster."""

    cluster_file: Path | None
    understood: str
    moves_foreign: bool
    dry_run: bool

    def check(self) -> None:
        """Raise UsageError if an option that needs --cluster is given without it."""
        if self.cluster_file is None and (self.understood or self.moves_foreign or self.dry_run):
            raise UsageError(
                "--i-understand, --move-foreign and --dry-run need --cluster",
                "name the file of the external cluster: --cluster FILE (docs/external-cluster.md)",
            )

    def command_line_args(self) -> list[str]:
        """Return the arguments that the user gave, for the replay command."""
        args = ["--cluster", str(self.cluster_file)]
        args += ["--i-understand", self.understood] if self.understood else []
        return args + (["--move-foreign"] if self.moves_foreign else [])


external_options = bundle(
    "external",
    ExternalOptions,
    file_option,
    click.option(
        "--i-understand",
        "understood",
        default="",
        metavar="ID",
        help="Agree to use the cluster with this id.",
    ),
    click.option(
        "--move-foreign",
        "moves_foreign",
        is_flag=True,
        help="Allow faults that move leaders of other topics.",
    ),
    click.option("--dry-run", is_flag=True, help="With --cluster: print what a run would do."),
)


@click.command(
    short_help="Run a scenario; the exit code is the verdict.",
    epilog="\b\nExample:  eos run demo --seed 7\n"
    "          eos run jitter --duration 2m --set workload.0.rate=500\n"
    "          eos run leader-kills --kafka 4.1.2\n"
    "          eos run without-idempotence --expected --junit out.xml -q\n"
    "          eos run jitter --cluster staging.toml --dry-run\n"
    "          eos run jitter --cluster staging.toml --i-understand CLUSTER_ID",
)
@click.argument("scenario", shell_complete=complete_scenario)
@plan_options
@run_options
@click.option("--tries", type=WholeNumber(1), metavar="N", help="Attempts per case of a walkthrough.")
@external_options
def run(
    scenario: str, drawn: PlanOptions, where: RunOptions, external: ExternalOptions, tries: int | None
) -> None:
    """Run a scenario; the exit code is the verdict.

    SCENARIO is the name of a shipped scenario, or a .toml file. The command starts a cluster if none is up.
    With --cluster it uses an external cluster, after checks that refuse every run that could do harm (exit
    code 5). A negative control must end with an anomaly, so its exit code is 1; with --expected it is 0.
    """
    where.check()
    external.check()
    if tries is not None:
        if drawn.scenario(scenario).walkthrough is None:
            raise UsageError(f"--tries: {scenario} is not a walkthrough", "`eos list` shows the walkthroughs")
        drawn = replace(drawn, changes=(*drawn.changes, f"walkthrough.tries={tries}"))
    if external.cluster_file is not None:
        if where.kafka or where.kafka_image:
            hint = "an external cluster has its own version"
            raise UsageError("--kafka and --cluster exclude each other", hint)
        sys.exit(_run_external(external.cluster_file, external, scenario, drawn, where))
    sys.exit(where.exit_code_of(execute(scenario, drawn, where)))


@click.command(
    short_help="Start a cluster, inject faults, then find a planted fault.",
    epilog="\b\nExample:  eos demo\n"
    "          eos demo --seed 7\n"
    "          eos demo --backend process --keep\n"
    "          eos demo --runs /tmp/runs --verbose",
)
@click.option("--seed", type=WholeNumber(0), metavar="N", help="Seed of both plans.  [default: random]")
@backend_option
@click.option("--keep", is_flag=True, help="Leave the cluster up.")
@runs_option
@verbose_option
@kafka_options
def demo(
    seed: int | None,
    backend: BackendChoice,
    runs: Path,
    *,
    keep: bool,
    verbose: bool,
    kafka: str,
    kafka_image: str,
) -> None:
    """Run the scenario demo, then find a planted fault.

    The command starts its own cluster. First, it injects faults into clients and nodes: the verdict must be
    valid. Then it runs a producer without idempotence (scenario without-idempotence): the verdict must be
    invalid.
    """
    from harness.cluster import lifecycle
    from harness.provision.paths import state_dir

    state = state_of(state_dir("eos-demo"))
    where = RunOptions(backend, True, runs, state.path, verbose=verbose, kafka=kafka, kafka_image=kafka_image)
    # The cluster of the demo is removed at its end, so a replay uses the default one.
    replay = replace(where, keep=False, state_path=None).command_line_args()
    where.check()
    outcomes: list[Outcome] = []
    try:
        for name in DEMO_SCENARIOS:
            outcomes.append(execute(name, PlanOptions(seed=seed), where, replay))
            if outcomes[-1].interrupted:
                break
    finally:
        if not keep and lifecycle.down(state):
            log("removed the cluster of the demo (--keep leaves it up)")
    for outcome in outcomes:
        anomalies = ", ".join(sorted(set(outcome.judgement.names()))) or "no anomaly"
        expected = "as expected" if outcome.expected else "NOT as expected"
        verdict = str(outcome.judgement.verdict)
        click.echo(f"{outcome.scenario:20} {verdict:8} {anomalies}, {expected}   {_shown(outcome.directory)}")
    directory = _shown(outcomes[0].directory)
    log("")
    log("next:")
    for outcome in outcomes:
        log(f"  {_shown(outcome.directory)}/report.html   the report of {outcome.scenario}, for a browser")
    log(f"  eos check {directory}   check the run again, offline")
    log(f"  less {directory}/history/*.jsonl   requests of every client and their answers")
    log("  eos list   other scenarios")
    log("  eos up   a cluster to experiment with")
    sys.exit(demo_exit_code(outcomes))


def _shown(path: Path | str) -> Path:
    """Return the path of a run as a user in this folder types it."""
    here, directory = Path.cwd(), Path(path)
    return directory.relative_to(here) if directory.is_relative_to(here) else directory


def demo_exit_code(outcomes: Sequence[Outcome]) -> int:
    """Return 0 if every run of the demo ended as its scenario expects.

    If the planted fault is not found, its run is valid, but the demo has failed.
    """
    surprises = [outcome for outcome in outcomes if outcome.interrupted or not outcome.expected]
    return max((max(outcome.exit_code, ExitCode.ANOMALY) for outcome in surprises), default=ExitCode.VALID)


@click.command(
    short_help="Search for a smaller scenario that breaks like an invalid run.",
    epilog="\b\nExample:  eos shrink runs/mine/latest\n"
    "          eos shrink runs/mine/latest --budget 15m\n"
    "          eos shrink runs/mine/latest --most-runs 20 --repeats 5\n"
    "          eos shrink runs/mine/latest --backend process",
)
@click.argument("directory", type=click.Path(path_type=Path), shell_complete=complete_run)
@click.option(
    "--budget",
    metavar="TIME",
    default="10m",
    show_default=True,
    callback=parse_seconds,
    help="Time to search, without repeats.",
)
@click.option("--most-runs", type=WholeNumber(1), metavar="N", help="Maximum runs.  [default: no limit]")
@click.option(
    "--tries",
    type=WholeNumber(1),
    metavar="N",
    default=2,
    show_default=True,
    help="Maximum runs of each candidate.",
)
@click.option(
    "--repeats", type=WholeNumber(1), metavar="N", default=3, show_default=True, help="Runs of the result."
)
@backend_option
@state_option
def shrink(
    directory: Path,
    *,
    budget: float,
    most_runs: int | None,
    tries: int,
    repeats: int,
    backend: BackendChoice,
    state_path: Path | None,
) -> None:
    """Search for a smaller scenario that breaks as an invalid run did.

    The result is written to shrunk.toml in the directory of the run. A seed does not replay the timing, so
    each candidate is run several times. The result is also run several times, to count how often it breaks.
    """
    from harness.cluster import lifecycle
    from harness.run.shrink import SearchLimits, failed_run
    from harness.run.shrink import shrink as search

    state = state_of(state_path)
    failed = failed_run(directory)
    needs = failed.scenario.cluster
    cluster, started = lifecycle.up(
        state, backend, needs.profile, log, internal_tap=needs.internal_tap, kafka=needs.kafka
    )
    try:
        click.echo(search(cluster, failed, SearchLimits(budget, tries, repeats, most_runs), log))
    finally:
        if started:
            lifecycle.down(state)


def execute(name: str, drawn: PlanOptions, where: RunOptions, replay: Sequence[str] | None = None) -> Outcome:
    """Run a scenario.

    If no cluster is up, start one first, and remove it afterwards unless --keep is set. `replay` are the
    arguments of the replay command, by default those of `where`.
    """
    scenario, timetable = drawn.load(name)

    import msgspec

    from harness.cluster import lifecycle
    from harness.run import make_run
    from harness.run.factory import check_machine, kafka_arguments
    from harness.scenario.kafka_needs import check_kafka

    check_machine(scenario)
    state = state_of(where.state_path)
    needs = scenario.cluster
    kafka = where.kafka or ("" if where.kafka_image else needs.kafka)
    if kafka:
        check_kafka(scenario, kafka)
    cluster, started = lifecycle.up(
        state,
        where.backend,
        needs.profile,
        log,
        internal_tap=needs.internal_tap,
        kafka=kafka,
        kafka_image=where.kafka_image,
    )
    try:
        for entry in scenario.fault:
            cluster.require(entry.capability)
        if where.kafka:
            needs = msgspec.structs.replace(needs, kafka=where.kafka)
            scenario = msgspec.structs.replace(scenario, cluster=needs)
        given = where.command_line_args() if replay is None else replay
        more = [*given, *kafka_arguments(cluster, drawn.scenario(name))]
        command = drawn.replay_command(name, timetable.seed, more)
        return make_run(
            cluster, scenario, timetable, where.runs, where.listeners(), replay_command=command
        ).execute()
    finally:
        if started and not where.keep:
            log("removing the cluster that was started for this run (--keep leaves it up)")
            lifecycle.down(state)


def _run_external(
    file: Path, external: ExternalOptions, name: str, drawn: PlanOptions, where: RunOptions
) -> int:
    from harness.cluster.state_directory import State
    from harness.run.external.external_session import dry_run, execute, open_session
    from harness.run.external.preflight import Consent

    scenario, timetable = drawn.load(name, external=True)
    state = State(where.state_path) if where.state_path else None
    args = [*external.command_line_args(), *where.command_line_args()]
    command = drawn.replay_command(name, timetable.seed, args)
    consent = Consent(external.understood, external.moves_foreign)
    session = open_session(file, state, consent, keep=where.keep, replay_command=command)
    if external.dry_run:
        lines, refused = dry_run(session, scenario, timetable)
        click.echo("\n".join([*lines, *(f"refused: {reason}" for reason in refused)]))
        seed = f"--seed {timetable.seed}"
        if refused:
            click.echo(f"this is the plan of {seed}")
            return ExitCode.REFUSED
        consent_text = f"--i-understand {session.file.cluster.id}"
        click.echo(f"nothing was refused; for this plan, write {seed} {consent_text} instead of --dry-run")
        return ExitCode.VALID
    outcome = execute(session, scenario, timetable, where.runs, listeners=where.listeners, report=log)
    return where.exit_code_of(outcome)
