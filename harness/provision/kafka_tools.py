"""Kafka's command-line tools, run from the jar sets `kafka` and `tools` of the file jars.lock.

No separate installation of Kafka is needed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.base.errors import UsageError
from harness.provision.jars import ensure_jars
from harness.provision.java import find_java
from harness.provision.kafka_runtime import cached_runtime


@dataclass(frozen=True)
class Tool:
    """A command-line tool: its class, whether it connects to a cluster, and whether it measures speed."""

    main: str
    asks_cluster: bool = True
    # A tool that measures speed runs with the optimising compiler. The other tools start faster without it.
    measures: bool = False


_TOOLS = "org.apache.kafka.tools"
DUMP_LOG = "dump-log"
TOOLS = {
    "configs": Tool("kafka.admin.ConfigCommand"),
    "console-consumer": Tool(f"{_TOOLS}.consumer.ConsoleConsumer"),
    "console-producer": Tool(f"{_TOOLS}.ConsoleProducer"),
    "consumer-groups": Tool(f"{_TOOLS}.consumer.group.ConsumerGroupCommand"),
    "consumer-perf": Tool(f"{_TOOLS}.ConsumerPerformance", measures=True),
    "delete-records": Tool(f"{_TOOLS}.DeleteRecordsCommand"),
    DUMP_LOG: Tool(f"{_TOOLS}.DumpLogSegments", asks_cluster=False),
    "end-to-end-latency": Tool(f"{_TOOLS}.EndToEndLatency", measures=True),
    "features": Tool(f"{_TOOLS}.FeatureCommand"),
    "get-offsets": Tool(f"{_TOOLS}.GetOffsetShell"),
    "groups": Tool(f"{_TOOLS}.GroupsCommand"),
    "leader-election": Tool(f"{_TOOLS}.LeaderElectionCommand"),
    "log-dirs": Tool(f"{_TOOLS}.LogDirsCommand"),
    "metadata-quorum": Tool(f"{_TOOLS}.MetadataQuorumCommand"),
    "producer-perf": Tool(f"{_TOOLS}.ProducerPerformance", measures=True),
    "reassign-partitions": Tool(f"{_TOOLS}.reassign.ReassignPartitionsCommand"),
    "topics": Tool(f"{_TOOLS}.TopicCommand"),
    "transactions": Tool(f"{_TOOLS}.TransactionsCommand"),
}
# Options of the tool dump-log that make it decode the records of Kafka's internal topics.
_DECODERS = {
    "__transaction_state": "--transaction-log-decoder",
    "__consumer_offsets": "--offsets-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
    "__share_group_state": "--share-group-state-decoder",
}


def find_tool(name: str) -> Tool:
    """Return a command-line tool by its name.

    If there is no such tool, raise UsageError, whose hint lists all tools.
    """
    try:
        return TOOLS[name]
    except KeyError:
        raise UsageError(f"there is no tool {name!r}", f"the tools are {', '.join(TOOLS)}") from None


def tool_command(name: str, arguments: Sequence[str], report: Callable[[str], None]) -> list[str]:
    """Return the command line that runs a tool. Fetch the jars first if they are missing."""
    tool = find_tool(name)
    jars = ensure_jars(report, "kafka", "tools")
    options = ["-Xmx512m"] if tool.measures else ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    # The class-data archive of the process back end halves the start time of a tool. It is valid here,
    # because the tool's class path begins with the class path of the nodes.
    archive = cached_runtime().archive
    if archive.exists():
        options += [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    # The output should contain only results. The first option hides messages below the level of warnings. The
    # second option hides log4j's own warning that it has no provider.
    options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dlog4j2.StatusLogger.level=OFF"]
    class_path = os.pathsep.join(map(str, jars))
    return [str(find_java().executable), *options, "-cp", class_path, tool.main, *arguments]


def asks_cluster(name: str, arguments: Sequence[str]) -> bool:
    """Return whether the harness must add a cluster address to the tool's arguments.

    It must do so if the tool connects to a cluster and the arguments contain no address, unless they request
    help or the version.
    """
    named = any(a.split("=")[0] in ("--bootstrap-server", "--bootstrap-controller") for a in arguments)
    return find_tool(name).asks_cluster and not named and not asks_help(arguments)


def asks_help(arguments: Sequence[str]) -> bool:
    """Return whether the arguments request help or the version.

    If they do, the caller ignores the exit code of the tool, because some tools exit with an error after
    printing help.
    """
    return bool({"--help", "-h", "--version"} & set(arguments))


def decoder_of(partition: str) -> list[str]:
    """Return the option for dump-log to decode a partition's records; empty if its topic is not internal."""
    decoder = _DECODERS.get(partition.rpartition("-")[0])
    return [decoder] if decoder else []
