"""Numbers that published texts state about exactly-once, compared with this cluster and this client.

Each observed value is read from the effective configuration, from the client library, or from a probe on a
topic of its own. On a cluster that the harness did not start there are no probes. The published value may be
right or wrong.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS, HOST
from harness.kafka import features
from harness.kafka.admin import Admin
from harness.kafka.brokers import setting
from harness.kafka.errors import KafkaAnswerError, error_name
from harness.kafka.librdkafka import MAX_IN_FLIGHT, client_defaults, max_in_flight_with_idempotence
from harness.kafka.raw_produce import MAX_SEQUENCE, ProduceResult, encode_batch, new_producer_ids, produce
from harness.report.text_format import format_table
from harness.walkthroughs.broker_evidence import blocks

Source = Literal["cluster", "client", "probe"]
_TRIED_BATCHES: Final = 8
NOT_READ: Final = "not read"
"""Beginning of an observed value that the user may not read."""
NOT_REPORTED: Final = "not reported"
"""Observed value of an internal setting that was not set: brokers report it only if it was."""


class Fact(NamedTuple):
    """A published number about exactly-once, and the value observed on this cluster or client."""

    what: str
    claimed: str
    observed: str
    source: Source

    @property
    def comparison(self) -> str:
        """`same` or `different`: whether the published number is right for this cluster and this client.

        `unknown` if the user may not read the observed value, or if the brokers do not report it.
        """
        if self.observed.startswith((NOT_READ, NOT_REPORTED)):
            return "unknown"
        return "same" if self.claimed == self.observed else "different"


def read_facts(cluster: Cluster) -> list[Fact]:
    """Return every fact. Some facts are measured by probes, which need a healthy cluster."""
    return [*_of_cluster(cluster.admin, BROKER_IDS), *_of_client(), *_of_probes(cluster)]


def read_settings(admin: Admin) -> list[Fact]:
    """Return the facts that need no probe on the cluster, so that nothing is written to it."""
    return [*_of_cluster(admin, sorted(admin.metadata().brokers)), *_of_client()]


def table(facts: list[Fact]) -> str:
    """Return the facts as a Markdown table, which is readable in a terminal too."""
    rows = [(f.what, f.claimed, f.observed, f.source, f.comparison) for f in facts]
    return "\n".join(format_table(rows, ("number", "claimed", "found", "by", ""), markdown=True)) + "\n"


# Each entry has a description of the number, its published value, and the name of the broker setting.
_SETTINGS: Final = (
    ("minimum in-sync replicas of __transaction_state", "2", "transaction.state.log.min.isr"),
    ("longest transaction time-out", "15 min", "transaction.max.timeout.ms"),
    (
        "expired transactions are aborted every",
        "10 s",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    ),
    ("an idle transactional id expires after", "7 d", "transactional.id.expiration.ms"),
    ("an idle producer id expires after", "1 d", "producer.id.expiration.ms"),
    ("expired producer ids are removed every", "10 min", "producer.id.expiration.check.interval.ms"),
)
_CLIENT: Final = (
    ("idempotence by default", "true", "enable.idempotence"),
    ("acks by default", "all", "acks"),
    ("retries by default", str(2**31 - 1), "retries"),
    ("requests in flight by default", "5", MAX_IN_FLIGHT),
    ("delivery time-out of a record", "2 min", "message.timeout.ms"),
    ("transaction time-out by default", "15 s", "transaction.timeout.ms"),
    ("isolation by default", "read_uncommitted", "isolation.level"),
)


def _of_cluster(admin: Admin, brokers: Sequence[int]) -> Iterator[Fact]:
    for topic in ("__transaction_state", "__consumer_offsets"):
        partitions, replicas = _read(lambda topic=topic: _sizes_of(admin, topic), 2)  # type: ignore[misc]
        yield Fact(f"partitions of {topic}", "50", partitions, "cluster")
        yield Fact(f"replicas of {topic}", "3", replicas, "cluster")
    version = features.levels(admin).get(features.TRANSACTION_VERSION, "none")
    yield Fact("transaction version", "2", str(version), "cluster")
    for what, claimed, name in _SETTINGS:
        (value,) = _read(lambda name=name: [_setting_of(admin, brokers, name)], 1)  # type: ignore[misc]
        yield Fact(what, claimed, value, "cluster")


def _read(read: Callable[[], list[str]], count: int) -> list[str]:
    """Return `count` values, or why the brokers refuse to return them."""
    try:
        return read()
    except KafkaAnswerError as error:
        return [f"{NOT_READ}: {error_name(error.code)}"] * count
    except LookupError:
        return [NOT_REPORTED] * count


def _sizes_of(admin: Admin, topic: str) -> list[str]:
    """Return the number of partitions of a topic, and the numbers of their replicas."""
    partitions = admin.metadata([topic]).partitions
    replicas = sorted({len(partition.replicas) for partition in partitions})
    return [str(len(partitions)), " or ".join(map(str, replicas))]


def _setting_of(admin: Admin, brokers: Sequence[int], name: str) -> str:
    """Return the value of a setting; the values of all brokers if they differ."""
    values = {setting(admin, broker, name) for broker in brokers}
    return " or ".join(sorted(_format_value(name, value) for value in values))


def _of_client() -> Iterator[Fact]:
    defaults = client_defaults(name for _, _, name in _CLIENT)
    for what, claimed, name in _CLIENT:
        yield Fact(what, claimed, _format_value(name, defaults[name]), "client")
    most = max_in_flight_with_idempotence()
    yield Fact("most requests in flight with idempotence", "5", str(most), "client")


def _format_value(name: str, value: str) -> str:
    """Format the value of a setting in the notation of published texts.

    Times are in days, minutes or seconds. The value -1 of `acks` is written as `all`.
    """
    if name == "acks":
        return "all" if value == "-1" else value
    if not name.endswith(".ms"):
        return value
    seconds = int(value) / 1000
    for unit, size in (("d", 86_400), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def _of_probes(cluster: Cluster) -> Iterator[Fact]:
    for broker in BROKER_IDS:
        _new_producer_id(cluster, broker)  # a broker has a block of ids once it has assigned an id
    starts = sorted(block.first for block in blocks(cluster))
    sizes = sorted({after - before for before, after in pairwise(starts)})
    yield Fact("producer ids of one block", "1000", " or ".join(map(str, sizes)), "probe")
    yield Fact("bits that idempotence adds to a batch", "96", str(_added_bits()), "probe")
    with _probe_topic(cluster) as send:
        yield Fact("highest epoch", str(2**31 - 1), str(_highest_epoch(send)), "probe")
        yield Fact("sequence after the last one", "0", _sequence_after_the_last(cluster, send), "probe")
        remembered, refusal = _remembered(cluster, send)
        yield Fact("remembered batches per producer", "5", str(remembered), "probe")
        yield Fact("an older repeat is refused with", "DUPLICATE_SEQUENCE_NUMBER", refusal, "probe")


Send = Callable[[int, int, int], ProduceResult]


@contextmanager
def _probe_topic(cluster: Cluster) -> Iterator[Send]:
    """Yield a function that sends a batch of one record with any producer id, epoch and sequence."""
    topic = f"eos-facts-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, 1)
    address = HOST, cluster.ports.direct(cluster.leader_of(topic, 0))
    try:
        yield lambda pid, epoch, seq: produce(address, (topic, 0), encode_batch(pid, epoch, seq, [b"probe"]))
    finally:
        cluster.delete_topics([topic])


def _new_producer_id(cluster: Cluster, broker: int = BROKER_IDS[0]) -> int:
    return new_producer_ids((HOST, cluster.ports.direct(broker)), 1)[0]


def _added_bits() -> int:
    with_id, without = encode_batch(1, 0, 0, [b"x"]), encode_batch(-1, -1, -1, [b"x"])
    return 8 * (len(with_id) - len(without))


def _highest_epoch(send: Send) -> int:
    """Return the highest epoch of the form 2^n - 1 that a broker accepts."""
    import struct

    highest = 0
    for bits in (7, 15, 31):
        try:
            # A broker accepts any epoch for an unknown producer id, so each attempt uses a new id.
            accepted = send(10**12 + bits, 2**bits - 1, 0).code == 0
        except (struct.error, ValueError):
            break
        highest = 2**bits - 1 if accepted else highest
    return highest


def _sequence_after_the_last(cluster: Cluster, send: Send) -> str:
    pid = _new_producer_id(cluster)
    last, first = send(pid, 0, MAX_SEQUENCE), send(pid, 0, 0)
    return "0" if (last.code, first.code) == (0, 0) else f"{error_name(last.code)}, {error_name(first.code)}"


def _remembered(cluster: Cluster, send: Send) -> tuple[int, str]:
    """Return how many of a producer's last batches a broker recognises as repeats.

    Also return the error with which the broker answers a repeat of an older batch.
    """
    pid = _new_producer_id(cluster)
    offsets = [send(pid, 0, sequence).offset for sequence in range(_TRIED_BATCHES)]
    recognised = 0
    for sequence in reversed(range(_TRIED_BATCHES)):
        again = send(pid, 0, sequence)
        if again.code:
            return recognised, error_name(again.code)
        assert again.offset == offsets[sequence], "a repeat was written again"
        recognised += 1
    return recognised, f"none of {_TRIED_BATCHES}"
