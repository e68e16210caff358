"""Kafka's own command-line tools, with a class path of their own: what a broker loads, and kafka-tools.

The jars are those of the sets `kafka` and `tools` in jars.lock; nothing of Kafka needs to be installed.
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
    """One command-line tool: its class, and whether it asks a cluster or only reads files."""

    main: str
    asks_cluster: bool = True
    # The first-tier compiler starts faster; what measures speed gets the optimising one.
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
# How dump-log reads the values of the topics that Kafka keeps for itself.
_DECODERS = {
    "__transaction_state": "--transaction-log-decoder",
    "__consumer_offsets": "--offsets-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
    "__share_group_state": "--share-group-state-decoder",
}


def find_tool(name: str) -> Tool:
    """The tool of this name, or an error that lists them."""
    try:
        return TOOLS[name]
    except KeyError:
        raise UsageError(f"there is no tool {name!r}", f"the tools are {', '.join(TOOLS)}") from None


def tool_command(name: str, arguments: Sequence[str], report: Callable[[str], None]) -> list[str]:
    """The command line of a tool; its jars are fetched if they are missing."""
    tool = find_tool(name)
    jars = ensure_jars(report, "kafka", "tools")
    options = ["-Xmx512m"] if tool.measures else ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    # Where the process back end has left an archive of class data a tool starts in half the time: it fits,
    # because the brokers' class path is the first part of this one.
    archive = cached_runtime().archive
    if archive.exists():
        options += [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    # A result is all that is wanted of them; log4j's interface has no provider here and says so.
    options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dlog4j2.StatusLogger.level=OFF"]
    class_path = os.pathsep.join(map(str, jars))
    return [str(find_java().executable), *options, "-cp", class_path, tool.main, *arguments]


def asks_cluster(name: str, arguments: Sequence[str]) -> bool:
    """Whether the tool needs the address of a cluster that its arguments do not give."""
    named = any(a.split("=")[0] in ("--bootstrap-server", "--bootstrap-controller") for a in arguments)
    return find_tool(name).asks_cluster and not named and not asks_help(arguments)


def asks_help(arguments: Sequence[str]) -> bool:
    """Whether the tool is only to explain itself, after which some of them report a failure."""
    return bool({"--help", "-h", "--version"} & set(arguments))


def decoder_of(partition: str) -> list[str]:
    """The option by which dump-log decodes this partition; none for a topic of users."""
    decoder = _DECODERS.get(partition.rpartition("-")[0])
    return [decoder] if decoder else []
