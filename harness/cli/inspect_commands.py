"""Commands that inspect runs, topics and the protocol. None of them starts a run."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Literal

import click

from harness.base.errors import ExitCode, RefusedError, UsageError
from harness.base.texts import count_of, shorten
from harness.cli.options import (
    RUNS,
    Connection,
    WholeNumber,
    check_output_file,
    complete_run,
    connection_options,
    file_option,
    json_option,
    log,
    parse_seconds,
    print_json,
    state_of,
    state_option,
    verbose_option,
)

_MOST_OPEN = 5
_directory = click.argument("directory", type=click.Path(path_type=Path), shell_complete=complete_run)


@click.command(
    short_help="Judge a run again from its files, without a cluster.",
    epilog="\b\nExample:  eos check runs/demo/latest\n"
    "          eos check runs/demo/latest --json\n"
    "          eos check runs/demo/2026-11-18T101500-7\n"
    "          eos check /mnt/artifacts/run --write",
)
@_directory
@click.option("--write", is_flag=True, help="Replace the recorded verdict.")
@json_option
def check(directory: Path, *, write: bool, as_json: bool) -> None:
    """Check a run again from its directory, without a cluster.

    The evidence is compared with the manifest of the run first. If a file is missing or was changed, the
    verdict is unknown. The recorded verdict is shown beside the new one, and is kept without --write.
    """
    from harness.evidence.checkers.check_run import check_run, describe
    from harness.evidence.checkers.recorded_verdict import RecordedVerdict
    from harness.evidence.run_directory import RunDirectory

    recorded = RecordedVerdict(RunDirectory.open(directory))
    code, judgement = check_run(directory, write=write)
    if as_json:
        print_json({"recorded_verdict": recorded.text, "judgement": judgement})
    else:
        click.echo(describe(judgement, recorded.text), nl=False)
    if difference := recorded.difference(judgement):
        log(difference)
    sys.exit(code)


@click.command(short_help="Write report.html of a run.", epilog="Example:  eos report runs/demo/latest")
@_directory
def report(directory: Path) -> None:
    """Write report.html of a run, with the evidence in one file."""
    from harness.report.outputs import write_report

    click.echo(write_report(directory))


@click.command(
    short_help="Show how two runs differ.",
    epilog="\b\nExample:  eos compare runs/demo/2026-11-18T101500-7 runs/demo/latest\n"
    "          eos compare runs/demo/latest runs/jitter/latest\n"
    "          eos compare runs/mine/latest /mnt/artifacts/run\n"
    "          eos compare runs/demo/latest runs/jitter/latest --json",
)
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@json_option
def compare(first: Path, second: Path, *, as_json: bool) -> None:
    """Show how the verdicts, counts, limits and faults of two runs differ."""
    from harness.report.compare import compare_facts, format_facts

    facts = compare_facts(first, second)
    if as_json:
        print_json([fact._asdict() for fact in facts])
    else:
        click.echo("\n".join(format_facts(facts)))


_folder_option = click.option(
    "--runs",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help=f"Folder for run directories.  [default: {RUNS}]",
)


def _one_of(argument: Path | None, folder: Path | None, name: str) -> Path | None:
    """Return the path that was given as an argument or by --runs; raise UsageError if it was given twice."""
    if argument is not None and folder is not None:
        raise UsageError(f"{name} and --runs are both given", "use one of them")
    return argument or folder


@click.command(
    short_help="Write index.html for all runs of a folder.",
    epilog="\b\nExample:  eos index\n"
    "          eos index runs\n"
    "          eos index /mnt/artifacts/runs\n"
    "          eos index --runs /mnt/artifacts/runs",
)
@click.argument("runs", type=click.Path(path_type=Path), required=False)
@_folder_option
def index(runs: Path | None, folder: Path | None) -> None:
    """Write index.html for all runs of a folder, the newest first."""
    from harness.report.index import write

    click.echo(write(_one_of(runs, folder, "RUNS") or RUNS))


@click.command(
    short_help="Show verdicts, recovery times and seconds over all runs.",
    epilog="\b\nExample:  eos results\n"
    "          eos results runs/results.jsonl\n"
    "          eos results /mnt/artifacts/results.jsonl\n"
    "          eos results --json",
)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@_folder_option
@json_option
def results(file: Path | None, folder: Path | None, *, as_json: bool) -> None:
    """Show verdicts by scenario, recovery times by fault, and seconds by step.

    FILE is the results.jsonl of a folder for run directories; --runs names the folder instead.
    """
    from harness.report.results import format_results, read

    written = folder / "results.jsonl" if folder is not None else None
    lines = read(_one_of(file, written, "FILE") or RUNS / "results.jsonl", warn=log)
    if as_json:
        print_json(lines)
    else:
        click.echo("\n".join(format_results(lines)))


@click.command(
    short_help="Print the counters of runs for Prometheus.",
    epilog="\b\nExample:  eos metrics runs/demo/latest\n"
    "          eos metrics runs/demo/latest runs/jitter/latest\n"
    "          eos metrics runs/*/latest > eos.prom\n"
    "          eos metrics runs/*/latest --output /var/lib/node_exporter/eos.prom",
)
@click.argument("directories", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Replace this file atomically."
)
def metrics(directories: tuple[Path, ...], output: Path | None) -> None:
    """Print the counters of runs in Prometheus' text format.

    They are verdict, anomalies, records, transactions, faults, limits and seconds, with the scenario and the
    run as labels. A collector of text files, such as that of node_exporter, can read the output. Of several
    runs, those without a verdict, such as a run that was killed, are left out with a warning.
    """
    from harness.evidence.run_directory import replace_file
    from harness.report.prometheus import export

    if output is not None:
        check_output_file(output, "--output")
    text = export(list(dict.fromkeys(directory.resolve() for directory in directories)), log)
    if output is None:
        click.echo(text, nl=False)
    else:
        replace_file(output, text.encode())


@click.command(
    short_help="Count the broken transactions of runs by cause.",
    epilog="Example:  eos late runs/slow-links/* runs/lost-flows/*",
)
@click.argument("directories", type=click.Path(path_type=Path), nargs=-1, required=True)
def late(directories: tuple[Path, ...]) -> None:
    """Count the broken transactions by cause: late EndTxn, late marker, or reused sequence.

    The command compares the result that each client received with the records that readers found. It counts
    the transactions that differ, over all the runs, with exact confidence intervals. A late EndTxn had no
    answer yet when its client began the next transaction; for it, the clients must have used the wire tap.
    The other causes need the raw log as a witness of the run.
    """
    from harness.evidence.stored_logs import FILE as AUDIT_FILE
    from harness.report.late_endtxn_audit import ANOTHER, CAUSES, LATE_ENDTXN, find_broken_transactions
    from harness.report.proportions import format_per_thousand

    broken, transactions = [], 0
    for directory in dict.fromkeys(directory.resolve() for directory in directories):
        broken_here, checked = find_broken_transactions(directory)
        transactions += checked
        click.echo(f"{directory.name}: {len(broken_here)} of {checked} transactions are broken")
        for transaction in broken_here:
            click.echo(f"  {transaction.text}")
        broken += broken_here
    if not transactions:
        log("nothing was checked: these runs have no transactions that were read back")
        sys.exit(ExitCode.UNKNOWN)
    counts = Counter(transaction.cause for transaction in broken)
    logs = any((directory / AUDIT_FILE).exists() for directory in directories)
    for cause in CAUSES if logs else (LATE_ENDTXN, ANOTHER):
        article = "an" if cause[0] in "aeiou" else "a"
        click.echo(f"by {article} {cause}: {format_per_thousand(counts[cause], transactions)}")


@click.command(
    short_help="Draw the requests of a run as a sequence diagram.",
    epilog="\b\nExample:  eos diagram runs/mine/latest\n"
    "          eos diagram runs/mine/latest --from 12 --to 15 --most 200\n"
    "          eos diagram runs/mine/latest --everything\n"
    "          eos diagram runs/mine/latest --transactional-id orders-1.ab12cd34",
)
@_directory
@click.option("--transactional-id", metavar="ID", help="Draw only this transactional id.")
@click.option("--from", "first", type=float, metavar="S", default=0.0, help="First second.  [default: 0]")
@click.option("--to", "last", type=float, metavar="S", default=1e6, help="Last second.  [default: the end]")
@click.option(
    "--most",
    type=WholeNumber(1),
    metavar="N",
    default=120,
    show_default=True,
    help="Maximum number of steps.",
)
@click.option("--everything", is_flag=True, help="Draw metadata and fetch requests too.")
def diagram(
    directory: Path, transactional_id: str | None, first: float, last: float, most: int, *, everything: bool
) -> None:
    """Draw the frames of a run as a Mermaid and SVG sequence diagram.

    The clients of the run must have used the wire tap. --from and --to are seconds of the run, as in
    its report.
    """
    from harness.report.diagram.diagram_file import write
    from harness.report.diagram.sequence import SequenceFilter

    wanted = SequenceFilter(
        window=(first, last), transactional_id=transactional_id, most=most, everything=everything
    )
    drawn, files = write(directory, wanted)
    log(drawn.text)
    for path in files:
        click.echo(path)


@click.command(
    short_help="Print a walkthrough as a page.",
    epilog="Example:  eos walkthrough runs/idempotent-walkthrough/latest > page.md",
)
@_directory
def walkthrough(directory: Path) -> None:
    """Print a walkthrough as a page: claims, what the cluster did, evidence, sequence diagram."""
    from harness.walkthroughs.walkthrough_page import document

    click.echo(document(directory), nl=False)


@click.command(
    short_help="Check the records of topics.",
    epilog="\b\nExample:  eos verify --bootstrap localhost:9092 --topic orders\n"
    "          eos verify --bootstrap kafka:9092 --topic orders --ledger DIR\n"
    "          eos verify --bootstrap kafka:9092 --topic orders --where header\n"
    "          eos verify --bootstrap-server kafka:9093 --topic orders\n"
    "              --command-config client.properties",
)
@connection_options
@click.option("--topic", "topics", metavar="NAME", required=True, multiple=True, help="Topic. Repeatable.")
@click.option(
    "--ledger", type=click.Path(path_type=Path), metavar="DIR", help="Directory of the run that wrote them."
)
@click.option(
    "--where",
    type=click.Choice(["value", "key", "header"]),
    metavar="PLACE",
    default="value",
    show_default=True,
    help="Its identity: value, key or header.",
)
@click.option(
    "--reader",
    type=click.Choice(["auto", "plain", "spark"]),
    metavar="NAME",
    default="auto",
    show_default=True,
    help="auto, plain or spark.",
)
@click.option("--master", metavar="URL", help="Spark master URL.  [default: this machine]")
@verbose_option
@json_option
def verify(
    connection: Connection,
    topics: tuple[str, ...],
    *,
    ledger: Path | None,
    where: Literal["value", "key", "header"],
    reader: Literal["auto", "plain", "spark"],
    master: str | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Check the records of topics.

    A plain consumer or Spark reads the topics read_committed, up to the offsets at which they end now. By
    default the plain consumer reads small topics, because Spark takes seconds to start, and Spark reads large
    ones. The findings are the same. The first lines name the reader and the limit. With --ledger it checks
    the named topics with the expectations of the run, as `eos check` does. Without --ledger it checks the
    records alone: holes, duplicates, order, and records whose intended outcome is abort. It also lists what
    it could not check, such as topics of the run that were not named.
    """
    from harness.witness.spark.ledger_selection import open_run
    from harness.witness.spark.spark_session import DEFAULT_MASTER
    from harness.witness.spark.topic_verification import verify_topics
    from harness.witness.spark.verify_report import exit_code_of, facts_of, format_verification

    if reader == "plain" and master:
        raise UsageError("--reader plain and --master exclude each other", "use one of them")
    if master and not master.startswith(("local", "spark://", "yarn", "k8s://")):
        raise UsageError(
            f"--master {shorten(master)!r} is no Spark master", "write spark://host:7077, or leave it out"
        )
    bootstrap, security = connection.settings()
    recorded = open_run(ledger) if ledger else None
    verified = verify_topics(
        bootstrap,
        topics,
        security=security,
        where=where,
        master=master or DEFAULT_MASTER,
        reader="spark" if master else reader,
        verbose=verbose,
        log=log,
        history=recorded.history if recorded else None,
        expect=recorded.expect if recorded else None,
        run=recorded.run if recorded else "",
        clients=recorded.clients if recorded else None,
    )
    if as_json:
        print_json(facts_of(verified))
    else:
        click.echo("\n".join(format_verification(verified)))
    sys.exit(exit_code_of(verified))


@click.command(
    short_help="Compare commonly quoted numbers with a cluster.",
    epilog="\b\nExample:  eos facts\n"
    "          eos facts --json\n"
    "          eos facts --bootstrap kafka:9092\n"
    "          eos facts --command-config client.properties",
)
@connection_options
@json_option
@state_option
def facts(connection: Connection, *, as_json: bool, state_path: Path | None) -> None:
    """Compare commonly quoted numbers about exactly-once with a cluster.

    The numbers of the cluster come from the configuration in force, from the client library, or from a probe
    on a topic of its own. Each quoted number is marked as the same or as different. On the cluster that
    --bootstrap, --command-config or --cluster names, the command makes no probe and only reads; for the
    settings, the user needs the right DescribeConfigs on the cluster. The exit code is 2 if a number could
    not be read.
    """
    from harness.walkthroughs.protocol_facts import NOT_READ, read_facts, read_settings, table

    if connection.is_named:
        from harness.kafka.reachability import reach_cluster

        source = click.get_current_context().get_parameter_source("state_path")
        if source is click.core.ParameterSource.COMMANDLINE:
            raise UsageError("--state is for a cluster of `eos up`", "leave it out")
        found = read_settings(reach_cluster(*connection.settings(), log=log))
    else:
        from harness.cluster import lifecycle

        found = read_facts(lifecycle.attach(state_of(state_path)))
    if as_json:
        print_json([fact._asdict() | {"comparison": fact.comparison} for fact in found])
    else:
        log("claimed: what texts commonly state. found: cluster = its settings, client = the library on this")
        log("machine, probe = a measurement. different: it is not that number here; it need not be wrong")
        click.echo(table(found), nl=False)
    sys.exit(
        ExitCode.UNKNOWN if any(fact.observed.startswith(NOT_READ) for fact in found) else ExitCode.VALID
    )


@click.command(
    short_help="Find open transactions that no coordinator will end.",
    epilog="\b\nExample:  eos hanging --bootstrap localhost:9092\n"
    "          eos hanging --bootstrap localhost:9092 --topic payments\n"
    "          eos hanging --command-config client.properties\n"
    "          eos hanging --cluster staging.toml",
)
@connection_options
@click.option("--topic", "topics", metavar="NAME", multiple=True, help="Topic. Repeatable.  [default: all]")
def hanging(connection: Connection, topics: tuple[str, ...]) -> None:
    """Find open transactions that no coordinator will end.

    The command only reads. For each transaction it prints how to free the partition: the command of Kafka's
    own tool, or the section of docs/hazards.md if this tool would lose records. It also prints the five
    longest transactions that are open and do not hang, with their transactional ids: each of them keeps the
    last stable offset of its partitions where it is until its producer or its coordinator ends it.

    The exit code is 1 if a transaction hangs, and 2 if the user may not read some of the topics. With
    --topic, the user must have the right to read each topic.
    """
    from harness.kafka.admin import existing_topics
    from harness.kafka.hanging_transactions import (
        find_blocking,
        format_end,
        format_transaction,
        format_way_out,
        split_by_right,
    )
    from harness.kafka.reachability import reach_cluster

    bootstrap, security = connection.settings()
    admin = reach_cluster(bootstrap, security, log=log)
    existing = existing_topics(admin, required=topics)
    checked_topics, denied = (list(topics), []) if topics else split_by_right(admin, existing)
    blocking = find_blocking(admin, checked_topics)
    hanging_ones = [transaction for transaction in blocking if transaction.hangs]
    for transaction in hanging_ones:
        click.echo(format_transaction(transaction))
        click.echo(f"  {format_way_out(transaction, connection.tool_options(bootstrap))}")
    ending = sorted((one for one in blocking if not one.hangs), key=lambda one: one.started_ms)
    for transaction in ending[:_MOST_OPEN]:
        click.echo(format_transaction(transaction))
        click.echo(f"  {format_end(transaction, connection.tool_options(bootstrap))}")
    text = f"{len(hanging_ones)} hanging in {count_of(len(checked_topics), 'topic')}"
    click.echo(text + (f"; {len(ending)} open and not hanging" if ending else ""))
    if denied:
        click.echo(f"not checked, because this user may not read them: {', '.join(denied)}")
    unchecked = ExitCode.UNKNOWN if denied else ExitCode.VALID
    sys.exit(ExitCode.ANOMALY if hanging_ones else unchecked)


@click.command(
    short_help="Find damage that late or repeated requests left in the logs.",
    epilog="\b\nExample:  eos audit\n"
    "          eos audit --topic orders\n"
    "          eos audit --topic orders --clock-skew 2s\n"
    "          eos audit --cluster staging.toml --topic chaos.orders",
)
@click.option("--topic", "topics", metavar="NAME", multiple=True, help="Topic. Repeatable.  [default: all]")
@click.option(
    "--clock-skew",
    metavar="TIME",
    callback=parse_seconds,
    help="Clock difference of brokers.  [default: 0s; external: 1s]",
)
@file_option
@state_option
def audit(
    topics: tuple[str, ...], clock_skew: float | None, cluster_file: Path | None, state_path: Path | None
) -> None:
    """Find damage that late or repeated requests left in the logs.

    The command compares the markers in the topics with the decisions of the transaction coordinators. It
    also finds sequences that were used twice, positions of groups that went back, and transactions without
    records. docs/hazards.md explains each finding. The command only reads. On an external cluster, it reads
    the logs that evidence.logs in the cluster file lists; the file needs no [limits]. The exit code is 1 if
    there is damage, and 2 if a log could not be read, nothing was compared, or a finding is only suspicious.
    """
    from harness.evidence.log_audit import audit as search
    from harness.kafka.admin import existing_topics
    from harness.kafka.log.audit_tables import read_tables
    from harness.report.log_audit_report import exit_code_of, format_audit

    if cluster_file is None:
        from harness.cluster import lifecycle

        admin, prefix, positions = lifecycle.attach(state_of(state_path)).admin, "", True
    else:
        from harness.run.external.external_session import open_logs

        state = None if state_path is None else state_of(state_path)
        admin, prefix, positions = open_logs(cluster_file, state)
        if foreign := [name for name in topics if not name.startswith(prefix)]:
            raise RefusedError(
                f"{cluster_file}: {', '.join(foreign)} is outside the prefix {prefix}",
                "an audit of an external cluster reads only topics with the prefix, and the listed logs",
            )
    skew_s = clock_skew if clock_skew is not None else float(cluster_file is not None)
    if foreign := [topic for topic in topics if not topic.startswith(prefix)]:
        raise RefusedError(
            f"{foreign[0]} does not begin with {prefix!r}, the prefix in {cluster_file}",
            "name topics with the prefix, or use a second cluster file with their prefix for this command",
        )
    existing = existing_topics(admin, required=topics)
    chosen = topics or [name for name in existing if name.startswith(prefix) and not name.startswith("__")]
    if prefix and not chosen:
        raise UsageError(
            f"no topic begins with {prefix!r}, the prefix in {cluster_file}",
            "write the prefix of the topics to audit; the user must have the right to describe them",
        )
    tables = read_tables(admin, chosen, positions=positions)
    found = search(tables.partitions, tables.coordinators, int(skew_s * 1000))
    click.echo("\n".join(format_audit(found, tables.unread)))
    sys.exit(exit_code_of(found, tables.unread))
