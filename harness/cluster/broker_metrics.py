"""JMX metrics of the brokers: their names, and a reader that needs no setting of the brokers.

A Java program attaches to the brokers' JVMs and reads their MBeans (`BrokerMetrics.java`). One such program
serves all brokers of a cluster, and its answer names each broker. After a restart of a broker, the program
attaches to the new JVM.
"""

from __future__ import annotations

import select
import subprocess
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
import psutil

from harness.base.closing import Closing
from harness.base.errors import CapabilityError, HarnessError
from harness.cluster.cluster import Cluster
from harness.cluster.network_links import node_address, reaches_containers
from harness.cluster.nodes import Condition, Node
from harness.provision.java import find_java, jdk_problem
from harness.provision.paths import resource

_JVM_OPTIONS: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx48m")
_START_LIMIT_S: Final = 60.0
_ANSWER_LIMIT_S: Final = 20.0
"""Longer than the time that the program waits for a broker, on a loaded machine."""

ERROR: Final = "error"
"""First word of the names of error counters: `error Produce NOT_ENOUGH_REPLICAS`."""
REQUESTS: Final = "requests"
"""First word of the names of counters of requests without an error: `requests Produce`."""
COUNTED: Final = ("Produce", "EndTxn")
"""Requests whose answers without an error are counted too."""
TRANSACTIONAL: Final = frozenset(
    {
        "Produce",
        "InitProducerId",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "TxnOffsetCommit",
        "EndTxn",
        "WriteTxnMarkers",
    }
)
"""Requests of idempotent and transactional producers, and of the transaction coordinators."""

PRODUCER_IDS: Final = "producer ids"
UNDER_MIN_ISR: Final = "partitions under min ISR"
LOADS: Final = {"transactions": "transaction load time, ms", "groups": "group load time, ms"}
"""Metrics of the time that a coordinator needs to load a partition of its topic."""

NOT_RUNNING: Final = "it does not run"
"""Problem of a broker whose process has ended."""

_REPLICAS: Final = "kafka.server:type=ReplicaManager,name="
_TOPICS: Final = "kafka.server:type=BrokerTopicMetrics,name="
_TXN: Final = "kafka.server:type=transaction-coordinator-metrics"
_GROUP: Final = "kafka.server:type=group-coordinator-metrics"
_ERRORS: Final = "kafka.network:type=RequestMetrics,name=ErrorsPerSec"


class Metric(NamedTuple):
    """A metric of a broker: its name here, its MBean, and the attribute. `counts`: it only grows."""

    name: str
    mbean: str
    attribute: str
    counts: bool = False


METRICS: Final = (
    Metric(PRODUCER_IDS, f"{_REPLICAS}ProducerIdCount", "Value"),
    Metric(UNDER_MIN_ISR, f"{_REPLICAS}UnderMinIsrPartitionCount", "Value"),
    Metric("under-replicated partitions", f"{_REPLICAS}UnderReplicatedPartitions", "Value"),
    Metric("partitions with late transactions", f"{_REPLICAS}PartitionsWithLateTransactionsCount", "Value"),
    Metric("ISR shrinks", f"{_REPLICAS}IsrShrinksPerSec", "Count", counts=True),
    Metric("ISR expands", f"{_REPLICAS}IsrExpandsPerSec", "Count", counts=True),
    Metric("failed Produce requests", f"{_TOPICS}FailedProduceRequestsPerSec", "Count", counts=True),
    Metric("invalid sequences", f"{_TOPICS}InvalidOffsetOrSequenceRecordsPerSec", "Count", counts=True),
    Metric(LOADS["transactions"], _TXN, "partition-load-time-max"),
    Metric(LOADS["groups"], _GROUP, "partition-load-time-max"),
    Metric("group rebalances", _GROUP, "group-completed-rebalance-count", counts=True),
    Metric(
        "failed verifications",
        "kafka.server:type=AddPartitionsToTxnManager,name=VerificationFailureRate",
        "Count",
        counts=True,
    ),
    Metric(
        "markers that wait",
        "kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name=LogAppendRetryQueueSize",
        "Value",
    ),
)

Values = dict[str, float]


class Reading(NamedTuple):
    """The metrics of each broker that answered, and the reason for each other one."""

    values: dict[str, Values]
    problems: dict[str, str]

    def total(self) -> Values:
        """Return the sums over all brokers."""
        sums: Values = {}
        for values in self.values.values():
            for name, value in values.items():
                sums[name] = sums.get(name, 0.0) + value
        return sums


class _Answer(msgspec.Struct):
    values: Values | None = None
    error: str = ""


def metrics_problem(cluster: Cluster) -> str:
    """Return why the metrics of a cluster's brokers cannot be read here, or "" if they can."""
    if not cluster.owned:
        return "the metrics of brokers are read from their processes, which an external cluster does not show"
    if problem := jdk_problem():
        return f"the metrics of brokers are read by a Java program: {problem}"
    if cluster.record.backend == "compose" and not reaches_containers(cluster.ports):
        return "the Docker engine runs on another machine, where the brokers' processes cannot be reached"
    return ""


class BrokerMetrics(Closing):
    """Reader of the metrics of a cluster's brokers. Use it as a context manager: it runs a Java process."""

    def __init__(self, cluster: Cluster) -> None:
        if problem := metrics_problem(cluster):
            raise CapabilityError(problem, "leave out verify.metrics, or install a JDK if it is missing")
        self._cluster = cluster
        self._words: dict[str, str] = {}
        command = [str(find_java().executable), *_JVM_OPTIONS, str(resource("BrokerMetrics.java"))]
        self._process = subprocess.Popen(
            [*command, *_arguments()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        try:
            self._read_line(_START_LIMIT_S)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the Java process; closing twice is harmless."""
        self._process.kill()
        self._process.communicate()

    def read(self) -> Reading:
        """Read the metrics of every broker that runs and answers."""
        reading = Reading({}, {})
        words = {node.name: self._word(node) for node in self._cluster.brokers}
        reading.problems.update({name: NOT_RUNNING for name, word in words.items() if not word})
        asked = [word for word in words.values() if word]
        if not asked:
            return reading
        assert self._process.stdin is not None
        self._process.stdin.write(f"read {' '.join(asked)}\n")
        answers = msgspec.json.decode(self._read_line(_ANSWER_LIMIT_S), type=dict[str, _Answer])
        for name, answer in answers.items():
            if answer.values is None:
                reading.problems[name] = answer.error
                self._words.pop(name, None)  # its process may be another one by now
            else:
                reading.values[name] = named(answer.values)
        return reading

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the Java process so far; 0 if it has ended."""
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.NoSuchProcess:
            return 0.0
        return float(times.user + times.system)

    def _word(self, node: Node) -> str:
        """Return the word that names a broker's process to the Java program; "" if it does not run."""
        if node.name not in self._words:
            status = node.status()
            if status.condition is Condition.EXITED or not status.pid:
                return ""
            container = self._cluster.record.backend == "compose"
            host = f"@{node_address(self._cluster.ports.subnet, node.node_id)}" if container else ""
            self._words[node.name] = f"{node.name}={status.pid}{host}"
        return self._words[node.name]

    def _read_line(self, limit: float) -> str:
        assert self._process.stdout is not None
        if select.select([self._process.stdout], [], [], limit)[0] and (
            line := self._process.stdout.readline()
        ):
            return line
        raise HarnessError(
            "the program that reads the metrics of the brokers has ended or does not answer",
            f"try it by hand: java {resource('BrokerMetrics.java')}",
        )


def named(values: Mapping[str, float]) -> Values:
    """Return metrics with their names in this module. `values` has the names of MBeans and attributes."""
    known = {f"{_canonical(metric.mbean)}#{metric.attribute}": metric.name for metric in METRICS}
    result: Values = {}
    for key, value in values.items():
        mbean, _, attribute = key.rpartition("#")
        keys = _keys(mbean)
        if keys.get("name") == "ErrorsPerSec":
            kind = REQUESTS if keys["error"] == "NONE" else ERROR
            error = "" if keys["error"] == "NONE" else f" {keys['error']}"
            result[f"{kind} {keys['request']}{error}"] = value
        else:
            result[known[f"{_canonical(mbean)}#{attribute}"]] = value
    return result


def errors(values: Mapping[str, float], requests: frozenset[str] = TRANSACTIONAL) -> Values:
    """Return the error counters of these requests."""
    return {
        name: value
        for name, value in values.items()
        if name.startswith(f"{ERROR} ") and name.split(" ")[1] in requests
    }


def _arguments() -> list[str]:
    """Return the arguments of the Java program: the MBeans, their attributes, and what is left out."""
    attributes: dict[str, list[str]] = {}
    for metric in METRICS:
        attributes.setdefault(metric.mbean, []).append(metric.attribute)
    wanted = [f"{mbean}#{','.join(names)}" for mbean, names in attributes.items()]
    wanted.append(f"{_ERRORS},*#Count#error=NONE")
    return wanted + [f"{_ERRORS},request={request},error=NONE#Count" for request in COUNTED]


def _keys(mbean: str) -> dict[str, str]:
    """Return the key properties of an MBean's name."""
    pairs = (pair.partition("=") for pair in mbean.partition(":")[2].split(","))
    return {name: value for name, _, value in pairs}


def _canonical(mbean: str) -> str:
    """Return an MBean's name with its key properties in alphabetical order."""
    domain, _, properties = mbean.partition(":")
    return f"{domain}:{','.join(sorted(properties.split(',')))}"
