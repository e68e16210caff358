"""Write docs/reference/scenario.md: every table, key, fault and target of a scenario file, from the code."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import click
import msgspec

from harness.app.app_spec import AppLimits, AppSpec, ReadyCheck
from harness.base.units import Duration, Rate, Size, Span
from harness.cluster import targets
from harness.cluster.backend import capabilities_of
from harness.cluster.state_directory import BackendName
from harness.faults.catalogue import fault_classes
from harness.report.text_format import format_table
from harness.scenario.app_parts import ConserveRule, InputPart, OutputPart, TimeWindow
from harness.scenario.headline import Header, PlanRules
from harness.scenario.model import (
    USED_BY,
    USED_BY_ALL,
    ClusterNeeds,
    FaultEntry,
    Limits,
    Verify,
    WalkthroughPart,
    Workload,
)
from harness.scenario.parameters import bounds_of, kind_of_parameter, parameters_of

FILE: Final = Path(__file__).parents[1] / "docs" / "reference" / "scenario.md"
TABLES: Final[dict[str, type[msgspec.Struct]]] = {
    "[scenario]": Header,
    "[cluster]": ClusterNeeds,
    "[plan]": PlanRules,
    "[[workload]]": Workload,
    "[[fault]]": FaultEntry,
    "[limits]": Limits,
    "[verify]": Verify,
    "[walkthrough]": WalkthroughPart,
    "[app]": AppSpec,
    "[app.ready]": ReadyCheck,
    "[app.limits]": AppLimits,
    "[[input]]": InputPart,
    "[[output]]": OutputPart,
    "[output.window]": TimeWindow,
    "[output.conserve]": ConserveRule,
}
TEXTS: Final[dict[str, dict[str, str]]] = {
    "[scenario]": {
        "name": "name of the scenario and of the folder of its runs: letters, digits, `.`, `_` and `-`",
        "shows": "what the scenario shows, in a sentence",
        "expect": "the verdict that the run must have",
        "anomalies": 'names of anomalies that the run must find; only with `expect = "invalid"`',
    },
    "[cluster]": {
        "profile": "JVM settings of the brokers: `quick` starts fast, `load` is for high rates",
        "kafka": "version of Kafka; empty: that of a running cluster, or else the default version",
        "internal_tap": "whether brokers reach each other through a tap; faults on their frames need it",
    },
    "[plan]": {
        "steady": "time of load without faults, before the plan",
        "duration": "time of the plan; `--duration` replaces it",
        "gap": "pause before each drawn fault",
    },
    "[[workload]]": {
        "kind": "kind of client",
        "clients": "number of clients, each in its own process",
        "topic": "topic that the clients write, or read if they are readers",
        "partitions": "number of partitions of the topic",
        "rate": "records per second of each client",
        "burst": "records that are sent together",
        "payload": "bytes behind the identity of a record",
        "transaction": "fewest and most records of a transaction",
        "abort_share": "share of transactions that are aborted on purpose",
        "transaction_timeout": "transaction time-out at the coordinator",
        "end_discipline": (
            "new producer after an unclear end (`reinit`), before each transaction (`always`), or never"
        ),
        "delivery_limit": "time without an acknowledgement after which the producer aborts; 0: it waits",
        "idempotence": "whether the producer is idempotent",
        "source": "topic that a pipeline reads",
        "group": "consumer group of a pipeline, or of readers; readers without a group are assigned",
        "group_metadata": "whether a pipeline sends the metadata of its group with its positions (KIP-447)",
        "work": "time between a pipeline's last output and its commit",
        "transactions": "whether a pipeline uses transactions",
        "changelog": "topic for counts and sums by key, which the pipeline restores after a restart",
        "positions": "whether positions are part of the transaction, or are committed apart from it",
        "protocol": "group protocol: `consumer` is that of KIP-848",
        "isolation": "isolation level of readers",
        "settings": (
            "settings of librdkafka; of a pipeline's consumer with the prefix `consumer.`. "
            "`compression.type` lz4, snappy and zstd are refused without the Python package "
            "that the witness `raw-log` needs ([settings](../how-to/settings.md))"
        ),
        "planted_bug": "bug that the clients have on purpose ([workloads](../workloads.md#planted-bugs))",
    },
    "[[fault]]": {
        "fault": "name of the fault (below)",
        "target": "nodes, client or instance that it hits (below)",
        "lasts": "time between the injection and the heal; with two values it is drawn",
        "at": "fixed time of the injection, from the start of the plan, or when the fault before is healed",
        "throughout": "whether the fault lasts for the whole plan",
        "weight": "how often the fault is drawn, relative to the others",
        "parameters": "",
    },
    "[limits]": {
        "recovery": "longest time until every client works again, from the end of the phase with faults. "
        "If it is longer than 60 s, it is also the bound of the anomaly "
        "[`stalled`](../anomalies.md#liveness)"
    },
    "[verify]": {
        "witnesses": "readers of the topics, which must agree",
        "frames": "whether clients pass the wire tap, and its log is kept ([wire tap](../wire-tap.md))",
        "metrics": "whether the metrics of brokers and clients are sampled ([metrics](../metrics.md))",
    },
    "[walkthrough]": {
        "steps": "name of the walkthrough: it has its own clients and faults",
        "topic": "topic of the walkthrough",
        "source": "input topic of its application, if it has one",
        "group": "consumer group of its application",
        "control_tries": "the same for controls, cures and further cases; without it as many as `tries`",
        "tries": "attempts of each case; `--tries` replaces it",
        "libraries": "client libraries that are compared",
        "transaction_timeout": "longest transaction time-out of its producers",
    },
    "[app]": {
        "command": "program and arguments, with placeholders ([application](../application.md))",
        "image": "Docker image instead of a program on this host",
        "compose": "`file#service`: a service of a compose file",
        "running": "whether the application runs already, and is not started by the harness",
        "again": "command of every start after the first one, if it differs",
        "name": "name of the instances: `app-1`, `app-2`",
        "env": "environment variables, with placeholders",
        "files": "files to write: name and content, with placeholders",
        "directory": "working directory, relative to the scenario file",
        "group": "consumer group of the application",
        "internal": "patterns for its own topics, such as `connect-{run}-*`",
        "instances": "number of instances",
        "ready": "when an instance is ready (below)",
        "restart": "when an instance that ended is started again",
        "backoff": "pause before a restart: first and longest",
        "most_restarts": "restarts after which the supervisor gives up",
        "stop": "signal that asks an instance to stop, and the time until SIGKILL",
        "limits": "limits of each instance (below)",
        "guarantee": "what the application promises; what a weaker promise permits becomes a listed fact",
    },
    "[app.ready]": {
        "log": "regular expression that a line of the output must match",
        "port": "name of a port on which the instance must listen",
        "http": "address that must answer with a status below 400",
        "command": "command that must exit with 0",
        "group": "the consumer group must be stable and have every partition of the inputs",
        "fetch": "every partition of the inputs must have been fetched through the wire tap",
    },
    "[app.limits]": {
        "start": "time until an instance is ready",
        "cores": "cores of an instance; 0: all",
        "memory": "memory of the processes of an instance",
        "log": "size of the log of an instance",
    },
    "[[input]]": {
        "topic": "topic that the application reads",
        "table": "name of the topic in SQL; by default the topic",
        "columns": "names of columns, if the value is CSV",
        "value": "template of the value, with `{id}`",
        "key": "template of the key",
        "headers": "templates of headers, by name",
        "encoder": 'function that makes the bytes of a value of its text: `"FILE.py:NAME"`',
        "encoder_command": "command that encodes values line by line",
        "keys": "number of keys; each is a lane of its own",
        "partitions": "number of partitions",
        "rate": "inputs per second",
        "aborted": "share of transactions that are aborted; their inputs are decoys",
        "transaction": "fewest and most inputs of a transaction",
        "transaction_timeout": "transaction time-out of the producer of the inputs",
    },
    "[[output]]": {
        "topic": "topic that the application writes",
        "command": "instead of a topic: command that prints rows as JSON lines",
        "http": "instead of a topic: an HTTP sink of the harness, whose address is `{http:TABLE}`",
        "jdbc": "instead of a topic: address of a database, such as `jdbc:postgresql://127.0.0.1/orders`",
        "query": "SQL of the database that returns the rows",
        "driver": "Maven coordinates of the JDBC driver's jars, separated by spaces",
        "user": "user of the database",
        "password": "reference to the password of the database: `env:NAME` or `file:/path`",
        "table": "name of the output in SQL; by default the topic",
        "columns": "names of columns, if the value is CSV",
        "ids": "fields with one token each, and the tables of their inputs",
        "each": "number of outputs of each input: a number, a range or SQL over the input",
        "holds": "SQL over an input and its output that must be true",
        "per": "SQL over the input: what an aggregate is computed for",
        "key": "SQL over the output: what an aggregate is for",
        "is": "aggregates: column of the output, and SQL over the inputs",
        "seen": "whether the last output of a key or every output is compared",
        "window": "tumbling windows of the aggregates (below)",
        "conserve": "an aggregate that must be the same for outputs and inputs (below)",
        "unique": "SQL over outputs: no two outputs have the same values",
        "repeatable": "SQL over outputs: those for which it is true may repeat the values of `unique`",
        "expect": "SQL whose rows must be the rows of the topic, as a multiset",
        "reference": "SQL over outputs whose values must be those of a run without faults",
        "last_by": "column by which only the last output counts for `expect`",
        "order": "order of the outputs that must be that of their inputs",
        "partitions": "number of partitions",
    },
    "[output.window]": {
        "field": "time of an input",
        "size": "size of a window",
        "start": "start of an output's window",
    },
    "[output.conserve]": {"outputs": "aggregate over all outputs", "inputs": "aggregate over all inputs"},
}


PARAMETERS: Final[dict[str, str]] = {
    "api": "name of the request, such as `Produce`, `EndTxn` or `TxnOffsetCommit`",
    "nth": "the first matching frame that is hit",
    "times": "number of frames that are hit",
    "client_id": "only frames of this client id",
    "transactional_id": "only frames of this transactional id",
    "producer_id": "only frames of this producer id",
    "topic": "only frames with this topic",
    "partition": "only frames with this partition",
    "within": "time in which a frame, or a packet, must match; otherwise the fault did not bite",
    "listener": "the wire tap: that of the clients, or that between the brokers (`internal_tap`)",
    "side": "whether the request or its answer is hit",
    "then": "what follows: the connection is cut, or stays open and carries no more bytes",
    "until": "name of a later request after whose answer the frame is sent; `-`: none",
    "drop_client": "whether the tap cuts the client's connection while it holds the frame",
    "delay": "delay of a frame, or between two pieces",
    "latency": "delay of each chunk of bytes",
    "jitter": "largest random deviation from the latency",
    "stream": "direction: `upstream` is from clients to brokers",
    "share": "share of the connections",
    "rate": "bytes per second of each connection",
    "size": "bytes of a piece",
    "cut_from": "the nodes from which the target is cut",
    "direction": "direction of the connections that cannot be opened",
    "hard": "whether the node gets SIGKILL",
    "past": "event that must happen during the freeze; empty: none",
    "pause": "time of each freeze",
    "rest": "time between two freezes",
    "to": "number of instances",
    "version": "version of Kafka",
    "level": "level during the fault",
    "feature": "feature of the cluster",
    "back": "level, or brokers, after the heal",
    "on": "brokers that have the replicas during the fault",
    "connections": "number of connections to each target",
    "carries": "request that must pass on the connection; empty: any",
    "source": "port from which the connection was opened",
    "address": "address from which the connection was opened",
    "destination": "port of the target broker",
}
"""What each parameter of a fault means."""
PARAMETERS_OF: Final[dict[str, dict[str, str]]] = {
    "placement": {"topic": "topic", "partition": "partition"},
    "mute_client": {"client_id": "client id of the member, if the instance has several"},
}
"""What a parameter means where it differs from PARAMETERS."""
FAULT_EXAMPLE: Final = """\
The parameters of a fault are further keys of its `[[fault]]` table. A file with one fault that lasts
throughout, and one that is drawn:

```toml
[[fault]]
fault = "jitter"
target = "all"
throughout = true
latency = "50ms"
jitter = "40ms"

[[fault]]
fault = "lose_response_frame"
target = "leader_of(orders, 0)"
lasts = ["1s", "3s"]
weight = 2
api = "Produce"
then = "silence"
```

With `--set`, a parameter is `fault.0.latency=80ms`. A parameter whose default is `-` may be left out."""


def reference() -> str:
    """Return the text of the page."""
    lines = [
        "# Scenario file",
        "",
        "For everyone who writes a scenario: every table, key, fault and target.",
        "`python -m tools.scenario_reference` writes this page from the code.",
        "`eos new mine.toml` writes a file to begin with, and `eos show NAME` prints",
        "a shipped one.",
        "",
        f"Durations are written as {Duration.allowed}, sizes as {Size.allowed}, rates as",
        f"{Rate.allowed}, and ranges as {Span.allowed}. A wrong key or value is an error when the file",
        "is loaded, with the line and the allowed values. `--set workload.0.rate=500` replaces a key.",
        "",
        "## Tables",
    ]
    for table, kind in TABLES.items():
        lines += ["", f"### `{table}`", "", *_table(table, kind)]
    lines += ["", "## Keys of each kind of client", "", *_used_by()]
    lines += ["", "## Targets", "", "```", *_targets(), "```", "", "## Faults", "", FAULT_EXAMPLE, *_faults()]
    return "\n".join(lines) + "\n"


def _table(table: str, kind: type[msgspec.Struct]) -> list[str]:
    hints = get_type_hints(kind)
    rows = []
    for field in msgspec.structs.fields(kind):
        if text := TEXTS[table].get(field.encode_name, ""):
            rows.append((f"`{field.encode_name}`", _kind_of(hints[field.name]), _default(field), text))
    return format_table(rows, ("key", "value", "default", "meaning"), markdown=True)


def _kind_of(hint: Any) -> str:
    inner = [part for part in get_args(hint) if part is not type(None)]
    origin = get_origin(hint)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner if value)
    if origin in (list, tuple, dict):
        several = {
            list: f"list of {_kind_of(inner[0])}",
            tuple: "two numbers" if len(inner) == 2 and inner[1] is not ... else "list of whole numbers",
            dict: "table",
        }
        return several[origin]
    return _kind_of(inner[0]) if inner else _kind_of_plain(hint)


def _kind_of_plain(kind: type) -> str:
    if issubclass(kind, msgspec.Struct):
        return "table"
    if issubclass(kind, Duration | Size):
        return kind.__name__.lower()
    names: dict[type, str] = {int: "whole number", float: "number", bool: "true or false"}
    names |= {Span: "range", Rate: "rate"}
    return names.get(kind, "target" if kind is targets.Target else "text")


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, Span):
        return f"`{value[0]}`" if value[0] == value[1] else f"`{value[0]}` to `{value[1]}`"
    if isinstance(value, tuple | list):
        return ", ".join(f"`{item}`" for item in value) or "-"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "-" if value in ("", None, {}) or isinstance(value, msgspec.Struct) else f"`{value}`"


def _used_by() -> list[str]:
    rows = [
        (f"`{kind}`", ", ".join(f"`{key}`" for key in sorted(keys | USED_BY_ALL)))
        for kind, keys in USED_BY.items()
    ]
    return format_table(rows, ("kind", "keys"), markdown=True)


def _targets() -> list[str]:
    text = inspect.getdoc(targets) or ""
    return text.partition("\n\n")[2].splitlines()


def _faults() -> Iterator[str]:
    for name, kind in sorted(fault_classes().items()):
        yield ""
        yield f"### `{name}`"
        yield ""
        yield _reworded(inspect.getdoc(kind) or "", parameters_of(name))
        yield ""
        kinds: tuple[BackendName, ...] = ("compose", "process")
        backends = [backend for backend in kinds if kind.capability in capabilities_of(backend)]
        external = "if its cluster file permits it" if kind.allowed_on_external else "no"
        yield f"Back ends: {', '.join(backends)}. External cluster: {external}."
        if rows := list(_parameters(name, kind)):
            yield ""
            yield from format_table(rows, ("parameter", "value", "default", "meaning"), markdown=True)


def _parameters(name: str, kind: type) -> Iterator[tuple[str, str, str, str]]:
    """Yield a row for each parameter of a fault."""
    for key, field in parameters_of(name).items():
        default = next(f.default for f in fields(kind) if f.name == field)
        shown = "required" if default is MISSING else f"`{_with_unit(field, default)}`"
        meaning = PARAMETERS_OF.get(name, {}).get(key) or PARAMETERS[key]
        value = ", ".join(filter(None, [_kind_of(kind_of_parameter(name, field)), bounds_of(name, field)]))
        yield f"`{key}`", value, shown.replace("`-`", "-"), meaning


def _with_unit(field: str, value: object) -> object:
    from harness.scenario.parameters import key_and_value

    shown = key_and_value(field, value)[1]
    return "-" if shown in (None, "") else str(shown).lower() if isinstance(shown, bool) else shown


def _reworded(text: str, keys: dict[str, str]) -> str:
    """Return a docstring with the names of keys instead of those of Python's fields, one line a paragraph."""
    for key, field in keys.items():
        text = re.sub(rf"`{field}`", f"`{key}`", text)
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def missing_texts() -> Sequence[str]:
    """Return the keys without a text, and the texts without a key."""
    keys = {(t, f.encode_name) for t, kind in TABLES.items() for f in msgspec.structs.fields(kind)}
    texts = {(table, key) for table, entries in TEXTS.items() for key in entries}
    keys |= {("parameter", key) for fault in fault_classes() for key in parameters_of(fault)}
    texts |= {("parameter", key) for key in PARAMETERS}
    return sorted(" ".join(pair) for pair in keys ^ texts)


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if the page is not current.")
def main(*, check: bool) -> None:
    """Write the reference of scenario files."""
    text = reference()
    if check:
        sys.exit(FILE.read_text() != text)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(text)
    click.echo(FILE)


if __name__ == "__main__":
    main()
