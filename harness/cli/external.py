"""`--cluster FILE`: the options of a run on somebody else's cluster, and what they lead to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from harness.base.errors import ExitCode, UsageError
from harness.cli.options import keep_result, report

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.base.events import EventListener
    from harness.cluster.state_directory import State
    from harness.scenario import Scenario
    from harness.scenario.plan import Plan


class ExternalOptions(NamedTuple):
    """What the command line says of a live cluster."""

    file: Path | None
    understood: str
    moves_foreign: bool
    dry_run: bool

    def check(self) -> None:
        """Refuse what only means something with --cluster."""
        if self.file is None and (self.understood or self.moves_foreign or self.dry_run):
            raise UsageError("--i-understand, --move-foreign and --dry-run are for --cluster", _HINT)

    def words(self) -> list[str]:
        """What was typed of it, for who wants to have the same again."""
        words = ["--cluster", str(self.file)]
        words += ["--i-understand", self.understood] if self.understood else []
        return words + (["--move-foreign"] if self.moves_foreign else [])


_HINT = "name the cluster's file: --cluster live.toml (docs/live.md)"

file_option = click.option(
    "--cluster",
    "cluster_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A cluster that is not ours, by its file (docs/live.md).",
)


def external_options(function: click.decorators.FC) -> click.decorators.FC:
    """Add --cluster and what the user has to agree to."""
    for option in (
        click.option(
            "--dry-run",
            is_flag=True,
            help="With --cluster: print all that would be done, and the rights it needs.",
        ),
        click.option(
            "--move-foreign",
            "moves_foreign",
            is_flag=True,
            help="With --cluster: agree that faults of nodes move leaders of others.",
        ),
        click.option(
            "--i-understand",
            "understood",
            default="",
            metavar="CLUSTER_ID",
            help="With --cluster: the id of the cluster, typed in full.",
        ),
        file_option,
    ):
        function = option(function)
    return function


def run_external(
    live: ExternalOptions,
    scenario: Scenario,
    plan: Plan,
    runs: Path,
    state: State | None,
    *,
    keep: bool,
    listeners: Callable[[], list[EventListener]],
    again: str,
) -> int:
    """Run on a live cluster, or say what that would do; return the exit code."""
    from harness.run.external.external_session import dry_run, execute, open_session
    from harness.run.external.preflight import Consent

    assert live.file is not None
    consent = Consent(live.understood, live.moves_foreign)
    session = open_session(live.file, state, consent, keep=keep, again=again)
    if live.dry_run:
        lines, refused = dry_run(session, scenario, plan)
        click.echo("\n".join([*lines, *(f"refused: {reason}" for reason in refused)]))
        return ExitCode.REFUSED if refused else ExitCode.VALID
    outcome = execute(session, scenario, plan, runs, listeners=listeners, report=report)
    keep_result(outcome.directory, runs)
    return outcome.exit_code


def heal_external(file: Path, state: State | None) -> int:
    """Undo what a killed run has left on a live cluster."""
    from harness.run.external.external_session import heal_external

    return heal_external(file, state, report)
