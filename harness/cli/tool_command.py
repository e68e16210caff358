"""Kafka's command-line tools, run on a cluster or on the files of a node."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from harness.base.errors import HarnessError, UsageError
from harness.base.scratch import scratch_folder
from harness.cluster import lifecycle
from harness.cluster.layout import BrokerListener
from harness.cluster.state_directory import State
from harness.provision.kafka_tools import DUMP_LOG, asks_cluster, asks_help, decoder_of, tool_command

Report = Callable[[str], None]


def run_tool(state: State, name: str, arguments: list[str], report: Report) -> None:
    """Run a tool with its output on the terminal. Raise HarnessError if it fails."""
    if "--state" in arguments:
        raise UsageError(
            "--state is an option of eos, and not of Kafka's tool",
            f"write it before the name of the tool: eos tool --state DIR {name}",
        )
    if name == DUMP_LOG and arguments and not arguments[0].startswith("-"):
        with scratch_folder("segments") as scratch:
            _run(name, _dump_arguments(state, arguments, scratch), report)
        return
    if asks_cluster(name, arguments):
        servers = lifecycle.attach(state).bootstrap(BrokerListener.DIRECT)
        arguments = ["--bootstrap-server", servers, *arguments]
    _run(name, arguments, report)


def _dump_arguments(state: State, arguments: list[str], scratch: Path) -> list[str]:
    """Turn `NODE TOPIC-PARTITION [ARGUMENTS...]` into the arguments of Kafka's tool dump-log."""
    if len(arguments) < 2 or not re.fullmatch(r"[\w.-]+-\d+", arguments[1]):
        raise UsageError(
            "dump-log needs a node and a partition", "for example: eos tool dump-log kafka-1 orders-0"
        )
    node, partition, *more = arguments
    files = lifecycle.attach(state).node(node).segments(partition, scratch)
    decoder = [] if any(argument.endswith("-decoder") for argument in more) else decoder_of(partition)
    return ["--files", ",".join(map(str, files)), *decoder, *more]


def _run(name: str, arguments: list[str], report: Report) -> None:
    code = subprocess.run(tool_command(name, arguments, report), check=False).returncode
    if code != 0 and not asks_help(arguments):
        raise HarnessError(
            f"Kafka's tool {name} ended with exit code {code}", f"see `eos tool {name} --help`"
        )
