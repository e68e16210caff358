"""The command line: parse, call, choose the exit code. Data goes to stdout, everything else to stderr.

Imports of clients and of anything heavy stand inside the commands: `eos --help` answers at once.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import click

from harness import __version__
from harness.base.errors import ExitCode, HarnessError
from harness.cli import reports, runs
from harness.cli.external import file_option, heal_external
from harness.cli.options import backend_option, report, state_of, state_option

_EXIT_CODES = """
\b
Exit codes (the worst wins):
  0    valid, or done
  1    an anomaly was found: exactly-once was broken
  2    unknown: nothing was compared, a fault did not bite, a wait ran out
  3    a limit was breached (recovery time)
  4    wrong usage, or a bad scenario file
  5    refused: it could do harm or mislead
  70   a bug of this tool
  130  interrupted, and healed
"""


@click.group(
    epilog=_EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="eos")
def cli() -> None:
    """Prove or break Kafka's exactly-once on a real cluster: 3 brokers, 3 controllers, Toxiproxy."""


@cli.command(epilog="Example:  eos up --backend process")
@backend_option
@click.option(
    "--profile",
    type=click.Choice(["quick", "load"]),
    default="quick",
    show_default=True,
    help="JVMs that start fast, or JVMs for benchmarks and long runs.",
)
@state_option
def up(backend: str, profile: str, state_path: Path | None) -> None:
    """Start the cluster and wait until transactions are possible; at once if it is up."""
    import time

    from harness.cluster import lifecycle
    from harness.cluster.layout import BrokerListener

    start = time.monotonic()
    cluster, started = lifecycle.up(state_of(state_path), backend, profile, report)  # type: ignore[arg-type]
    took = time.monotonic() - start
    kind = f"{cluster.record.backend}, {cluster.record.profile}"
    report(f"{'up' if started else 'was up already'} after {took:.1f} s ({kind})")
    for listener in (BrokerListener.PROXIED, BrokerListener.DIRECT):
        click.echo(f"{listener}={cluster.bootstrap(listener)}")


@cli.command(epilog="Example:  eos down")
@click.option("--force", is_flag=True, help="Also if the cluster's record is damaged or lost.")
@state_option
def down(*, force: bool, state_path: Path | None) -> None:
    """Remove the cluster, its data, and whatever a killed harness left of it."""
    from harness.cluster import lifecycle

    removed = lifecycle.down(state_of(state_path), force=force)
    report("removed the cluster and its data" if removed else "there was no cluster")


@cli.command(epilog="Example:  eos status --json")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@state_option
def status(*, as_json: bool, state_path: Path | None) -> None:
    """Show nodes, roles, links, and what ails the cluster; exit code 2 if something does."""
    from harness.cli.status import read_status
    from harness.cluster import lifecycle

    found = read_status(lifecycle.attach(state_of(state_path)))
    click.echo(found.json() if as_json else found.text())
    if found.ailments:
        sys.exit(ExitCode.UNKNOWN)


@cli.command(epilog="\b\nExample:  eos heal\n          eos heal --cluster live.toml")
@file_option
@state_option
def heal(cluster_file: Path | None, state_path: Path | None) -> None:
    """Undo every fault that is still there, also of a harness that was killed."""
    from harness.cluster import lifecycle
    from harness.cluster.state_directory import State
    from harness.faults.heal import heal as heal_cluster

    if cluster_file is not None:
        done = heal_external(cluster_file, State(state_path) if state_path else None)
    else:
        cluster = lifecycle.attach(state_of(state_path))
        with cluster.state.locked("heal"):
            done = heal_cluster(cluster, report)
    report(f"healthy: {done} things were put right" if done else "healthy: there was nothing to heal")


@cli.command(epilog="Example:  eos logs kafka-1 --lines 50")
@click.argument("node")
@click.option(
    "--lines", type=click.IntRange(1), default=200, show_default=True, help="How many, from the end."
)
@state_option
def logs(node: str, lines: int, state_path: Path | None) -> None:
    """Print the end of a node's log."""
    from harness.cluster import lifecycle

    click.echo(lifecycle.attach(state_of(state_path)).node(node).log(lines), nl=False)


@cli.command(
    epilog="\b\nExample:  eos tool features describe\n"
    "          eos tool dump-log kafka-1 orders-0 --print-data-log",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@state_option
@click.argument("name")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def tool(name: str, arguments: tuple[str, ...], state_path: Path | None) -> None:
    """Run a command-line tool of Kafka itself, over the door without faults (DIRECT).

    NAME is features, topics, configs, groups, transactions, metadata-quorum, producer-perf or another one: a
    wrong name lists them all. ARGUMENTS are those of Kafka's own tool; `eos tool topics --help` shows them.

    `dump-log NODE TOPIC-PARTITION` reads the segment files of a replica, and decodes Kafka's own topics.
    """
    from harness.cli.tool import run_tool

    run_tool(state_of(state_path), name, list(arguments), report)


@cli.command(epilog="Example:  eos doctor --backend compose")
@backend_option
@state_option
def doctor(backend: str, state_path: Path | None) -> None:
    """Check what a run needs, each with a command to paste; exit code 5 if a run cannot start."""
    from harness.cli.doctor import examine

    findings = examine(state_of(state_path), backend)  # type: ignore[arg-type]
    for finding in findings:
        click.echo(finding.line(colour=sys.stdout.isatty()))
    if any(finding.grade == "red" for finding in findings):
        sys.exit(ExitCode.REFUSED)


@cli.command(epilog="Example:  eos facts > facts.md")
@state_option
def facts(state_path: Path | None) -> None:
    """Show the numbers quoted about exactly-once beside what this cluster and this client say.

    Read from the configuration in force and from the client library, or shown by a probe on a topic of its
    own; each is marked as the same or as different.
    """
    from harness.cluster import lifecycle
    from harness.walkthroughs.protocol_facts import read_facts, table

    click.echo(table(read_facts(lifecycle.attach(state_of(state_path)))), nl=False)


@cli.command(epilog="Example:  eos hanging --bootstrap localhost:9092 --topic payments")
@click.option("--bootstrap", required=True, help="Brokers of a listener without TLS and without SASL.")
@click.option("--topic", "topics", multiple=True, help="Look at this one only; may be given again.")
def hanging(bootstrap: str, topics: tuple[str, ...]) -> None:
    """Find transactions that a partition has open and no coordinator will end; it only reads.

    docs/hazards.md says how to free such a partition. Exit code 1 where there are some.
    """
    from harness.kafka.admin import admin_at, existing_topics
    from harness.kafka.hanging_transactions import find_hanging, format_transaction

    admin = admin_at(bootstrap)
    existing = existing_topics(admin, required=topics)
    names = list(topics) or existing
    transactions = find_hanging(admin, names)
    for transaction in transactions:
        click.echo(format_transaction(transaction))
    click.echo(f"{len(transactions)} hanging in {len(names)} topics")
    sys.exit(ExitCode.ANOMALY if transactions else ExitCode.VALID)


for command in (*runs.COMMANDS, *reports.COMMANDS):
    cli.add_command(command)


def main() -> None:
    """Run the command line, and turn every error into a message, a hint and an exit code."""
    try:
        # Not click's own main: it takes an EOFError for Ctrl-C, and a broken pipe for exit code 1.
        with cli.make_context("eos", sys.argv[1:]) as context:
            cli.invoke(context)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(ExitCode.USAGE)
    except (click.Abort, KeyboardInterrupt):
        report("interrupted; `eos heal` undoes what is still injected")
        sys.exit(ExitCode.INTERRUPTED)
    except HarnessError as error:
        report(f"error: {error.message}\n\nhint: {error.hint}")
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001  # the last line of defence: nothing else may set exit code 70
        sys.exit(_unforeseen(error))


def _unforeseen(error: Exception) -> ExitCode:
    """Tell a node that is silent, and a reader of our output that went away, from a bug of ours."""
    if isinstance(error, BrokenPipeError) and _nobody_reads():
        return ExitCode.UNKNOWN
    if silence := _silence(error):
        report(f"error: {silence}: {error}\n\nhint: `eos status` shows what ails the cluster")
        return ExitCode.UNKNOWN
    import traceback

    traceback.print_exception(error)
    report("\nerror: this is a bug of the harness")
    report("\nhint: report the lines above; `eos heal` puts the cluster back")
    return ExitCode.BUG


def _silence(error: Exception) -> str:
    """How a broker that is away, refuses, or is named wrongly looks from here; empty if it is not that."""
    import socket
    import ssl

    from harness.kafka.errors import KafkaAnswerError

    if isinstance(error, KafkaAnswerError):
        return "a broker answered with an error"
    network = (ConnectionError, TimeoutError, EOFError, socket.gaierror, ssl.SSLError)
    unreachable = isinstance(error, OSError) and error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH)
    return "a node did not answer" if unreachable or isinstance(error, network) else ""


def _nobody_reads() -> bool:
    """Whether the pipe that broke is our own output; what is left of it goes nowhere then."""
    import select

    look = select.poll()
    look.register(sys.stdout, select.POLLOUT)
    if not any(seen & (select.POLLERR | select.POLLHUP) for _, seen in look.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
