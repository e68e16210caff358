"""Open and hanging transactions: how brokers and coordinators reveal them, and how to end them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.base.errors import ExitCode
from harness.base.partition_id import PartitionId
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.evidence.checkers.model import Expect
from harness.kafka import transactions as by_hand
from harness.kafka.brokers import change_settings, setting
from harness.kafka.errors import error_name
from harness.kafka.hanging_transactions import BlockingTransaction, OpenTransaction, write_marker
from harness.provision.kafka_tools import tool_command
from tests.client_case import examples_of, text
from tests.tapped import Evidence
from tests.transactional.transactional_case import TransactionalCase

pytestmark = pytest.mark.cluster

EOS = Path(sys.executable).with_name("eos")
VERIFICATION = "transaction.partition.verification.enable"
TIMEOUT_MS = 2_000
"""Transaction time-out in ms. A transaction that is open 15 s longer than this counts as hanging."""
BOUNDED = Expect(transaction_timeout_ms=TIMEOUT_MS)
WATCHED_S = 15 + TIMEOUT_MS / 1000 + 0.5


@pytest.fixture
def unverified(cluster: Cluster) -> Iterator[int]:
    """Disable the verification of transactions on broker 2, as in versions before 3.6; yield its id."""
    change_settings(cluster.admin, 2, {VERIFICATION: "false"})
    wait_until(lambda: setting(cluster.admin, 2, VERIFICATION) == "false", 10, "no verification")
    yield 2
    change_settings(cluster.admin, 2, {VERIFICATION: None})
    wait_until(lambda: setting(cluster.admin, 2, VERIFICATION) == "true", 10, "verification to be back")


def test_an_open_transaction_is_distinguished_from_a_hanging_one(
    cluster: Cluster, case: TransactionalCase, unverified: int, evidence: Evidence
) -> None:
    """Both transactions hold readers back. Only the open one still has a coordinator that can end it."""
    topic = case.topic("t")
    left, hung = (topic, 0), (topic, unverified - 1)
    own = case.producer(topic, transaction_timeout_ms=TIMEOUT_MS)
    assert own.init().ok
    stranger = case.init_by_hand(f"{case.name}-left", timeout_ms=600_000)
    assert by_hand.add_partitions(cluster.admin, stranger, [left]) == 0
    assert case.produce_by_hand(stranger, left).code == 0
    late = case.init_by_hand(f"{case.name}-hung", timeout_ms=600_000)
    assert by_hand.add_partitions(cluster.admin, late, [hung]) == 0
    assert case.produce_by_hand(late, hung).code == 0
    assert by_hand.end(cluster.admin, late, commit=False) == 0
    wait_until(lambda: not held(case, hung), 10, "the marker")
    # The transaction of this batch has already ended. So the batch opens another transaction, which no
    # coordinator will end: it hangs.
    assert case.produce_by_hand(late, hung, 1).code == 0
    assert own.whole({0: 5, 1: 5, 2: 5}).ok

    case.wait_ended()
    visible = {p: len(values) for p, values in case.read(topic).items()}
    everything = {p: len(values) for p, values in case.read(topic, "read_uncommitted").items()}
    case.observe_ends(WATCHED_S)
    found = {each.open.partition_id: each for each in case.open_transactions(topic)}
    judged = case.judge(expect=BOUNDED)
    assert sorted(found) == [left, hung]
    assert [found[place].hangs for place in (left, hung)] == [False, True]
    owner = found[left].last
    assert owner is not None
    assert owner.transactional_id == stranger.transactional_id
    assert (found[left].open.producer_id, found[left].open.first_offset) == (stranger.producer_id, 0)
    assert (found[hung].open.producer_id, found[hung].open.first_offset) == (late.producer_id, 2)
    assert all(each.open.age_s > WATCHED_S for each in found.values())
    assert (visible, everything) == ({0: 0, 1: 0, 2: 5}, {0: 6, 1: 7, 2: 5})
    assert judged.names() == ["hanging_transaction"], text(judged)
    examples = examples_of(judged, "hanging_transaction")
    assert [any(f"{topic}-{p}:" in line for line in examples) for p in (0, 1, 2)] == [True, True, False]

    case.init_by_hand(stranger.transactional_id)
    wait_until(lambda: not held(case, left), 10, "what was left open to be aborted by the next init")
    case.init_by_hand(late.transactional_id)
    assert held(case, hung), "an init frees what hangs"
    at = found[hung].open
    refused = abort_marker(cluster, at, -1)
    freed = abort_marker(cluster, at, at.coordinator_epoch)
    wait_until(lambda: not held(case, hung), 10, "the abort marker to free what hung")
    case.observe_ends()
    after = case.judge(expect=BOUNDED)
    answers = {"coordinator epoch -1": refused, "the right one": freed}
    evidence(open=list(found.values()), examples=examples, admin_abort=answers, after=after.verdict)
    assert refused == "TRANSACTION_COORDINATOR_FENCED"
    assert freed == "NONE"
    assert (after.verdict, after.names()) == ("valid", []), text(after)


@pytest.mark.soak
def test_the_command_that_eos_hanging_prints_frees_the_partition(
    cluster: Cluster, case: TransactionalCase, unverified: int, evidence: Evidence
) -> None:
    topic = case.topic("t")
    hung = (topic, unverified - 1)
    late = case.init_by_hand(timeout_ms=600_000)
    assert by_hand.add_partitions(cluster.admin, late, [hung]) == 0
    assert case.produce_by_hand(late, hung).code == 0
    assert by_hand.end(cluster.admin, late, commit=False) == 0
    wait_until(lambda: not held(case, hung), 10, "the marker")
    case.wait_ended(late.transactional_id)
    assert case.produce_by_hand(late, hung, 1).code == 0

    servers = cluster.bootstrap(BrokerListener.DIRECT)
    shown = run(str(EOS), "hanging", "--bootstrap", servers, "--topic", topic)
    assert shown.returncode == ExitCode.ANOMALY, shown.stderr
    before, _, printed = shown.stdout.partition("kafka-transactions.sh ")
    assert "if its producer has begun no other transaction since then: " in before
    arguments = shlex.split(printed.splitlines()[0])
    freed = run(*tool_command("transactions", arguments, print))
    assert freed.returncode == 0, freed.stdout + freed.stderr
    wait_until(lambda: not held(case, hung), 10, "the abort to free what hung")
    after = run(str(EOS), "hanging", "--bootstrap", servers, "--topic", topic)
    evidence(shown=shown.stdout, tool=freed.stdout, after=after.stdout)
    assert (after.returncode, after.stdout) == (0, "0 hanging in 1 topic\n")


@pytest.mark.soak
def test_eos_hanging_names_an_open_transaction_and_its_end(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence
) -> None:
    topic = case.topic("t")
    slow = case.init_by_hand(timeout_ms=600_000)
    assert by_hand.add_partitions(cluster.admin, slow, [(topic, 0)]) == 0
    assert case.produce_by_hand(slow, (topic, 0)).code == 0

    servers = cluster.bootstrap(BrokerListener.DIRECT)
    shown = run(str(EOS), "hanging", "--bootstrap", servers, "--topic", topic)
    assert shown.returncode == 0, shown.stderr
    opened, end, summary = shown.stdout.splitlines()
    assert f"{topic}-0: open since offset 0" in opened
    assert f"reports {slow.transactional_id} as Ongoing" in opened
    assert re.search(r"coordinator aborts it in [56]\d\d s if its producer does not end it", end)
    assert summary == "0 hanging in 1 topic; 1 open and not hanging"

    arguments = shlex.split(end.partition("kafka-transactions.sh ")[2].partition(" (since")[0])
    ended = run(*tool_command("transactions", arguments, print))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    wait_until(lambda: not held(case, (topic, 0)), 10, "the end of the transaction")
    after = run(str(EOS), "hanging", "--bootstrap", servers, "--topic", topic)
    assert (after.returncode, after.stdout) == (0, "0 hanging in 1 topic\n")
    assert by_hand.end(cluster.admin, slow, commit=True) != 0
    evidence(shown=shown.stdout, tool=ended.stdout)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def held(case: TransactionalCase, place: PartitionId) -> list[BlockingTransaction]:
    return [each for each in case.open_transactions(place[0]) if each.open.partition_id == place]


def abort_marker(cluster: Cluster, at: OpenTransaction, coordinator_epoch: int) -> str:
    """Send an abort marker to a partition without involving the coordinator, as an operator can."""
    leader = cluster.leader_of(*at.partition_id)
    return write_marker(cluster.admin, leader, at, commit=False, coordinator_epoch=coordinator_epoch)


def test_with_verification_a_late_batch_is_refused(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence
) -> None:
    """Control test: send the same late batch to a broker that verifies it with the coordinator."""
    topic = case.topic("t")
    who = case.init_by_hand()
    assert by_hand.add_partitions(cluster.admin, who, [(topic, 0)]) == 0
    assert case.produce_by_hand(who, (topic, 0)).code == 0
    assert by_hand.end(cluster.admin, who, commit=False) == 0
    wait_until(lambda: not held(case, (topic, 0)), 10, "the marker")
    # Until the coordinator has completed the transaction, the leader returns NOT_ENOUGH_REPLICAS, which a
    # producer retries.
    case.wait_ended(who.transactional_id)
    late = case.produce_by_hand(who, (topic, 0), 1)
    evidence(late=late)
    assert error_name(late.code) == "INVALID_TXN_STATE"
    assert case.open_transactions(topic) == []


def test_an_operators_abort_of_a_live_transaction_loses_committed_records(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence
) -> None:
    """Abort a live transaction at the partition's leader, then let its producer commit.

    The coordinator does not take part in the abort. So it acknowledges the commit, although the records were
    aborted.
    """
    topic = case.topic("t")
    live = case.producer(topic)
    assert live.init().ok
    live.begin()
    assert live.send(0, 3).ok
    (live_there,) = case.open_transactions(topic)
    marked = abort_marker(cluster, live_there.open, live_there.open.coordinator_epoch)
    known = case.describe()
    second = live.send(0, 2)
    committed = live.commit()
    case.wait_ended()
    judged = case.judge()
    visible = len(case.read(topic)[0])
    evidence(
        marker=marked,
        coordinator=known.state,
        second=second,
        committed=committed,
        visible_of_5=visible,
        found=judged.names(),
        examples=examples_of(judged, "lost"),
    )
    assert (marked, known.state) == ("NONE", "Ongoing")
    assert (second.name, committed.name) == ("ok", "ok")
    assert visible == 2
    assert {"lost", "torn_transaction"} <= set(judged.names()), text(judged)


def test_the_next_init_ends_a_live_transaction_safely(case: TransactionalCase, evidence: Evidence) -> None:
    """Use the safe remedy, a new InitProducerId: the whole transaction aborts; its producer gets an error."""
    topic = case.topic("t")
    live = case.producer(topic)
    assert live.init().ok
    live.begin()
    assert live.send(0, 3).ok
    successor = case.producer(topic)
    assert successor.init().ok
    refused = live.commit()
    assert successor.whole({0: 2}).ok
    case.wait_ended()
    judged = case.judge()
    evidence(refused=refused, verdict=judged.verdict)
    assert not refused.ok
    assert len(case.read(topic)[0]) == 2
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)
