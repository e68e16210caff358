"""Fault limits, write estimate and guard of a run on an external cluster, without a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.base.errors import RefusedError
from harness.base.units import Duration, Rate, Size
from harness.base.waits import wait_until
from harness.cluster.external.audit_log import Audit
from harness.cluster.external.guarded_admin import PrefixedAdmin
from harness.kafka.admin import PartitionInfo
from harness.kafka.log.fetch import fetch_request
from harness.kafka.security import PLAINTEXT
from harness.run.external import guard as guarding
from harness.run.external.guard import Guard
from harness.run.external.preflight import most_at_once
from harness.run.external.write_budget import Meter, bytes_per_second
from harness.scenario import Scenario, find, load
from harness.scenario.plan import Plan, draw

WHOLE = PartitionInfo("payments", 0, 1, 0, (1, 2), (1, 2))
LACKING = PartitionInfo("payments", 1, 1, 0, (1, 2), (1,))


def plan(folder: Path, *faults: str) -> tuple[Scenario, Plan]:
    """Return a scenario with one idempotent client and these faults, and the scenario's plan."""
    path = folder / "one.toml"
    path.write_text(
        '[scenario]\nname = "one"\nshows = "x"\n[[workload]]\nkind = "idempotent"\nrate = 100\n'
        + "\n".join(faults)
    )
    loaded = load(path)
    return loaded, draw(loaded, 1)


def fault(target: str, when: str = 'at = "1s"') -> str:
    return f'[[fault]]\nfault = "down"\ntarget = "{target}"\n{when}\n'


@pytest.mark.parametrize(
    ("faults", "brokers", "most"),
    [
        ([], 3, 0),
        (["one"], 3, 1),
        (["majority"], 5, 3),
        (["minority"], 5, 2),
        (["all"], 6, 6),
        (["leader_of(orders, 0)", "kafka-1"], 3, 1),
    ],
)
def test_how_many_brokers_are_hit_at_once(tmp_path: Path, faults: list[str], brokers: int, most: int) -> None:
    assert most_at_once(plan(tmp_path, *map(fault, faults))[1], brokers) == most


def test_a_throughout_fault_adds_to_each_planned_fault(tmp_path: Path) -> None:
    drawn = plan(tmp_path, fault("one", "throughout = true"), fault("one"))[1]
    assert most_at_once(drawn, 3) == 2


def test_the_write_estimate_covers_all_clients(tmp_path: Path) -> None:
    # The estimate is 224 bytes per record: 48 for its identity, 32 for the identity of the input from which a
    # pipeline made it, 64 for its payload, and 80 for a batch that contains only this record.
    assert bytes_per_second(plan(tmp_path)[0]) == 100 * 224
    demo = load(find("demo"))
    # A transaction of the demo has 55 records on average, and a marker in each of three partitions.
    assert bytes_per_second(demo) == pytest.approx((1000 + 2 * (400 + 400 / 55 * 3)) * 224)


def test_a_pipeline_writes_what_it_reads_and_its_changelog_too(tmp_path: Path) -> None:
    path = tmp_path / "totals.toml"
    path.write_text("""[scenario]
name = "totals"
shows = "x"
[[workload]]
kind = "pipeline"
source = "orders"
topic = "invoices"
group = "billing"
changelog = "totals"
transaction = [10, 10]
[[workload]]
kind = "idempotent"
topic = "orders"
rate = 10
""")
    # The rate is ten records a second, so a transaction of half a second has five. Each transaction writes
    # three markers.
    assert bytes_per_second(load(path)) == (10 + 2 * (10 + 10 / 5 * 3)) * 224


class Watched:
    """Stub of a cluster whose answers a test sets."""

    def __init__(self, folder: Path) -> None:
        self.prefix = "eos-chaos-"
        self.replication = 3
        self.audit = Audit(folder / "audit.jsonl")
        self.limits = SimpleNamespace(
            abort_file=str(folder / "stop"),
            deadline=Duration(60),
            foreign_under_replicated=0,
            storage=Size(1_000_000),
            bytes_per_second=Rate(10**9),
        )
        self.file = SimpleNamespace(limits=self.limits)
        self.partitions = [WHOLE]
        self.error: Exception | None = None
        self.stored = 0
        self.admin = SimpleNamespace(metadata=lambda _: SimpleNamespace(partitions=self.mine()))

    def mine(self) -> list[PartitionInfo]:
        return [PartitionInfo("orders", 0, 1, 0, (1,), (1,))]

    def end_offsets(self, _: str) -> dict[int, Any]:
        return {0: SimpleNamespace(high_watermark=self.stored)}

    def foreign_under_replicated(self) -> list[PartitionInfo]:
        if self.error:
            raise self.error
        return [p for p in self.partitions if p.isr != p.replicas]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda w: Path(w.limits.abort_file).touch(), "the abort file"),
        (lambda w: setattr(w.limits, "deadline", Duration(0)), "the deadline of 0ms has passed"),
        (lambda w: w.partitions.append(LACKING), "payments-1 has leader 1, ISR [1] of [1, 2]"),
        (lambda w: setattr(w, "error", ConnectionError("no broker")), "could not observe the cluster"),
        (lambda w: setattr(w, "stored", 2000), "up to 1344000 B are stored: limits.storage is 1MB"),
        (
            lambda w: (setattr(w.limits, "bytes_per_second", Rate(1000)), setattr(w, "stored", 1000)),
            "were written: limits.bytes_per_second is 1kB/s",
        ),
    ],
    ids=["abort", "deadline", "replica", "blind", "storage", "rate"],
)
def test_the_guard_records_each_reason_before_it_stops_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, why: str
) -> None:
    for name, seconds in (("EVERY_S", 0.01), ("LOOK_S", 0.01), ("COUNT_S", 0.01), ("BLIND_S", 0.05)):
        monkeypatch.setattr(guarding, name, seconds)
    watched = Watched(tmp_path)
    reasons: list[str] = []
    with Guard(cast(Any, watched), plan(tmp_path)[0], reasons.append) as guard:
        wait_until(lambda: guard.looks > 3, 10, "a few looks")
        assert reasons == []
        change(watched)
        wait_until(lambda: reasons, 10, "the guard to stop")
    assert why in reasons[0]
    assert guard.stopped_because == reasons[0]
    noted = (tmp_path / "audit.jsonl").read_text()
    assert '"action": "stop"' in noted
    assert f'"action": "counted", "looks": {guard.looks}, "stored": {watched.stored * 3 * 224}' in noted


@pytest.mark.parametrize("failing", ["look", "abort-file", "note"])
def test_a_failing_guard_stops_the_run_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("No space left") if failing == "note" else ValueError("not as expected")

    monkeypatch.setattr(guarding, "EVERY_S", 0.01)
    watched = Watched(tmp_path)
    reasons: list[str] = []
    with (
        Guard(cast(Any, watched), plan(tmp_path)[0], reasons.append) as guard,
        monkeypatch.context() as patch,
    ):
        if failing == "note":
            patch.setattr(watched.audit, "note", fail)
            Path(watched.limits.abort_file).touch()
        elif failing == "abort-file":
            patch.setattr(Path, "exists", fail)
        else:
            patch.setattr(watched, "foreign_under_replicated", fail)
        wait_until(lambda: reasons, 10, "the guard to stop")
    why = {"note": "exists (not in the audit log: No space left)"}
    assert why.get(failing, "the guard failed: ValueError: not as expected") in reasons[0]
    assert guard.stopped_because == reasons[0]


def test_writes_during_the_measurement_count_with_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, now = Watched(tmp_path), 0.0

    def slow(_: str) -> dict[int, Any]:
        nonlocal now
        now = 10.0
        return {0: SimpleNamespace(high_watermark=1000)}

    monkeypatch.setattr(watched, "end_offsets", slow)
    monkeypatch.setattr("harness.run.external.write_budget.time.monotonic", lambda: now)
    meter = Meter(cast(Any, watched), plan(tmp_path)[0])
    assert "limits.storage" not in meter.look()
    assert meter.fastest == 1000 * 224 / 10


class Silent(PrefixedAdmin):
    """Admin client that sends nothing: a call returns the name of its request."""

    def connect(self, broker: int) -> Any:  # noqa: ARG002
        return SimpleNamespace(call=lambda request: type(request).__name__)


def test_only_names_with_the_prefix_are_changed(tmp_path: Path) -> None:
    from kafka.protocol.admin import (
        AlterPartitionReassignmentsRequest,
        DeleteTopicsRequest,
        ElectLeadersRequest,
        IncrementalAlterConfigsRequest,
    )
    from kafka.protocol.consumer import ListOffsetsRequest
    from kafka.protocol.metadata import MetadataRequest

    audit = tmp_path / "audit.jsonl"
    admin = Silent({1: ("127.0.0.1", 1)}, 1, PLAINTEXT, "eos-chaos-", Audit(audit))
    assert admin.call(1, MetadataRequest(topics=None, version=9)) == "MetadataRequest"
    refused = [
        DeleteTopicsRequest(topic_names=["eos-chaos-a", "payments"], version=5),
        ElectLeadersRequest(election_type=0, topic_partitions=None, version=2),
        IncrementalAlterConfigsRequest(resources=[], version=1),
        AlterPartitionReassignmentsRequest(topics=[], version=0),
    ]
    for request in refused:
        with pytest.raises(RefusedError, match="only names that begin with 'eos-chaos-' may be changed"):
            admin.call(1, request)
    assert audit.read_text().count('"action": "refused"') == len(refused)
    topic = ListOffsetsRequest.ListOffsetsTopic(name="payments", partitions=[])
    with pytest.raises(RefusedError, match="ListOffsetsRequest on payments"):
        admin.call(1, ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic], version=5))


def test_the_positions_of_a_group_are_read_only_with_the_prefix(tmp_path: Path) -> None:
    from kafka.protocol.consumer import OffsetFetchRequest

    audit = tmp_path / "audit.jsonl"
    admin = Silent({1: ("127.0.0.1", 1)}, 1, PLAINTEXT, "eos-chaos-", Audit(audit))
    ours = OffsetFetchRequest(group_id="eos-chaos-invoices", topics=None, require_stable=True, version=7)
    assert admin.call(1, ours) == "OffsetFetchRequest"
    assert not audit.exists() or audit.read_text() == ""  # a read is no action
    theirs = OffsetFetchRequest(group_id="payments", topics=None, require_stable=True, version=7)
    with pytest.raises(RefusedError, match="OffsetFetchRequest on payments"):
        admin.call(1, theirs)


def test_a_shared_log_is_read_with_consent_and_never_changed(tmp_path: Path) -> None:
    from kafka.protocol.admin import DeleteTopicsRequest

    audit = Audit(tmp_path / "audit.jsonl")
    log, other = ("__transaction_state", 3), ("__consumer_offsets", 3)
    where = {1: ("127.0.0.1", 1)}
    admin = Silent(where, 1, PLAINTEXT, "eos-chaos-", audit, readable=frozenset({log[0]}))
    assert admin.call(1, fetch_request(log, 0)) == "FetchRequest"
    assert admin.call(1, fetch_request(("eos-chaos-orders.1", 0), 0)) == "FetchRequest"
    for refused in (fetch_request(other, 0), DeleteTopicsRequest(topic_names=[log[0]], version=5)):
        with pytest.raises(RefusedError, match="only names that begin with 'eos-chaos-' may be changed"):
            admin.call(1, refused)
    with pytest.raises(RefusedError, match="FetchRequest on __transaction_state"):
        Silent(where, 1, PLAINTEXT, "eos-chaos-", audit).call(1, fetch_request(log, 0))


def test_a_topic_creation_dry_run_is_not_audited_and_limited_to_the_prefix(tmp_path: Path) -> None:
    from kafka.protocol.admin import CreateTopicsRequest

    def asked(name: str) -> Any:
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=[], configs=[]
        )
        return CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=True, version=5)

    audit = tmp_path / "audit.jsonl"
    admin = Silent({1: ("127.0.0.1", 1)}, 1, PLAINTEXT, "eos-chaos-", Audit(audit))
    assert admin.call(1, asked("eos-chaos-asked")) == "CreateTopicsRequest"
    assert not audit.exists()
    with pytest.raises(RefusedError, match="CreateTopicsRequest on payments is refused"):
        admin.call(1, asked("payments"))


def test_a_runs_audit_log_has_only_the_lines_of_its_own_process(tmp_path: Path) -> None:
    state = tmp_path / "audit.jsonl"
    Audit(state).also(tmp_path / "nothing.jsonl")
    assert (tmp_path / "nothing.jsonl").read_bytes() == b""
    Audit(state).note("of an earlier run")
    audit = Audit(state)
    audit.note("before", pid_of="this")
    with state.open("a") as file:
        file.write('{"pid": 1, "action": "of another process"}\n')
    audit.also(tmp_path / "run.jsonl")
    audit.note("after")
    lines = [json.loads(line)["action"] for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    assert lines == ["before", "after"]
    actions = [json.loads(line)["action"] for line in state.read_text().splitlines()]
    assert actions == ["of an earlier run", "before", "of another process", "after"]


def test_a_change_is_audited_before_it_is_made(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"
    admin = PrefixedAdmin({1: ("127.0.0.1", 1)}, 1, PLAINTEXT, "eos-chaos-", Audit(audit))
    with pytest.raises(ConnectionError):
        admin.delete_topics(["eos-chaos-orders"])
    assert '"action": "DeleteTopics", "names": ["eos-chaos-orders"]' in audit.read_text()
