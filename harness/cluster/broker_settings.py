"""Every Kafka setting that differs from its default, with the reason; both back ends use the same.

The compose file repeats the shared ones, because it must work without Python; a test holds the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

KAFKA_VERSION = "4.3.1"
SESSION_TIMEOUT_MS = 3000

Role = Literal["broker", "controller", "both"]
Profile = Literal["quick", "load"]


@dataclass(frozen=True)
class BrokerSetting:
    """One Kafka setting: where it applies, its value, and why it is not the default."""

    name: str
    value: str
    role: Role
    why: str


SETTINGS = (
    # What the guarantee rests on.
    BrokerSetting("default.replication.factor", "3", "both", "one replica on each broker"),
    BrokerSetting(
        "min.insync.replicas",
        "2",
        "both",
        "an acknowledged write survives one broker; controllers too, for they elect by it",
    ),
    BrokerSetting(
        "unclean.leader.election.enable",
        "false",
        "both",
        "a replica that may lack acknowledged records never leads",
    ),
    BrokerSetting(
        "offsets.topic.replication.factor",
        "3",
        "broker",
        "group offsets are half of consume-transform-produce",
    ),
    BrokerSetting(
        "transaction.state.log.replication.factor",
        "3",
        "broker",
        "the decision of a transaction is a record there",
    ),
    BrokerSetting("transaction.state.log.min.isr", "2", "broker", "a decision survives one broker"),
    BrokerSetting(
        "share.coordinator.state.topic.replication.factor", "3", "broker", "the same for share groups"
    ),
    BrokerSetting("share.coordinator.state.topic.min.isr", "2", "broker", "the same for share groups"),
    # What keeps a test's picture still.
    BrokerSetting(
        "auto.create.topics.enable", "false", "broker", "a topic of a mistyped name is an error, not a topic"
    ),
    BrokerSetting(
        "auto.leader.rebalance.enable",
        "false",
        "both",
        "leaders move because a test moved them, never by themselves",
    ),
    BrokerSetting(
        "group.initial.rebalance.delay.ms", "0", "broker", "a first member waits 3 s for others by default"
    ),
    # Short times: a fault and its recovery in seconds, with room for two busy cores.
    BrokerSetting(
        "broker.session.timeout.ms",
        str(SESSION_TIMEOUT_MS),
        "both",
        "a dead broker is fenced after this; 9 s by default. Held under 8 busy loops on 2 cores",
    ),
    BrokerSetting("broker.heartbeat.interval.ms", "500", "both", "six heartbeats in a session"),
    BrokerSetting(
        "controller.quorum.election.timeout.ms",
        "500",
        "both",
        "a lost controller is noticed in half a second; 1 s by default",
    ),
    BrokerSetting(
        "controller.quorum.election.backoff.max.ms",
        "300",
        "both",
        "two candidates try again soon; 1 s by default",
    ),
    BrokerSetting(
        "controller.quorum.fetch.timeout.ms",
        "1000",
        "both",
        "a voter that cannot fetch stands for election; 2 s by default",
    ),
    BrokerSetting(
        "controller.quorum.request.timeout.ms",
        "1000",
        "both",
        "a voter that does not answer is passed over; 2 s by default",
    ),
    BrokerSetting(
        "socket.connection.setup.timeout.ms",
        "1000",
        "both",
        "a dead container's address answers nothing: by default a broker dials a dead controller for 10 s while its heartbeats wait",
    ),
    BrokerSetting("socket.connection.setup.timeout.max.ms", "1000", "both", "the same for the next try"),
    BrokerSetting(
        "controller.socket.timeout.ms",
        "2000",
        "broker",
        "a frozen controller is given up for its successor; 30 s by default",
    ),
    BrokerSetting(
        "replica.lag.time.max.ms",
        "5000",
        "broker",
        "a paused follower leaves the ISR soon after its session; 30 s by default, read-only at run time",
    ),
    BrokerSetting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        "1000",
        "broker",
        "a timed-out transaction is aborted within a second; 10 s by default",
    ),
    BrokerSetting(
        "producer.id.expiration.check.interval.ms",
        "1000",
        "broker",
        "a lowered expiration acts at once; else nothing expires for 10 minutes",
    ),
    BrokerSetting(
        "group.min.session.timeout.ms",
        "1000",
        "broker",
        "a dead classic member is noticed as fast as its client asks",
    ),
    BrokerSetting(
        "group.consumer.min.session.timeout.ms",
        "1000",
        "broker",
        "bounds the next from below; 45 s by default, read-only at run time",
    ),
    BrokerSetting(
        "group.consumer.session.timeout.ms",
        "6000",
        "broker",
        "a dead member of the consumer protocol; 45 s by default",
    ),
    BrokerSetting(
        "group.consumer.min.heartbeat.interval.ms",
        "500",
        "broker",
        "bounds the next from below; 5 s by default, read-only at run time",
    ),
    BrokerSetting("group.consumer.heartbeat.interval.ms", "1000", "broker", "six heartbeats in a session"),
    # A small machine: 8 network or 8 disk threads a node are for large ones.
    BrokerSetting(
        "offsets.topic.num.partitions",
        "12",
        "broker",
        "each broker coordinates four twelfths of the groups; the default 50 take most of a second of the start",
    ),
    BrokerSetting("transaction.state.log.num.partitions", "12", "broker", "the same for transactional ids"),
    BrokerSetting("num.io.threads", "4", "broker", "two cores serve six nodes and the clients"),
    BrokerSetting("num.network.threads", "2", "both", "two cores serve six nodes and the clients"),
    BrokerSetting("background.threads", "2", "both", "two cores serve six nodes and the clients"),
    BrokerSetting(
        "log.segment.bytes",
        "67108864",
        "broker",
        "after SIGKILL a broker reads its last segments again before it serves: with 1 GB (the default) most of a minute after half an hour under load",
    ),
    BrokerSetting(
        "log.cleaner.dedupe.buffer.size", "2097152", "broker", "128 MB a broker is for large compacted topics"
    ),
)


def settings_for(role: Literal["broker", "controller"]) -> dict[str, str]:
    """The shared settings of a role, by name."""
    return {s.name: s.value for s in SETTINGS if s.role in (role, "both")}


def heap_options(role: Literal["broker", "controller"], profile: Profile) -> list[str]:
    """The heap of a node; explicit, or six JVMs would each take a quarter of the machine's memory."""
    least, most = {
        ("broker", "quick"): (64, 320),
        ("controller", "quick"): (64, 160),
        ("broker", "load"): (512, 1024),
        ("controller", "load"): (192, 384),
    }[role, profile]
    return [f"-Xms{least}m", f"-Xmx{most}m"]


def jvm_options(profile: Profile) -> list[str]:
    """Collector and compiler; explicit, so that the size of the machine does not choose them.

    The first-tier compiler alone takes a third of the processor time at start, and is slower under load.
    """
    if profile == "quick":
        return ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return ["-XX:+UseG1GC", "-XX:MaxGCPauseMillis=50"]
