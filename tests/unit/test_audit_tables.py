"""Reading of the logs that `eos audit` compares, its text, and its exit code."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from harness.base.errors import ExitCode, RefusedError, UsageError
from harness.base.partition_id import PartitionId
from harness.cli.main import cli
from harness.evidence.log_audit import Audit, Finding, LoggedBatch, LoggedPosition, LoggedState, audit
from harness.kafka.errors import KafkaAnswerError
from harness.kafka.log import audit_tables
from harness.kafka.log.audit_tables import AuditTables, read_tables
from harness.report.log_audit_report import exit_code_of, format_audit
from harness.run.external import external_session

PRODUCER = 7
COMMIT, ABORT = 1, 0


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


class Log:
    """A log of a partition as kafka-python returns it: batches with records."""

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.batches: list[Any] = []

    @property
    def end(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.start

    def add(self, *records: tuple[bytes, bytes | None], control: bool = False, **fields: Any) -> Log:
        offset, at_ms = self.end, 1_000 + self.end

        class Stored(list[Any]):
            base_offset = offset
            last_offset = offset + len(records) - 1
            producer_id = PRODUCER
            producer_epoch = 2
            base_sequence = -1 if control else offset
            is_transactional = True
            is_control_batch = control
            max_timestamp = at_ms

        stored = Stored(
            SimpleNamespace(offset=offset + i, timestamp=at_ms, key=key, value=value)
            for i, (key, value) in enumerate(records)
        )
        for name, value in fields.items():
            setattr(stored, name, value)
        self.batches.append(stored)
        return self

    def marker(self, kind: int) -> Log:
        return self.add((struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 1)), control=True)

    def state(self, number: int, *places: PartitionId, ident: str = "t") -> Log:
        value = struct.pack(">hqhib", 0, PRODUCER, 2, 60_000, number) + struct.pack(">i", len(places))
        for topic, partition in places:
            value += text(topic) + struct.pack(">ii", 1, partition)
        key = struct.pack(">h", 0) + text(ident)
        return self.add((key, value + bytes(16)), is_transactional=False)

    def position(self, position: int, *, group: str = "g", version: int = 1, **fields: Any) -> Log:
        key = struct.pack(">h", version) + text(group) + text("orders") + struct.pack(">i", 2)
        return self.add((key, struct.pack(">hqi", 3, position, 0) + text("") + bytes(8)), **fields)


class Brokers:
    """Stub of an Admin for a cluster with these logs. It notes the order in which they are read."""

    def __init__(self, logs: dict[PartitionId, Log]) -> None:
        self.logs = logs
        self.read: list[PartitionId] = []
        self.missing = 0
        """Number of records at the end of each log that the leader does not return."""

    def metadata(self, topics: list[str]) -> Any:
        places = [SimpleNamespace(topic=t, partition=p) for t, p in self.logs if t in topics]
        if not places:
            raise KafkaAnswerError(f"metadata of topic {topics[0]}", 3)
        return SimpleNamespace(partitions=places)

    def partition(self, *_: object) -> Any:
        return SimpleNamespace(leader=1)

    def list_offsets(self, topic: str, _: int, partitions: list[int]) -> dict[int, int]:
        return {number: self.logs[topic, number].start for number in partitions}

    def end_offsets(self, topic: str) -> dict[int, Any]:
        return {p: SimpleNamespace(high_watermark=log.end) for (t, p), log in self.logs.items() if t == topic}

    def fetch(self, _: object, __: int, place: PartitionId, start: int, end: int, **___: Any) -> list[Any]:
        self.read.append(place)
        return [b for b in self.logs[place].batches if start <= b.base_offset < end - self.missing]


Reading = Callable[..., tuple[AuditTables, Brokers]]


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    """Return a function that reads the tables of logs."""

    def read(
        logs: dict[PartitionId, Log], *, missing: int = 0, **options: Any
    ) -> tuple[AuditTables, Brokers]:
        brokers = Brokers(logs)
        brokers.missing = missing
        monkeypatch.setattr(audit_tables, "fetch_stored", brokers.fetch)
        return read_tables(brokers, ["orders"], **options), brokers  # type: ignore[arg-type]

    return read


ONGOING, PREPARE_COMMIT, PREPARE_ABORT = 1, 2, 3
PLACE: PartitionId = ("orders", 2)
POSITIONS: PartitionId = ("__consumer_offsets", 0)
STATES: PartitionId = ("__transaction_state", 5)


def test_a_raw_log_becomes_batches_and_markers(reading: Reading) -> None:
    log = Log(start=4).add((b"", b"v"), (b"", b"w")).marker(ABORT).add((b"", None)).marker(COMMIT)
    tables, _ = reading({PLACE: log, POSITIONS: Log(), STATES: Log()})
    (raw, _positions) = tables.partitions
    assert (raw.partition_id, raw.start, raw.has_gaps) == (PLACE, 4, False)
    assert raw.batches == [
        LoggedBatch(4, 5, PRODUCER, 2, 4, transactional=True, marker=None, at_ms=1_004),
        LoggedBatch(6, 6, PRODUCER, 2, -1, transactional=True, marker="abort", at_ms=1_006),
        LoggedBatch(7, 7, PRODUCER, 2, 7, transactional=True, marker=None, at_ms=1_007),
        LoggedBatch(8, 8, PRODUCER, 2, -1, transactional=True, marker="commit", at_ms=1_008),
    ]
    assert tables.unread == []


def test_positions_of_transactions_are_decoded(reading: Reading) -> None:
    log = Log().position(3).position(9, is_transactional=False).position(8, version=2).position(5, group="h")
    log.marker(COMMIT)
    tables, _ = reading({PLACE: Log(), POSITIONS: log, STATES: Log()})
    assert tables.partitions[1].positions == [
        LoggedPosition(0, PRODUCER, "g", "orders", 2, 3),
        LoggedPosition(3, PRODUCER, "h", "orders", 2, 5),
    ]


def test_positions_are_read_only_if_wanted(reading: Reading) -> None:
    tables, brokers = reading({PLACE: Log(), POSITIONS: Log(), STATES: Log()}, positions=False)
    assert brokers.read == [PLACE, STATES]
    assert [log.partition_id for log in tables.partitions] == [PLACE]


def test_the_coordinators_log_is_read_last_and_with_its_gaps(reading: Reading) -> None:
    log = Log(start=0).state(ONGOING, PLACE).state(PREPARE_COMMIT, PLACE, ident="u")
    log.add((struct.pack(">h", 0) + text("t"), None), is_transactional=False)
    del log.batches[0]
    tables, brokers = reading({STATES: log, PLACE: Log(), POSITIONS: Log()})
    assert brokers.read == [PLACE, POSITIONS, STATES]
    (coordinators,) = tables.coordinators
    assert coordinators.complete_from == 1
    assert coordinators.states == [LoggedState(1, 1_001, "u", PRODUCER, 2, 60_000, "PrepareCommit", (PLACE,))]


def test_damage_is_found_in_logs_that_were_read(reading: Reading) -> None:
    raw = Log().add((b"", b"A")).marker(ABORT).add((b"", b"B")).marker(ABORT)
    states = Log().state(ONGOING, PLACE).state(PREPARE_ABORT, PLACE).state(ONGOING, PLACE)
    states.add((b"", None)).state(PREPARE_COMMIT, PLACE)
    tables, _ = reading({PLACE: raw, POSITIONS: Log(), STATES: states})
    found = audit(tables.partitions, tables.coordinators)
    assert [finding.kind for finding in found.findings] == ["records_lost"]


def test_what_could_not_be_read_is_named(reading: Reading) -> None:
    tables, _ = reading({PLACE: Log().add((b"", b"A")).add((b"", b"B")), STATES: Log()}, missing=1)
    assert tables.unread == [
        "orders-2: read up to 1 of 2",
        "__consumer_offsets: KafkaAnswerError: metadata of topic __consumer_offsets: "
        "UNKNOWN_TOPIC_OR_PARTITION (3)",
    ]


def test_a_coordinators_log_that_was_not_read_to_its_end_is_not_whole(reading: Reading) -> None:
    states = Log().state(ONGOING, PLACE).state(PREPARE_COMMIT, PLACE)
    for missing, whole in ((0, True), (1, False)):
        tables, _ = reading({PLACE: Log(), POSITIONS: Log(), STATES: states}, missing=missing)
        assert [log.is_whole for log in tables.coordinators] == [whole]


FOUND = Finding("records_lost", "orders", 2, 1, 1, PRODUCER, 2, "t", "why")
SUSPECT = FOUND._replace(kind="empty_commit")


@pytest.mark.parametrize(
    ("found", "unread", "code"),
    [
        (Audit(markers=1), [], ExitCode.VALID),
        (Audit(markers=1), ["orders-2: read up to 1 of 2"], ExitCode.UNKNOWN),
        (Audit(), [], ExitCode.UNKNOWN),
        (Audit([SUSPECT], markers=1), [], ExitCode.UNKNOWN),
        (Audit([FOUND], markers=1), ["orders-2: read up to 1 of 2"], ExitCode.ANOMALY),
    ],
    ids=["clean", "not all was read", "nothing was compared", "a suspicion", "damage"],
)
def test_the_exit_code_of_an_audit(found: Audit, unread: list[str], code: ExitCode) -> None:
    assert exit_code_of(found, unread) is code


def test_the_text_of_an_audit() -> None:
    found = Audit([FOUND, SUSPECT], markers=3, not_judged=2, copies=1, batches=9, positions=4)
    first, second, *rest = format_audit(found, ["x: why"])
    assert first == f"damage: {FOUND.text}"
    assert second == f"suspicion: {SUSPECT.text}"
    assert rest == [
        "not read: x: why",
        "compared 3 markers that ended records with their decisions, 9 batches, 4 positions; 1 markers ended "
        "no record",
        "2 markers are older than the decisions that the coordinators' log contains",
        "1 damaged, 1 suspicious",
    ]


@pytest.mark.parametrize(
    ("found", "unread", "reason"),
    [
        (Audit(), [], "UNKNOWN: no marker of these topics ended any records, so nothing was compared"),
        (Audit(markers=1), ["x"], "UNKNOWN: a log could not be read"),
        (Audit([SUSPECT], markers=1), [], "UNKNOWN: a suspicion can have a harmless cause"),
        (Audit(markers=1), [], "0 damaged, 0 suspicious"),
    ],
)
def test_the_last_line_of_an_audit_is_the_reason_of_its_exit_code(
    found: Audit, unread: list[str], reason: str
) -> None:
    assert format_audit(found, unread)[-1] == reason


def test_an_external_cluster_is_read_only_with_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[object] = []
    noted: list[object] = []
    cluster = SimpleNamespace(
        admin="admin", prefix="eos-", audit=SimpleNamespace(note=lambda *_, **fields: noted.append(fields))
    )
    monkeypatch.setattr(external_session, "attach", lambda *_: connected.append(1) or cluster)
    monkeypatch.setattr(external_session, "external_state", lambda _: None)

    def consent(*logs: str) -> None:
        file = SimpleNamespace(evidence=SimpleNamespace(logs=logs))
        monkeypatch.setattr(external_session, "load_cluster_file", lambda *_, **__: file)

    consent("__consumer_offsets", "nodes")
    with pytest.raises(RefusedError, match="does not list __transaction_state"):
        external_session.open_logs(tmp_path / "cluster.toml")
    assert connected == []
    consent("__transaction_state")
    assert external_session.open_logs(tmp_path / "cluster.toml") == ("admin", "eos-", False)
    consent("__transaction_state", "__consumer_offsets")
    assert external_session.open_logs(tmp_path / "cluster.toml") == ("admin", "eos-", True)
    assert len(noted) == 2, "the audit log names what was read"


def test_a_prefix_that_begins_no_topic_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = [SimpleNamespace(topic="payments")]
    admin = SimpleNamespace(metadata=lambda _: SimpleNamespace(partitions=partitions))
    monkeypatch.setattr(external_session, "open_logs", lambda *_: (admin, "eos-", True))
    raised = CliRunner().invoke(cli, ["audit", "--cluster", "staging.toml"]).exception
    assert isinstance(raised, UsageError)
    assert raised.message == "no topic begins with 'eos-', the prefix in staging.toml"


def test_a_topic_outside_the_prefix_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_session, "open_logs", lambda *_: (None, "eos-", True))
    command = ["audit", "--cluster", "staging.toml", "--topic", "eos-mine", "--topic", "payments"]
    raised = CliRunner().invoke(cli, command).exception
    assert isinstance(raised, RefusedError)
    assert raised.message == "staging.toml: payments is outside the prefix eos-"
