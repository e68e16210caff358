"""What an operator asks about transactions that hang, and the marker that frees a partition.

A transaction hangs when a partition has it open and its coordinator knows nothing of that. Leaders are asked
which producers have something open (DescribeProducers), the coordinators which transactions are under way and
where (ListTransactions, DescribeTransactions), and the answers are joined.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from harness.base.errors import UsageError
from harness.base.strict_toml import meant
from harness.kafka.admin import Admin
from harness.kafka.connection import KafkaAnswerError, RawConnection, error_name
from harness.kafka.raw_produce import Place

_LIMIT_S: Final = 10.0
_LAST_PORT: Final = 65_535
UNDER_WAY: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""States in which a coordinator will still write markers to the partitions that it names."""


class OpenTransaction(NamedTuple):
    """A transaction that a partition has open, as its leader says."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    first_offset: int
    age_s: float
    """Since its producer last wrote there."""

    @property
    def place(self) -> Place:
        """Its topic and partition."""
        return self.topic, self.partition


class Described(NamedTuple):
    """A transactional id, as its coordinator says."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    epoch: int
    places: frozenset[tuple[str, int]]


class Held(NamedTuple):
    """A transaction that holds readers back, as its partition's leader and as its coordinator see it."""

    open: OpenTransaction
    last: Described | None
    """What the coordinator knows of its producer id now; nothing if it has forgotten it."""

    @property
    def hangs(self) -> bool:
        """Whether no coordinator will end it."""
        return (
            self.last is None or self.last.state not in UNDER_WAY or self.open.place not in self.last.places
        )


def open_transactions(admin: Admin, topics: Iterable[str]) -> list[OpenTransaction]:
    """Every transaction that a partition of these topics has open; where nobody leads, nobody is asked."""
    from kafka.protocol.admin import DescribeProducersRequest

    asked = DescribeProducersRequest.TopicRequest
    found = []
    for info in admin.metadata(list(topics)).partitions:
        if info.leader < 0:
            continue
        request = DescribeProducersRequest(
            topics=[asked(name=info.topic, partition_indexes=[info.partition])], version=0
        )
        answer: Any = admin.call(info.leader, request).topics[0].partitions[0]
        _check(f"producers of {info.topic}-{info.partition}", answer.error_code)
        found += [
            OpenTransaction(
                info.topic,
                info.partition,
                p.producer_id,
                p.producer_epoch,
                p.coordinator_epoch,
                p.current_txn_start_offset,
                round(time.time() - p.last_timestamp / 1000, 1),
            )
            for p in answer.active_producers
            if p.current_txn_start_offset >= 0
        ]
    return found


def described(admin: Admin, producer_ids: Iterable[int]) -> list[Described]:
    """What the coordinators know of the transactional ids that have these producer ids now."""
    from kafka.protocol.admin import DescribeTransactionsRequest, ListTransactionsRequest

    wanted = sorted(set(producer_ids))
    found = []
    for broker in sorted(admin.metadata().brokers):
        listed = admin.call(
            broker, ListTransactionsRequest(state_filters=[], producer_id_filters=wanted, version=0)
        )
        _check(f"transactions of broker {broker}", listed.error_code)
        names = [state.transactional_id for state in listed.transaction_states]
        if not names:
            continue
        answer = admin.call(broker, DescribeTransactionsRequest(transactional_ids=names, version=0))
        for state in answer.transaction_states:
            _check(f"transaction {state.transactional_id}", state.error_code)
            places = frozenset((t.topic, p) for t in state.topics for p in t.partitions)
            found.append(
                Described(
                    state.transactional_id,
                    broker,
                    state.transaction_state,
                    state.producer_id,
                    state.producer_epoch,
                    places,
                )
            )
    return found


def held(admin: Admin, topics: Iterable[str]) -> list[Held]:
    """Every transaction that is open in these topics, and what its coordinator knows of it.

    Kafka's own search for hanging transactions waits for them to grow old; here the two sides are compared.
    """
    wanted = list(topics)
    found = open_transactions(admin, wanted)
    if not found:
        return []
    known = {one.producer_id: one for one in described(admin, {o.producer_id for o in found})}
    seen = [Held(one, known.get(one.producer_id)) for one in found]
    if not any(one.hangs for one in seen):
        return seen
    # One that ended between the two questions has its markers by now, and does not hang.
    still = {(o.place, o.producer_id, o.first_offset) for o in open_transactions(admin, wanted)}
    return [
        one
        for one in seen
        if not one.hangs or (one.open.place, one.open.producer_id, one.open.first_offset) in still
    ]


def hanging(admin: Admin, topics: Iterable[str]) -> list[Held]:
    """The transactions that partitions of these topics have open and no coordinator will end."""
    return [one for one in held(admin, topics) if one.hangs]


def admin_at(bootstrap: str) -> Admin:
    """The brokers of any cluster that is reached without TLS and SASL."""
    from kafka.protocol.metadata import MetadataRequest

    first = bootstrap.split(",", maxsplit=1)[0].strip()
    host, _, port = first.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _LAST_PORT:
        raise UsageError(f"{first!r} is no address of a broker", "write host:port, such as localhost:9092")
    try:
        with RawConnection(host, int(port), _LIMIT_S) as connection:
            answer = connection.call(MetadataRequest(topics=[], allow_auto_topic_creation=False, version=9))
    except socket.gaierror as error:
        raise UsageError(f"the host of {first} is not known: {error.strerror}", "correct its name") from error
    return Admin({b.node_id: (b.host, b.port) for b in answer.brokers}, timeout=_LIMIT_S)


def topics_of(admin: Admin, named: Sequence[str]) -> list[str]:
    """The topics that were named, or all that there are; an error for one that there is not."""
    there = sorted({partition.topic for partition in admin.metadata(None).partitions})
    for name in named:
        if name not in there:
            raise UsageError(f"there is no topic {name!r}", meant(name, there) or "name one that there is")
    return list(named) or there


def format_transaction(one: Held) -> str:
    """A hanging transaction in a line for an operator."""
    open_, last = one.open, one.last
    known = (
        f"coordinator {last.coordinator} says of {last.transactional_id}: {last.state}, epoch {last.epoch}"
        if last
        else "no coordinator knows its producer id any more"
    )
    return (
        f"{open_.topic}-{open_.partition}: open from offset {open_.first_offset} on, last written to "
        f"{open_.age_s:.0f} s ago; producer id {open_.producer_id}, epoch {open_.epoch}, coordinator epoch "
        f"{open_.coordinator_epoch}; {known}"
    )


def write_marker(
    admin: Admin, leader: int, one: OpenTransaction, *, commit: bool, coordinator_epoch: int
) -> str:
    """Write a marker into a partition as a coordinator would; return the broker's answer, NONE if it did.

    The partition takes it only with at least the coordinator epoch that it has seen last.
    """
    from kafka.protocol.producer import WriteTxnMarkersRequest

    marker = WriteTxnMarkersRequest.WritableTxnMarker
    request = WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=one.producer_id,
                producer_epoch=one.epoch,
                transaction_result=commit,
                topics=[marker.WritableTxnMarkerTopic(name=one.topic, partition_indexes=[one.partition])],
                coordinator_epoch=coordinator_epoch,
            )
        ],
        version=1,
    )
    return error_name(admin.call(leader, request).markers[0].topics[0].partitions[0].error_code)


def _check(what: str, code: int) -> None:
    if code:
        raise KafkaAnswerError(what, code)
