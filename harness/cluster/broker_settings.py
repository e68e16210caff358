"""Kafka settings of the harness's nodes, as far as they differ from Kafka's defaults.

The field `why` of each setting is the reason for its value. Both back ends, compose and process, use these
settings. The file docker-compose.yml repeats them, because it must also work without Python. A test checks
that docker-compose.yml has the same settings as this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.provision.kafka_versions import DEFAULT_KAFKA, KafkaFeature, supports

SESSION_TIMEOUT_MS = 3000

Role = Literal["broker", "controller", "both"]
Profile = Literal["quick", "load"]


@dataclass(frozen=True)
class BrokerSetting:
    """One Kafka setting: its name and value, the role of the nodes that get it, and the reason.

    A version of Kafka that lacks the feature `needs` does not get the setting.
    """

    name: str
    value: str
    role: Role
    why: str
    needs: KafkaFeature | None = None


SETTINGS = (
    # Durability: exactly-once depends on these settings.
    BrokerSetting("default.replication.factor", "3", "both", "one replica on each broker"),
    BrokerSetting(
        "min.insync.replicas",
        "2",
        "both",
        "an acknowledged write survives one broker; controllers use it in elections",
    ),
    BrokerSetting(
        "unclean.leader.election.enable",
        "false",
        "both",
        "a replica that may lack acknowledged records never becomes leader",
    ),
    BrokerSetting(
        "offsets.topic.replication.factor",
        "3",
        "broker",
        "committed offsets are part of each consume-transform-produce transaction",
    ),
    BrokerSetting(
        "transaction.state.log.replication.factor",
        "3",
        "broker",
        "the outcome of a transaction is a record in this topic",
    ),
    BrokerSetting(
        "transaction.state.log.min.isr", "2", "broker", "the outcome of a transaction survives one broker"
    ),
    BrokerSetting(
        "share.coordinator.state.topic.replication.factor",
        "3",
        "broker",
        "the same for share groups",
        KafkaFeature.SHARE_COORDINATOR,
    ),
    BrokerSetting(
        "share.coordinator.state.topic.min.isr",
        "2",
        "broker",
        "the same for share groups",
        KafkaFeature.SHARE_COORDINATOR,
    ),
    # Stability: nothing changes in the cluster unless a test changes it.
    BrokerSetting("auto.create.topics.enable", "false", "broker", "a mistyped topic name is an error"),
    BrokerSetting(
        "auto.leader.rebalance.enable", "false", "both", "leaders move only when a test moves them"
    ),
    BrokerSetting(
        "group.initial.rebalance.delay.ms", "0", "broker", "3 s by default: the first member waits for others"
    ),
    # Short timeouts: a fault and the recovery from it take only seconds, even if both cores of a small
    # machine are busy.
    BrokerSetting(
        "broker.session.timeout.ms",
        str(SESSION_TIMEOUT_MS),
        "both",
        "9 s by default; a dead broker is fenced after it. Tested with 8 busy loops on 2 cores",
    ),
    BrokerSetting("broker.heartbeat.interval.ms", "500", "both", "six heartbeats per session"),
    BrokerSetting(
        "controller.quorum.election.timeout.ms",
        "500",
        "both",
        "1 s by default; a lost controller is detected after it",
    ),
    BrokerSetting(
        "controller.quorum.election.backoff.max.ms",
        "300",
        "both",
        "1 s by default; after a split vote the candidates retry after it",
    ),
    BrokerSetting(
        "controller.quorum.fetch.timeout.ms",
        "1000",
        "both",
        "2 s by default; a voter that cannot fetch starts an election",
    ),
    BrokerSetting(
        "controller.quorum.request.timeout.ms",
        "1000",
        "both",
        "2 s by default; a request to a voter that does not answer is given up",
    ),
    BrokerSetting(
        "socket.connection.setup.timeout.ms",
        "1000",
        "both",
        "10 s by default: the address of a killed container does not answer, and heartbeats wait while a broker connects to it",
    ),
    BrokerSetting("socket.connection.setup.timeout.max.ms", "1000", "both", "the same for retries"),
    BrokerSetting(
        "controller.socket.timeout.ms",
        "2000",
        "broker",
        "30 s by default; requests to a frozen controller go to its successor after it",
    ),
    BrokerSetting(
        "replica.lag.time.max.ms",
        "5000",
        "broker",
        "30 s by default, read-only at run time; a paused follower leaves the ISR after it",
    ),
    BrokerSetting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "1000",
        "broker",
        "10 s by default; a timed-out transaction is aborted within it",
    ),
    BrokerSetting(
        "producer.id.expiration.check.interval.ms",
        "1000",
        "broker",
        "10 min by default; a lowered expiration has an effect within it",
    ),
    BrokerSetting(
        "group.min.session.timeout.ms",
        "1000",
        "broker",
        "6 s by default; lower bound of the session timeout that a classic member requests",
    ),
    BrokerSetting(
        "group.consumer.min.session.timeout.ms",
        "1000",
        "broker",
        "45 s by default, read-only at run time; lower bound of the next setting",
    ),
    BrokerSetting(
        "group.consumer.session.timeout.ms",
        "6000",
        "broker",
        "45 s by default; a dead member of the consumer protocol is removed after it",
    ),
    BrokerSetting(
        "group.consumer.min.heartbeat.interval.ms",
        "500",
        "broker",
        "5 s by default, read-only at run time; lower bound of the next setting",
    ),
    BrokerSetting("group.consumer.heartbeat.interval.ms", "1000", "broker", "six heartbeats per session"),
    # Settings for small machines, because Kafka's defaults are sized for large machines.
    BrokerSetting(
        "offsets.topic.num.partitions",
        "12",
        "broker",
        "50 by default, which adds most of a second to the start; with 12 each broker leads four",
    ),
    BrokerSetting("transaction.state.log.num.partitions", "12", "broker", "the same for transactional ids"),
    BrokerSetting("num.io.threads", "4", "broker", "two cores serve six nodes and the clients"),
    BrokerSetting("num.network.threads", "2", "both", "two cores serve six nodes and the clients"),
    BrokerSetting("background.threads", "2", "both", "two cores serve six nodes and the clients"),
    BrokerSetting(
        "log.segment.bytes",
        "67108864",
        "broker",
        "1 GB by default: after SIGKILL a broker rereads its last segments before it serves, for most of a minute after half an hour of load",
    ),
    BrokerSetting(
        "log.cleaner.dedupe.buffer.size",
        "2097152",
        "broker",
        "128 MB by default, sized for large compacted topics",
    ),
)


def settings_for(role: Literal["broker", "controller"], kafka: str = DEFAULT_KAFKA) -> dict[str, str]:
    """Return the settings of a role, as a dict from name to value, without those that a version lacks."""
    known = (s for s in SETTINGS if s.needs is None or supports(kafka, s.needs))
    return {s.name: s.value for s in known if s.role in (role, "both")}


def heap_options(role: Literal["broker", "controller"], profile: Profile) -> list[str]:
    """Return the JVM options that set the heap size of a node with this role.

    Without these options, each of the six JVMs may use a quarter of the machine's memory.
    """
    least, most = {
        ("broker", "quick"): (64, 320),
        ("controller", "quick"): (64, 160),
        ("broker", "load"): (512, 1024),
        ("controller", "load"): (192, 384),
    }[role, profile]
    return [f"-Xms{least}m", f"-Xmx{most}m"]


def jvm_options(profile: Profile) -> list[str]:
    """Return the JVM options for the garbage collector and the JIT compiler.

    The options are set because the JVM's defaults depend on the size of the machine. The profile `quick` uses
    only the JVM's fast first-tier compiler. The start of a JVM then takes a third of the processor time that
    it takes with all compilers, but the JVM is slower under load.
    """
    if profile == "quick":
        return ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=50"]
