"""Reading of the logs that a run stores: only its own producers and groups, and only since it began."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from harness.kafka.errors import KafkaAnswerError
from harness.kafka.log import audit_tables
from harness.kafka.log.audit_tables import AuditTables, read_tables_of_run
from tests.unit.test_audit_tables import (
    COMMIT,
    ONGOING,
    PLACE,
    POSITIONS,
    PREPARE_COMMIT,
    PRODUCER,
    STATES,
    Brokers,
    Log,
)

OTHER = 99
LONG_AGO = -400_000


class TimedBrokers(Brokers):
    """Stub of an Admin that returns the offset of the first batch since a time."""

    def list_offsets(self, topic: str, since_ms: int, partitions: list[int]) -> dict[int, int]:
        found = {}
        for number in partitions:
            log = self.logs[topic, number]
            later = [b.base_offset for b in log.batches if b.max_timestamp >= since_ms]
            found[number] = log.start if since_ms < 0 else next(iter(later), -1)
        return found


Reading = Callable[..., tuple[AuditTables, TimedBrokers]]


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    def read(
        logs: dict[tuple[str, int], Log], groups: list[str] | None = None, **options: Any
    ) -> tuple[AuditTables, TimedBrokers]:
        brokers = TimedBrokers(logs)
        monkeypatch.setattr(audit_tables, "fetch_stored", brokers.fetch)
        monkeypatch.setattr(audit_tables, "_BEFORE_RUN_MS", 500)
        return read_tables_of_run(brokers, ["orders"], groups or [], **options), brokers  # type: ignore[arg-type]

    return read


def test_states_of_other_producers_and_before_the_run_are_left_out(reading: Reading) -> None:
    states = Log().state(ONGOING, PLACE)
    states.batches[0].max_timestamp = 400  # 600 ms before the first batch of the topic
    states.state(ONGOING, PLACE).state(PREPARE_COMMIT, PLACE)
    tables, _ = reading({PLACE: Log().add((b"", b"v")).marker(COMMIT), POSITIONS: Log(), STATES: states})

    (log,) = tables.coordinators
    assert [(state.state, state.offset) for state in log.states] == [("Ongoing", 1), ("PrepareCommit", 2)]
    assert log.complete_from == 1
    assert tables.unread == []
    other = Log().add((b"", b"v"), producer_id=OTHER)
    tables, _ = reading({PLACE: other, POSITIONS: Log(), STATES: Log().state(ONGOING, PLACE)})
    assert [log.states for log in tables.coordinators] == [[]]


def test_positions_of_the_own_groups_are_kept_with_the_markers_of_their_producers(reading: Reading) -> None:
    positions = Log().position(5).position(6, group="theirs", producer_id=OTHER).marker(COMMIT)
    positions.batches[2].producer_id = PRODUCER
    logs = {PLACE: Log().add((b"", b"v")).marker(COMMIT), POSITIONS: positions, STATES: Log()}
    tables, _ = reading(logs, ["g"])

    (_, kept) = tables.partitions
    assert [(p.group, p.position) for p in kept.positions] == [("g", 5)]
    assert [(b.base_offset, b.producer_id) for b in kept.batches] == [(0, PRODUCER), (2, PRODUCER)]


def test_producers_that_only_committed_positions_keep_their_states(reading: Reading) -> None:
    states = Log().state(ONGOING, PLACE)
    logs = {PLACE: Log().add((b"", b"v"), producer_id=OTHER), POSITIONS: Log().position(5), STATES: states}
    assert len(reading(logs, ["g"])[0].coordinators[0].states) == 1
    assert reading(logs, ["g"], positions=False)[0].coordinators[0].states == []


@pytest.mark.parametrize(
    ("groups", "options"), [([], {}), (["g"], {"positions": False})], ids=["no group", "no consent"]
)
def test_positions_are_read_only_for_a_group_and_with_consent(
    reading: Reading, groups: list[str], options: dict[str, Any]
) -> None:
    logs = {PLACE: Log().add((b"", b"v")).marker(COMMIT), POSITIONS: Log().position(5), STATES: Log()}
    tables, brokers = reading(logs, groups, **options)

    assert [log.partition_id for log in tables.partitions] == [PLACE]
    assert POSITIONS not in brokers.read


def test_without_transactions_no_shared_log_is_read(reading: Reading) -> None:
    logs = {PLACE: Log().add((b"", b"v"), is_transactional=False), POSITIONS: Log(), STATES: Log()}
    tables, brokers = reading(logs, ["g"])

    assert brokers.read == [PLACE]
    assert tables.coordinators == []
    assert len(tables.partitions[0].batches) == 1


def test_a_shared_log_without_new_entries_is_not_fetched(reading: Reading) -> None:
    states = Log().state(ONGOING, PLACE)
    states.batches[0].max_timestamp = LONG_AGO
    logs = {PLACE: Log().add((b"", b"v")).marker(COMMIT), POSITIONS: Log(), STATES: states}
    tables, brokers = reading(logs)

    assert STATES not in brokers.read
    assert tables.coordinators[0].states == []
    assert tables.coordinators[0].complete_from == 0


def test_logs_that_cannot_be_read_are_named(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> dict[int, Any]:
        raise KafkaAnswerError("end offsets", 29)

    monkeypatch.setattr(TimedBrokers, "end_offsets", refuse)
    tables, _ = reading({PLACE: Log().add((b"", b"v")), POSITIONS: Log(), STATES: Log()})

    assert [text.split(":")[0] for text in tables.unread] == ["orders-2"]
