"""The command `eos watch`: a canary at a low rate, verified without end."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from harness.base.errors import ExitCode, UsageError
from harness.cli.options import (
    WholeNumber,
    check_output_file,
    check_writable,
    file_option,
    log,
    parse_seconds,
    state_of,
    state_option,
)
from harness.cli.run_commands import runs_option
from harness.cli.scenario_commands import PlanOptions

if TYPE_CHECKING:
    from harness.run import Outcome
    from harness.run.watch import Watch
    from harness.scenario import Scenario
    from harness.scenario.plan import Plan

KEPT: Final = 5
"""Valid runs that stay on disk."""


@click.command(
    short_help="Run a canary again and again; the exit code is the alert.",
    epilog="\b\nExample:  eos watch\n"
    "          eos watch --round 5m --metrics /var/lib/node_exporter/eos.prom\n"
    "          eos watch --rounds 3 --round 10s --keep-going\n"
    "          eos watch --cluster staging.toml --i-understand CLUSTER_ID",
)
@click.option(
    "--round",
    "round_s",
    metavar="TIME",
    default="60s",
    show_default=True,
    callback=parse_seconds,
    help="Time of load in each round.",
)
@click.option("--rounds", type=WholeNumber(1), metavar="N", help="End after N rounds.  [default: no end]")
@click.option("--keep-going", is_flag=True, help="Continue after a round that is not valid.")
@click.option(
    "--metrics",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write Prometheus' text format to it.",
)
@click.option("--scenario", default="canary", show_default=True, help="Scenario of a round.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a key of the scenario.")
@runs_option
@file_option
@click.option(
    "--i-understand", "understood", default="", metavar="ID", help="Agree to use the cluster with this id."
)
@state_option
@click.option("--only-round", type=(int, int), hidden=True, help="Make the round with this number and seed.")
def watch(
    *,
    only_round: tuple[int, int] | None,
    round_s: float,
    rounds: int | None,
    keep_going: bool,
    metrics: Path | None,
    scenario: str,
    changes: tuple[str, ...],
    runs: Path,
    cluster_file: Path | None,
    understood: str,
    state_path: Path | None,
) -> None:
    """Run a canary against a cluster again and again, and verify every record of each round.

    The cluster must be up: one of eos, or an external one with --cluster and the same checks as `eos run`.
    After each round, one line of JSON goes to stdout. The first round that is not valid ends the watch with
    its exit code; with --keep-going, the watch ends with the worst one. The topics of a valid round are
    deleted, and the last five valid run directories stay.
    """
    from harness.run.watch import Watch, make_round
    from harness.run.watch_process import make_round_in_process
    from harness.scenario.plan import draw

    if understood and cluster_file is None:
        raise UsageError("--i-understand needs --cluster", "name the file of the external cluster")
    check_writable(runs, "--runs")
    if metrics is not None:
        check_output_file(metrics, "--metrics")
    if round_s < 1:
        raise UsageError(f"--round {round_s:g}s is too short", "use --round 1s or more")
    canary = PlanOptions(changes=changes).scenario(scenario, external=cluster_file is not None)
    if cluster_file is None:
        carry_out = _own_rounds(canary, runs, state_path)
    else:
        carry_out = _external_rounds(canary, runs, cluster_file, understood, state_path)
    if only_round is not None:
        done = make_round(*only_round, lambda seed: carry_out(draw(canary, seed, round_s)))
        click.echo(msgspec.json.encode(done).decode())
        sys.exit(done.exit_code)
    arguments = [
        *("--round", f"{round_s}s", "--scenario", scenario, "--runs", str(runs)),
        *(part for change in changes for part in ("--set", change)),
        *(("--cluster", str(cluster_file), "--i-understand", understood) if cluster_file else ()),
        *(("--state", str(state_path)) if state_path else ()),
    ]
    log(f"rounds of {round_s:g} s of load; each prints a line after its verification; Ctrl-C ends the watch")
    made = Watch(
        partial(make_round_in_process, arguments),
        first_seed=random.SystemRandom().randrange(1_000_000),
        kept=KEPT,
        metrics=metrics,
    )
    sys.exit(_report_rounds(made, rounds, keep_going=keep_going))


def _own_rounds(canary: Scenario, runs: Path, state_path: Path | None) -> Callable[[Plan], Outcome]:
    """Return the function that makes a run on the cluster that is up, and deletes its topics."""
    from harness.cluster import lifecycle
    from harness.run import make_run

    cluster = lifecycle.attach(state_of(state_path))

    def carry_out(plan: Plan) -> Outcome:
        run = make_run(cluster, canary, plan, runs)
        outcome = run.execute()
        if outcome.exit_code is ExitCode.VALID:
            cluster.delete_topics(run.scenario.written_topics)
        return outcome

    return carry_out


def _external_rounds(
    canary: Scenario, runs: Path, file: Path, understood: str, state_path: Path | None
) -> Callable[[Plan], Outcome]:
    """Return the function that makes a run on an external cluster, with all its checks."""
    from harness.cluster.state_directory import State
    from harness.run.external.external_session import execute, open_session
    from harness.run.external.preflight import Consent

    state = State(state_path) if state_path else None
    session = open_session(file, state, Consent(understood))
    return lambda plan: execute(session, canary, plan, runs, listeners=list, report=log)


def _report_rounds(made: Watch, rounds: int | None, *, keep_going: bool) -> int:
    """Print each round as a line of JSON, and return the exit code of the worst one."""
    worst = 0
    while rounds is None or made.rounds < rounds:
        done = made.next_round()
        click.echo(msgspec.json.encode(done).decode())
        if done.interrupted:
            return _worse(_worse(worst, done.exit_code), ExitCode.INTERRUPTED)
        if done.exit_code:
            log(f"round {done.round} is {done.verdict}: {done.describe()}")
            worst = _worse(worst, done.exit_code)
            if not keep_going:
                break
    return worst


def _worse(first: int, second: int) -> int:
    """Return the worse of two exit codes: an anomaly, then the highest one."""
    return ExitCode.ANOMALY if ExitCode.ANOMALY in (first, second) else max(first, second)
