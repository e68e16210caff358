"""`eos audit` on an external cluster: it finds damage, only reads, and needs consent to read the logs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Producer

from harness.base.errors import ExitCode
from harness.base.waits import wait_until
from harness.kafka.hanging_transactions import open_transactions, write_marker
from tests.external.conftest import User
from tests.external.secured_cluster import PREFIX

pytestmark = pytest.mark.cluster

TOPIC = f"{PREFIX}audited"
IDENT = f"{PREFIX}auditor"
LIMIT_S = 60.0


def begin(producer: Any) -> None:
    """Begin a transaction with one acknowledged record."""
    producer.begin_transaction()
    producer.produce(TOPIC, b"record", partition=0)
    assert producer.flush(LIMIT_S) == 0


def abort_by_hand(user: User) -> None:
    """Write an ABORT marker into the open transaction, as a late request of a coordinator would."""
    admin = user.cluster.admin
    (opened,) = open_transactions(admin, [TOPIC])
    leader = admin.partition(TOPIC, 0).leader
    epoch = max(0, opened.coordinator_epoch)
    assert write_marker(admin, leader, opened, commit=False, coordinator_epoch=epoch) == "NONE"


@pytest.mark.parametrize("user", ["certificate"], indirect=True)
def test_an_audit_needs_consent_only_reads_and_finds_the_damage_of_a_late_marker(user: User) -> None:
    admin = user.cluster.admin
    admin.create_topic(TOPIC, [[1, 2, 3]])
    wait_until(lambda: admin.partition(TOPIC, 0).leader > 0, LIMIT_S, f"a leader of {TOPIC}")
    producer = Producer({"bootstrap.servers": user.cluster.servers, "transactional.id": IDENT})
    producer.init_transactions(LIMIT_S)
    begin(producer)
    producer.commit_transaction(LIMIT_S)

    refused = user.do(user.command("audit", "--cluster", user.file()))
    assert refused.returncode == ExitCode.REFUSED
    assert "evidence.logs does not list __transaction_state" in refused.stderr
    assert "add the table [evidence] with logs = " in refused.stderr

    begin(producer)
    abort_by_hand(user)
    producer.commit_transaction(LIMIT_S)
    # Two records and three markers. The last marker is written after the commit was answered.
    wait_until(lambda: admin.end_offsets(TOPIC)[0].last_stable == 5, LIMIT_S, "the last marker")
    damaged = user.do(user.command("audit", "--cluster", user.file(more=user.logs())))
    assert damaged.returncode == ExitCode.ANOMALY, damaged.stdout + damaged.stderr
    # The first transaction, offsets 0 and 1, is whole.
    assert f"damage: records_lost: {TOPIC}-0 offsets 2 to 2" in damaged.stdout
    assert IDENT in damaged.stdout
    assert "1 damaged, 0 suspicious" in damaged.stdout
    assert admin.end_offsets(TOPIC)[0].high_watermark == 5

    # The directory of --state has the audit log, and nothing was sent that changes the cluster.
    lines = [json.loads(line) for line in (user.state / "audit.jsonl").read_text().splitlines()]
    assert [line["action"] for line in lines] == ["audit"]
