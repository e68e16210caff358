"""The reference witness: a plain read_committed consumer that reads to frozen ends.

The witness first freezes the ends: the last stable offset of every partition, as its leader reports it. The
consumer reads to these offsets and stops, even if clients continue to write. It does not stop at a record
count, because a duplicate that comes after that count would not be read. A partition may end in markers or
aborted records, which a consumer does not return. The consumer's end-of-partition event then shows that the
partition was read completely.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Message

from harness.base.errors import HarnessError
from harness.base.partition_id import PartitionId, partition_name
from harness.base.scratch import scratch_folder
from harness.base.waits import wait_until
from harness.evidence.bit_words import EXAMPLES
from harness.evidence.changelog_record import totals_in
from harness.evidence.checkers.model import AppContract
from harness.evidence.log_line import clock_id
from harness.evidence.observation import AGGREGATE, Findings, Meta, Observation, Spot, Window
from harness.evidence.observation_builder import Records, observe, observe_outputs
from harness.evidence.record import HEADER, Identity, NotARecordError, decode
from harness.evidence.row_output import RowSource, row_window
from harness.evidence.token import TokenFinder
from harness.kafka.admin import EARLIEST, Admin, admin_at, existing_topics
from harness.kafka.errors import KafkaAnswerError
from harness.kafka.group_offsets import stable_offsets
from harness.kafka.read_to_end import read_to_end
from harness.kafka.security import PLAINTEXT, Security
from harness.witness.contract_tables import ContractTables

REQUEST_LIMIT_S: Final = 30.0
"""Time limit for offset requests: three times the time-out of one request, to allow for a fail-over."""
WITNESS_GROUP: Final = "eos-reference-witness"
"""The client library requires a group id for every consumer. The witness commits no offsets under it."""

T = TypeVar("T")
Where = Literal["value", "key", "header", "token"]
"""Place of the identity in a record. A token may be anywhere in the key, the value or the headers."""


@dataclass
class _Reading:
    run: str
    where: Where
    index: dict[PartitionId, int]
    """For each partition, the index of its window (the range of offsets to read) in the list of windows."""
    outputs: bool = False
    """Whether the records are outputs of an application, which may lack a token."""
    records: Records = field(default_factory=Records)
    foreign: Findings = field(default_factory=Findings)
    totals: dict[tuple[int, int], tuple[int, ...]] | None = None
    """The latest totals of each key in a changelog, and the offset of the changelog record that contains
    them. None for other topics.

    The totals of a key are the number of its inputs and the sum of their sequences. The keys of the
    dictionary are pairs of window index and changelog key.
    """

    def __post_init__(self) -> None:
        self.finder = TokenFinder(self.run)

    def take(self, partition_id: PartitionId, message: Message) -> None:
        offset, window = message.offset() or 0, self.index[partition_id]
        if self.where == "token":
            self._take_tokens(partition_id, message)
            return
        try:
            identity = identify(_carrier(message, self.where), self.run)
        except NotARecordError as error:
            add_foreign(self.foreign, partition_id, offset, str(error))
            return
        value = message.value()
        self.records.add(window, offset, identity, value if isinstance(value, bytes) else None)
        if self.totals is None:
            return
        try:
            key, totals = totals_in(value if isinstance(value, bytes) else b"")
        except NotARecordError as error:
            add_foreign(self.foreign, partition_id, offset, str(error))
        else:
            self.totals[window, key] = (*totals, offset)

    def _take_tokens(self, partition_id: PartitionId, message: Message) -> None:
        """Take a record with a token. If it has two different ones, they become two records at one offset."""
        offset, parts = message.offset() or 0, _parts(message)
        try:
            found = self.finder.outputs(offset, parts) if self.outputs else self.finder.inputs(parts)
        except NotARecordError as error:
            add_foreign(self.foreign, partition_id, offset, str(error))
            return
        for identity in found:
            self.records.add(self.index[partition_id], offset, identity)


def observe_topics(
    bootstrap: str,
    topics: Iterable[str],
    run: str,
    *,
    witness: str = "reader",
    limit_s: float = 120.0,
    ends: Mapping[PartitionId, int] | None = None,
    shared: Iterable[Window] = (),
    group: str = "",
    where: Where = "value",
    security: Security = PLAINTEXT,
    as_group: str = WITNESS_GROUP,
    totals: bool = False,
    outputs: bool = False,
    counted: bool = False,
) -> Observation:
    """Read topics from their start to the frozen last stable offsets, or to `ends` where these are lower.

    `ends` contains the committed offsets of a group. With `ends`, the observation covers the records that the
    group has consumed. `shared` are the windows that another witness froze; with them, both witnesses read to
    the same ends. `outputs` means that the topics are outputs of an application, whose records may lack a
    token; `counted` means that the outputs of each input are counted. If the time limit passes before all
    ends are reached, or if a partition is shorter than the group's offset, the observation is marked
    incomplete.
    """
    frozen_at = time.monotonic_ns()
    windows = limit_to(shared, freeze(bootstrap, topics, security))
    if ends is not None:
        windows = [w for w in windows if (w.topic, w.partition) in ends]
        for window in windows:
            window.read_to = min(window.read_to, ends[window.topic, window.partition])
    index = {(w.topic, w.partition): i for i, w in enumerate(windows)}
    reading = _Reading(run, where, index, outputs, totals={} if totals else None)
    config = {"bootstrap.servers": bootstrap, **security.client(), "group.id": as_group}
    unread = _read(witness, config, windows, reading.take, limit_s)
    for partition_id in unread:
        # The consumer did not read this partition to its end. Records may be missing anywhere in it, so do
        # not count any part of it as read.
        windows[index[partition_id]].read_to = windows[index[partition_id]].start
    obstacles = list(_obstacles(windows, unread, ends or {}))
    meta = Meta(
        witness=witness,
        kind="reference",
        purpose=_purpose(totals=totals, outputs=outputs, ends=ends),
        complete=not obstacles,
        clock=clock_id(),
        frozen=frozen_at,
        finished=time.monotonic_ns(),
        windows=windows,
        group=group,
        positions=[(t, p, offset) for (t, p), offset in sorted((ends or {}).items())],
        foreign=reading.foreign,
        detail="; ".join(obstacles),
    )
    if outputs:
        return observe_outputs(meta, reading.records, counted=counted)
    observation = observe(meta, reading.records)
    if reading.totals is not None:
        rows = [(*key, *totals_and_offset) for key, totals_and_offset in sorted(reading.totals.items())]
        observation.aggregates = np.array(rows, AGGREGATE)
    return observation


def observe_contract(
    bootstrap: str,
    contract: AppContract,
    run: str,
    windows: list[Window],
    *,
    limit_s: float = 120.0,
    security: Security = PLAINTEXT,
    as_group: str = WITNESS_GROUP,
    rows: Sequence[RowSource] = (),
    problems: Mapping[str, str] | None = None,
) -> list[Observation]:
    """Read the windows of a contract's topics, and rows, into tables, and run the queries of the contract.

    `problems` has the outputs whose rows are not known.
    """
    topics = {table.topic for table in contract.tables}
    mine = [window for window in windows if window.topic in topics]
    meta = Meta(witness="reader", kind="reference", purpose="statements", clock=clock_id(), windows=mine)
    meta.frozen = time.monotonic_ns()
    with scratch_folder("contract") as folder:
        tables = ContractTables(contract, run, folder / "tables.sqlite")

        def take(place: PartitionId, message: Message) -> None:
            key, value, *headers = _parts(message)
            tables.add(place, message.offset() or 0, key, value, headers)

        config = {"bootstrap.servers": bootstrap, **security.client(), "group.id": as_group}
        unread = _read("reader", config, mine, take, limit_s)
        for row in rows:
            if row.name in topics:
                meta.windows.append(row_window(row.name, tables.add_rows(row)))
        meta.complete, meta.finished = not unread, time.monotonic_ns()
        if unread:
            meta.detail = f"not read to the end in time: {', '.join(map(partition_name, unread))}"
        try:
            return tables.results(meta, problems or {})
        finally:
            tables.close()


def observe_every_run(
    bootstrap: str,
    windows: list[Window],
    *,
    where: Where = "value",
    limit_s: float = 120.0,
    security: Security = PLAINTEXT,
) -> dict[str, Observation]:
    """Read the windows, and return one observation for each run whose records are in them.

    Without any record of a run, the only observation has an empty run id. Records without an identity are
    foreign to every run. Raise HarnessError if a window was not read to its end.
    """
    index = {(w.topic, w.partition): i for i, w in enumerate(windows)}
    runs: dict[str, Records] = {}
    foreign = Findings()

    def take(place: PartitionId, message: Message) -> None:
        try:
            identity = decode(_carrier(message, where))
        except NotARecordError as error:
            add_foreign(foreign, place, message.offset() or 0, str(error))
            return
        runs.setdefault(identity.run, Records()).add(index[place], message.offset() or 0, identity)

    config = {"bootstrap.servers": bootstrap, **security.client(), "group.id": WITNESS_GROUP}
    if unread := _read("reader", config, windows, take, limit_s):
        raise HarnessError(
            f"not read to the end in {limit_s:g} s: {', '.join(map(partition_name, unread))}",
            "`--reader spark` reads large topics faster",
        )
    complete = all(window.start == 0 for window in windows)
    observations = {}
    for run in sorted(runs) or [""]:
        meta = Meta(witness=f"reader {run}".strip(), kind="reference", complete=complete, clock=clock_id())
        meta.windows, meta.foreign, meta.finished = list(windows), foreign, time.monotonic_ns()
        observations[run] = observe(meta, runs.get(run, Records()), with_runs=False)
    return observations


def _purpose(
    *, totals: bool, outputs: bool, ends: Mapping[PartitionId, int] | None
) -> Literal["all", "consumed", "aggregates", "outputs"]:
    if totals:
        return "aggregates"
    if outputs:
        return "outputs"
    return "all" if ends is None else "consumed"


def _read(
    witness: str,
    config: Mapping[str, Any],
    windows: list[Window],
    take: Callable[[PartitionId, Message], None],
    limit_s: float,
) -> list[PartitionId]:
    """Read every window from its start to its end; return the partitions that were not read to their end."""
    committed = {**config, "isolation.level": "read_committed", "check.crcs": True}
    try:
        return read_to_end(
            committed,
            {(w.topic, w.partition): w.start for w in windows},
            take,
            time.monotonic() + limit_s,
            ends={(w.topic, w.partition): w.read_to for w in windows},
        )
    except KafkaException as error:
        denied = error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        hint = "the user needs the right Read on the topic" if denied else "look at the logs of the brokers"
        raise HarnessError(f"the {witness} could not read: {error.args[0].str()}", hint) from error


def _obstacles(
    windows: Iterable[Window], unread: Iterable[PartitionId], ends: Mapping[PartitionId, int]
) -> Iterator[str]:
    """Yield the reasons why the witness did not read all that it had to read."""
    if names := [partition_name(partition_id) for partition_id in unread]:
        yield f"not read to the end in time: {', '.join(names)}"
    for window in windows:
        place = (window.topic, window.partition)
        if window.start > 0:
            yield f"{partition_name(place)} begins at offset {window.start}: earlier records were deleted"
        if ends.get(place, 0) > window.lso:
            yield (
                f"{partition_name(place)}: the group's offset {ends[place]} is after the last stable offset "
                f"{window.lso}"
            )


def limit_to(shared: Iterable[Window], windows: list[Window]) -> list[Window]:
    """Let the windows end where the `shared` windows of the same partitions end, if they reach that far.

    Each window keeps its own last stable offset and high watermark. A window that does not reach the shared
    end shows that the log went back.
    """
    limits = {(window.topic, window.partition): window.read_to for window in shared}
    for window in windows:
        window.read_to = min(window.read_to, limits.get((window.topic, window.partition), window.read_to))
    return windows


def observe_totals(
    bootstrap: str,
    changelog: str,
    run: str,
    *,
    limit_s: float = 120.0,
    security: Security = PLAINTEXT,
    as_group: str = WITNESS_GROUP,
) -> Observation:
    """Read a changelog to its frozen last stable offsets, and return the latest totals of every key in it."""
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
    """Return the start, last stable offset and high watermark of every partition of these topics.

    The leaders report these offsets. The requests are repeated for up to 30 s, because a fail-over takes
    time: a partition has no leader at first, and then its new leader does not accept requests yet.
    """
    names = sorted(set(topics))
    return _ask_until_answered(
        bootstrap, security, lambda admin: freeze_windows(admin, names), f"the ends of {', '.join(names)}"
    )


def freeze_windows(admin: Admin, topics: Iterable[str]) -> list[Window]:
    """Return the same offsets as `freeze`, but without retries."""
    names = list(topics)
    existing_topics(admin, required=names)
    windows = []
    for topic in names:
        ends, starts = admin.end_offsets(topic), admin.list_offsets(topic, EARLIEST)
        windows += [
            Window(
                topic=topic,
                partition=partition,
                start=starts[partition],
                lso=end.last_stable,
                hw=end.high_watermark,
                read_to=end.last_stable,
            )
            for partition, end in ends.items()
        ]
    return windows


def group_positions(bootstrap: str, group: str, security: Security = PLAINTEXT) -> dict[PartitionId, int]:
    """Return the committed offsets of a group.

    Wait up to 30 s until no open transaction has a pending offset of this group.
    """
    return _ask_until_answered(
        bootstrap, security, lambda admin: stable_offsets(admin, group), f"the stable offsets of {group}"
    )


def _ask_until_answered(bootstrap: str, security: Security, ask: Callable[[Admin], T], describe: str) -> T:
    def answer() -> list[T]:
        try:
            return [ask(admin_at(bootstrap, security))]
        except KafkaAnswerError as error:
            if error.denied:
                raise HarnessError(str(error), "grant this right to the user of the harness") from error
            raise

    return wait_until(answer, REQUEST_LIMIT_S, describe, every=0.2)[0]


def identify(carrier: bytes | None, run: str) -> Identity:
    """Decode the identity of a record from the bytes of its value, key or header.

    Raise NotARecordError if `carrier` contains no identity, or if the record belongs to another run.
    """
    identity = decode(carrier)
    if identity.run != run:
        raise NotARecordError(f"it belongs to run {identity.run}")
    return identity


def _carrier(message: Message, where: Where) -> bytes | None:
    if where == "header":
        identities = [header[1] for header in message.headers() or [] if header[0] == HEADER]
        return identities[-1] if identities and isinstance(identities[-1], bytes) else None
    carrier = message.key() if where == "key" else message.value()
    return carrier if isinstance(carrier, bytes) else None


def _parts(message: Message) -> list[bytes | None]:
    """Return the key, the value and the values of the headers of a record."""
    parts: list[object] = [message.key(), message.value()]
    parts += [header[1] for header in message.headers() or []]
    return [part if isinstance(part, bytes) else None for part in parts]


def add_foreign(foreign: Findings, partition_id: PartitionId, offset: int, detail: str) -> None:
    """Count a record that does not belong to this run; the first few such records are kept as examples."""
    foreign.count += 1
    if len(foreign.examples) < EXAMPLES:
        spot = Spot(topic=partition_id[0], partition=partition_id[1], offset=offset, detail=detail)
        foreign.examples = [*foreign.examples, spot]
