"""The reference witness: a plain read_committed consumer that reads to a frozen end, and writes what it saw.

The end is frozen first: the last stable offset of every partition, asked of the brokers. Reading then goes
to that offset and stops, whatever arrives meanwhile. A late duplicate cannot hide behind a record count,
and a partition that ends in markers or aborted records is done when its end-of-partition offset says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from harness.base.errors import UsageError
from harness.base.strict_toml import meant
from harness.base.waits import wait_until
from harness.evidence.bit_words import EXAMPLES
from harness.evidence.changelog_record import totals_in
from harness.evidence.log_line import clock_id
from harness.evidence.observation import AGGREGATE, Findings, Meta, Observation, Spot, Window
from harness.evidence.observation_builder import Records, observe
from harness.evidence.record import HEADER, Identity, NotARecordError, decode
from harness.kafka.security import PLAINTEXT, Security

REQUEST_LIMIT_S: Final = 30.0
"""One admin call: three times the client's own retry of 10 s after a leader moved."""

BATCH: Final = 2_000
ALONE: Final = "eos-reference-witness"
"""The client library wants a group id of every consumer; nothing is stored under it."""

Place = tuple[str, int]
Where = Literal["value", "key", "header"]


@dataclass
class _Reading:
    run: str
    where: Where
    windows: list[Window]
    index: dict[Place, int]
    left: set[Place]
    records: Records = field(default_factory=Records)
    foreign: Findings = field(default_factory=Findings)
    # What each key (with its window) has come to, and the offset that says so, where that is asked for.
    totals: dict[tuple[int, int], tuple[int, ...]] | None = None


def observe_topics(
    bootstrap: str,
    topics: Iterable[str],
    run: str,
    *,
    witness: str = "reader",
    limit_s: float = 120.0,
    ends: Mapping[Place, int] | None = None,
    group: str = "",
    where: Where = "value",
    security: Security = PLAINTEXT,
    as_group: str = ALONE,
    totals: bool = False,
) -> Observation:
    """Read topics from their beginning to the frozen last stable offset, or to `ends` where they are given.

    With `ends` (a group's committed positions) the account is of what that group has consumed. When the
    time limit passes first, what was read is returned and does not claim to be complete.
    """
    servers = {"bootstrap.servers": bootstrap, **security.client()}
    windows = freeze(bootstrap, topics, security)
    if ends is not None:
        windows = [w for w in windows if (w.topic, w.partition) in ends]
        for window in windows:
            window.read_to = min(window.read_to, ends[window.topic, window.partition])
    index = {(w.topic, w.partition): i for i, w in enumerate(windows)}
    left = {place for place, i in index.items() if windows[i].start < windows[i].read_to}
    reading = _Reading(run, where, windows, index, left, totals={} if totals else None)
    _read(servers | {"group.id": as_group}, reading, time.monotonic() + limit_s)
    for place in reading.left:
        # Nobody knows how far this one came without a hole: it must not count as read.
        windows[index[place]].read_to = windows[index[place]].start
    meta = Meta(
        witness=witness,
        kind="reference",
        purpose="aggregates" if totals else "all" if ends is None else "consumed",
        complete=not reading.left and all(w.start == 0 for w in windows),
        clock=clock_id(),
        finished=time.monotonic_ns(),
        windows=windows,
        group=group,
        positions=[(t, p, offset) for (t, p), offset in sorted((ends or {}).items())],
        foreign=reading.foreign,
        detail=f"not read to the end: {sorted(reading.left)}" if reading.left else "",
    )
    seen = observe(meta, reading.records)
    if reading.totals is not None:
        rows = [(*key, *said) for key, said in sorted(reading.totals.items())]
        seen.aggregates = np.array(rows, AGGREGATE)
    return seen


def observe_totals(
    bootstrap: str,
    changelog: str,
    run: str,
    *,
    limit_s: float = 120.0,
    security: Security = PLAINTEXT,
    as_group: str = ALONE,
) -> Observation:
    """Read a changelog to the frozen last stable offset: what each key has come to there."""
    return observe_topics(
        bootstrap,
        [changelog],
        run,
        witness="aggregates",
        limit_s=limit_s,
        security=security,
        as_group=as_group,
        totals=True,
    )


def freeze(bootstrap: str, topics: Iterable[str], security: Security = PLAINTEXT) -> list[Window]:
    """Ask the brokers once for start, last stable offset and high watermark of every partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **security.client()})
    wanted = set(topics)
    metadata = admin.list_topics(timeout=REQUEST_LIMIT_S)
    for name in sorted(wanted - metadata.topics.keys()):
        raise UsageError(
            f"there is no topic {name!r}", meant(name, metadata.topics) or "name one that there is"
        )
    places = [
        TopicPartition(name, p) for name in sorted(wanted) for p in sorted(metadata.topics[name].partitions)
    ]
    # The last stable offset first: whatever is stable then lies below every later high watermark.
    latest, earliest = OffsetSpec.latest(), OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    stable = _offsets(admin, places, latest, IsolationLevel.READ_COMMITTED)
    high = _offsets(admin, places, latest, IsolationLevel.READ_UNCOMMITTED)
    start = _offsets(admin, places, earliest, IsolationLevel.READ_UNCOMMITTED)
    return [
        Window(topic=t, partition=p, start=start[t, p], lso=lso, hw=high[t, p], read_to=lso)
        for (t, p), lso in stable.items()
    ]


def _offsets(
    admin: AdminClient, places: list[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
) -> dict[Place, int]:
    found: dict[Place, int] = {}

    def told() -> bool:
        asked = admin.list_offsets(
            dict.fromkeys(places, spec), isolation_level=isolation, request_timeout=REQUEST_LIMIT_S
        )
        found.update({(tp.topic, tp.partition): asked[tp].result(REQUEST_LIMIT_S).offset for tp in places})
        # Of a partition whose leader has just gone the client library tells -1001, and no error.
        return min(found.values(), default=0) >= 0

    wait_until(told, REQUEST_LIMIT_S, "every partition's leader to say where it ends")
    return found


def group_positions(bootstrap: str, group: str, security: Security = PLAINTEXT) -> dict[Place, int]:
    """Return a group's committed positions, stable ones only."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **security.client()})
    asked = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], require_stable=True, request_timeout=REQUEST_LIMIT_S
    )
    answer = asked[group].result(REQUEST_LIMIT_S)
    return {(tp.topic, tp.partition): tp.offset for tp in answer.topic_partitions if tp.offset >= 0}


def _read(servers: Mapping[str, Any], reading: _Reading, deadline: float) -> None:
    consumer = Consumer(
        {
            **servers,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    try:
        consumer.assign(
            [
                TopicPartition(t, p, reading.windows[reading.index[t, p]].start)
                for t, p in sorted(reading.left)
            ]
        )
        while reading.left and time.monotonic() < deadline:
            for message in consumer.consume(BATCH, timeout=1.0):
                _take(reading, message)
    finally:
        consumer.close()


def _take(reading: _Reading, message: Message) -> None:
    place = (message.topic() or "", message.partition() or 0)
    offset = message.offset() or 0
    end = reading.windows[reading.index[place]].read_to
    error = message.error()
    if error is not None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        if offset >= end:
            reading.left.discard(place)
        return
    if offset + 1 >= end:
        reading.left.discard(place)
    if offset >= end:
        return
    try:
        identity = identify(_carrier(message, reading.where), reading.run)
    except NotARecordError as error_:
        note_foreign(reading.foreign, place, offset, str(error_))
    else:
        reading.records.add(reading.index[place], offset, identity)
        if reading.totals is not None:
            _take_totals(reading, place, offset, message.value())


def _take_totals(reading: _Reading, place: Place, offset: int, value: object) -> None:
    assert reading.totals is not None
    try:
        key, said = totals_in(value if isinstance(value, bytes) else b"")
    except NotARecordError as error:
        note_foreign(reading.foreign, place, offset, str(error))
    else:
        reading.totals[reading.index[place], key] = (*said, offset)


def identify(carrier: bytes | None, run: str) -> Identity:
    """Decode the identity of a record of this run, or raise NotARecordError."""
    identity = decode(carrier)
    if identity.run != run:
        raise NotARecordError(f"it belongs to run {identity.run}")
    return identity


def _carrier(message: Message, where: Where) -> bytes | None:
    if where == "header":
        found = [pair[1] for pair in message.headers() or [] if pair[0] == HEADER]
        return found[-1] if found and isinstance(found[-1], bytes) else None
    carried = message.key() if where == "key" else message.value()
    return carried if isinstance(carried, bytes) else None


def note_foreign(foreign: Findings, place: Place, offset: int, detail: str) -> None:
    """Count a record that is not of this run, and keep the first few."""
    foreign.count += 1
    if len(foreign.examples) < EXAMPLES:
        spot = Spot(topic=place[0], partition=place[1], offset=offset, detail=detail)
        foreign.examples = [*foreign.examples, spot]
