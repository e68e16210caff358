"""Commands that manage a cluster: up, down, status, heal, logs, tool, doctor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.base.errors import ExitCode
from harness.cli.options import (
    WholeNumber,
    backend_option,
    check_writable,
    file_option,
    json_option,
    kafka_options,
    log,
    print_json,
    state_of,
    state_option,
)

if TYPE_CHECKING:
    from harness.cluster.broker_settings import Profile
    from harness.cluster.state_directory import BackendChoice


@click.command(
    short_help="Start the cluster.",
    epilog="\b\nExample:  eos up\n"
    "          eos up --backend process\n"
    "          eos up --profile load\n"
    "          eos up --kafka 4.1.2\n"
    "          eos up --state /tmp/cluster",
)
@backend_option
@kafka_options
@click.option(
    "--profile",
    type=click.Choice(["quick", "load"]),
    metavar="NAME",
    default="quick",
    show_default=True,
    help="JVM settings: quick or load.",
)
@click.option("--internal-tap", is_flag=True, help="Put a wire tap between the brokers.")
@state_option
def up(
    backend: BackendChoice,
    profile: Profile,
    *,
    kafka: str,
    kafka_image: str,
    internal_tap: bool,
    state_path: Path | None,
) -> None:
    """Start the cluster, and wait until it accepts transactions.

    If the cluster is already up, print its addresses and return at once.
    """
    import time

    from harness.cluster import lifecycle
    from harness.cluster.layout import BrokerListener

    start = time.monotonic()
    state = state_of(state_path)
    check_writable(state.path, "--state")
    cluster, started = lifecycle.up(
        state, backend, profile, log, internal_tap=internal_tap, kafka=kafka, kafka_image=kafka_image
    )
    took = time.monotonic() - start
    kind = f"Kafka {cluster.record.kafka}, {cluster.record.backend}, {cluster.record.profile}"
    log(f"{'up' if started else 'already up'} after {took:.1f} s ({kind})")
    for listener in (BrokerListener.PROXIED, BrokerListener.DIRECT):
        click.echo(f"{listener}={cluster.bootstrap(listener)}")
    log("PROXIED is for clients under test: faults reach it. No fault reaches DIRECT, which is for tools")


@click.command(
    short_help="Remove the cluster, its data, and what a killed run left.",
    epilog="\b\nExample:  eos down\n"
    "          eos down --state /tmp/cluster\n"
    "          eos down --force\n"
    "          eos down --force --state /tmp/cluster",
)
@click.option("--force", is_flag=True, help="Remove it even if its record is damaged or lost.")
@state_option
def down(*, force: bool, state_path: Path | None) -> None:
    """Remove the cluster, its data, and everything that a killed run left."""
    from harness.cluster import lifecycle

    removed = lifecycle.down(state_of(state_path), force=force)
    log("removed the cluster and its data" if removed else "there is no cluster to remove")


@click.command(
    short_help="Show nodes, roles, links and problems of the cluster.",
    epilog="\b\nExample:  eos status\n"
    "          eos status --json\n"
    "          eos status --state /tmp/cluster\n"
    "          eos status --json --state /tmp/cluster",
)
@json_option
@state_option
def status(*, as_json: bool, state_path: Path | None) -> None:
    """Show nodes, roles, links, and problems of the cluster.

    The exit code is 2 if the cluster has a problem.
    """
    from harness.cli.status import read_status
    from harness.cluster import lifecycle

    found = read_status(lifecycle.attach(state_of(state_path)))
    click.echo(found.json() if as_json else found.text())
    if found.ailments:
        sys.exit(ExitCode.UNKNOWN)


@click.command(
    short_help="Undo every fault that is still injected.",
    epilog="\b\nExample:  eos heal\n"
    "          eos heal --state /tmp/cluster\n"
    "          eos heal --cluster staging.toml\n"
    "          eos heal --cluster staging.toml --state /tmp/staging",
)
@file_option
@state_option
def heal(cluster_file: Path | None, state_path: Path | None) -> None:
    """Undo every fault that is still injected, also those of a killed run."""
    from harness.cluster import lifecycle
    from harness.faults.heal import heal as heal_cluster

    if cluster_file is not None:
        from harness.run.external.external_session import heal_external

        healed = heal_external(cluster_file, None if state_path is None else state_of(state_path), log)
    else:
        cluster = lifecycle.attach(state_of(state_path))
        with cluster.state.locked("heal"):
            healed = heal_cluster(cluster, log)
    log(f"healthy: healed {healed} things" if healed else "healthy: there was nothing to heal")


@click.command(
    short_help="Print the end of a node's log.",
    epilog="\b\nExample:  eos logs kafka-1\n"
    "          eos logs kafka-1 --lines 50\n"
    "          eos logs controller-11\n"
    "          eos logs toxiproxy --state /tmp/cluster",
)
@click.argument("node")
@click.option(
    "--lines",
    type=WholeNumber(1),
    metavar="N",
    default=200,
    show_default=True,
    help="Number of lines from the end.",
)
@state_option
def logs(node: str, lines: int, state_path: Path | None) -> None:
    """Print the end of a node's log."""
    from harness.cluster import lifecycle

    click.echo(lifecycle.attach(state_of(state_path)).node(node).log(lines), nl=False)


@click.command(
    short_help="Run one of Kafka's own tools on the cluster.",
    epilog="\b\nExample:  eos tool features describe\n"
    "          eos tool topics --describe --topic orders\n"
    "          eos tool transactions list\n"
    "          eos tool dump-log kafka-1 orders-0 --print-data-log",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@state_option
@click.argument("name")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def tool(name: str, arguments: tuple[str, ...], state_path: Path | None) -> None:
    """Run one of Kafka's own command-line tools on the cluster.

    NAME is features, topics, configs, groups, transactions, metadata-quorum, producer-perf or another tool.
    An unknown name prints the list. ARGUMENTS go to the tool: `eos tool topics --help` shows them. The tool
    uses the listener DIRECT, which no fault touches. --state comes before NAME.

    `dump-log NODE TOPIC-PARTITION` reads the segment files of a replica, and decodes Kafka's internal topics.
    """
    from harness.cli.tool_command import run_tool

    run_tool(state_of(state_path), name, list(arguments), log)


@click.command(
    short_help="Check that this machine can run the harness.",
    epilog="\b\nExample:  eos doctor\n"
    "          eos doctor --backend compose\n"
    "          eos doctor --json\n"
    "          eos doctor --state /tmp/cluster",
)
@backend_option
@json_option
@state_option
def doctor(backend: BackendChoice, *, as_json: bool, state_path: Path | None) -> None:
    """Check that this machine can run the harness.

    Each problem is printed with a hint on how to solve it. The exit code is 5 if a run cannot start.
    """
    from harness.cli.doctor import examine

    findings = examine(state_of(state_path), backend)
    if as_json:
        print_json([finding._asdict() for finding in findings])
    for finding in findings if not as_json else []:
        click.echo(finding.line(colour=sys.stdout.isatty()))
    if any(finding.grade == "red" for finding in findings):
        sys.exit(ExitCode.REFUSED)
