"""The command `eos init`, which proposes a scenario file for an unknown application."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.base.errors import UsageError
from harness.cli.options import (
    WholeNumber,
    backend_option,
    check_writable,
    log,
    parse_seconds,
    state_of,
    state_option,
)

if TYPE_CHECKING:
    from harness.cluster.state_directory import BackendChoice


@click.command(
    short_help="Propose a scenario for your application, from two calm runs.",
    epilog='\b\nExample:  eos init --topic orders --value \'{"order":"{id}"}\' -- \\\n'
    "            ./app {bootstrap} {group} {topic:orders} {topic:invoices}\n"
    '          eos init --topic orders --value \'{"order":"{id}"}\' \\\n'
    "            --env BOOTSTRAP={bootstrap} --env ORDERS={topic:orders} -- ./app\n"
    "          eos init --topic orders --value {id} --for 30s -- \\\n"
    "            ./app {bootstrap}\n"
    "          eos init --topic orders --value {id} --write a.toml -- \\\n"
    "            ./app {bootstrap}",
)
@click.argument("command", nargs=-1, required=True)
@click.option("--topic", required=True, metavar="NAME", help="Topic that the application reads.")
@click.option("--value", required=True, metavar="TEMPLATE", help="Template of inputs, with {id}.")
@click.option("--env", "variables", multiple=True, metavar="NAME=TEXT", help="Variable of the application.")
@click.option("--keys", type=WholeNumber(0), default=20, show_default=True, help="Number of keys.")
@click.option("--rate", type=WholeNumber(1), default=200, show_default=True, help="Inputs per second.")
@click.option("--group", default="app", show_default=True, metavar="NAME", help="Value of {group}.")
@click.option(
    "--for",
    "seconds",
    callback=parse_seconds,
    metavar="TIME",
    default="8s",
    show_default=True,
    help="Length of each of the two runs.",
)
@click.option(
    "--write",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Scenario file.  [default: eos/TOPIC.toml]",
)
@click.option("--keep", is_flag=True, help="Leave the cluster up that this command started.")
@backend_option
@state_option
def init(
    command: tuple[str, ...],
    *,
    topic: str,
    value: str,
    variables: tuple[str, ...],
    keys: int,
    rate: int,
    group: str,
    seconds: float,
    file: Path | None,
    keep: bool,
    backend: BackendChoice,
    state_path: Path | None,
) -> None:
    """Watch an application in two calm runs, and write a scenario file for it.

    The command of the application contains {bootstrap} and {topic:NAME} for its input and outputs, and
    {group} if it has a consumer group. --env sets variables with the same placeholders.
    """
    from harness.cluster import lifecycle
    from harness.run import app_init
    from harness.scenario.app_checks import check_app

    path = file or Path("eos") / f"{topic}.toml"
    if path.exists():
        raise UsageError(f"{path} exists", "remove it, or name another file with --write")
    if seconds < 1:
        raise UsageError(f"--for {seconds:g}s is too short", "use --for 1s or more")
    if any("=" not in variable for variable in variables):
        raise UsageError("--env needs NAME=TEXT", "write --env BOOTSTRAP={bootstrap}")
    env = dict(variable.split("=", 1) for variable in variables)
    wanted = app_init.Wanted(list(command), topic, value, env, keys, rate, group, seconds=seconds)
    scenario = app_init.calm_scenario(wanted, Path.cwd())
    check_app(scenario, lambda key, problem, hint: UsageError(f"{key}: {problem}", hint))
    check_writable(path.parent, "--write")
    cluster, started = lifecycle.up(state_of(state_path), backend, "quick", log)
    try:
        runs = []
        for number in range(1, app_init.RUNS + 1):
            log(f"calm run {number} of {app_init.RUNS}: {seconds:g} s")
            runs.append(app_init.run_calmly(cluster, scenario, Path("runs"), []))
    finally:
        if started and not keep:
            lifecycle.down(cluster.state)
    for finding in app_init.findings(runs, scenario):
        click.echo(f"  {'WARNING' if finding.warning else '':8}{finding.about:8}{finding.text}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(app_init.scenario_text(runs, scenario, os.path.relpath(Path.cwd(), path.parent)))
    made = ", ".join(os.path.relpath(run.directory) for run in runs)
    click.echo(f"  {'':8}runs    {made}")
    click.echo(f"  {'':8}wrote   {path}    next: eos run {path} --seed 1")
