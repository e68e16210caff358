"""Transactional ids: an idle id expires, and an id gets a new producer id after its last epoch."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from harness.base.waits import wait_until
from harness.clients import fencing_check
from harness.cluster.cluster import Cluster
from harness.kafka import transactions as by_hand
from harness.kafka.brokers import change_settings, setting
from harness.kafka.errors import KafkaAnswerError, error_name
from tests.broker_requests import initialise_repeatedly
from tests.single_broker import OneBroker, one_broker
from tests.tapped import Evidence
from tests.transactional.transactional_case import UNKNOWN_ID, TransactionalCase

pytestmark = pytest.mark.cluster

EXPIRATION_MS = 3_000
"""Expiration of transactional ids in ms.

It is longer than the time between two calls on a busy machine, so that an id does not expire between them.
"""
LAST_EPOCH = 2**15 - 1


@pytest.fixture(scope="module")
def expiring(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneBroker]:  # noqa: ARG001
    """Start a broker with a short expiration of transactional ids, which can only be set at start."""
    folder = tmp_path_factory.mktemp("expiring")
    with one_broker(
        folder,
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
        transactional_id_expiration_ms=str(EXPIRATION_MS),
        transaction_remove_expired_transaction_cleanup_interval_ms="200",
    ) as made:
        made.topic("t")
        yield made


def known(broker: OneBroker, transactional_id: str) -> fencing_check.Known | None:
    try:
        return fencing_check.ask(broker.open, transactional_id)
    except KafkaAnswerError as error:
        if error.code == UNKNOWN_ID:
            return None
        raise


def test_an_idle_id_expires_and_works_again_as_new(
    case: TransactionalCase, expiring: OneBroker, evidence: Evidence
) -> None:
    first = case.producer("t", bootstrap=expiring.open, partitions=1)
    assert first.init().ok
    started = time.monotonic()
    assert first.whole({0: 2}).ok
    before = known(expiring, case.transactional_id)
    wait_until(lambda: known(expiring, case.transactional_id) is None, 20, "the id to expire")
    took = time.monotonic() - started

    # The existing producer gets an error and aborts. Then it gets a new producer id without another call of
    # init.
    assert first.begin().ok
    refused = [first.send(0), first.commit()]
    continued = [first.abort(), first.whole({0: 1})]
    renewed = known(expiring, case.transactional_id)
    again = case.producer("t", bootstrap=expiring.open, partitions=1)
    assert again.init().ok
    after = known(expiring, case.transactional_id)
    evidence(
        before=before,
        expired_after_s=round(took, 2),
        refused=refused,
        continued=continued,
        renewed=renewed,
        after=after,
    )
    assert before is not None
    assert renewed is not None
    assert after is not None
    assert refused[1].name == "INVALID_PRODUCER_ID_MAPPING"
    assert [answer.name for answer in continued] == ["ok", "ok"]
    assert renewed.producer_id != before.producer_id
    assert (after.producer_id, after.epoch) == (renewed.producer_id, renewed.epoch + 1)
    assert took >= EXPIRATION_MS / 1000 - 0.5


def test_the_expiration_of_ids_cannot_be_changed_on_a_running_broker(
    expiring: OneBroker, evidence: Evidence
) -> None:
    """This is why these tests start their own broker."""
    with pytest.raises(KafkaAnswerError) as refused:
        change_settings(expiring.admin, 1, {"transactional.id.expiration.ms": str(2 * EXPIRATION_MS)})
    evidence(refused=str(refused.value))
    assert setting(expiring.admin, 1, "transactional.id.expiration.ms") == str(EXPIRATION_MS)


def test_an_open_transaction_keeps_its_id(
    case: TransactionalCase, expiring: OneBroker, evidence: Evidence
) -> None:
    """An open transaction prevents the expiration: only idle ids expire."""
    idle, busy = f"{case.name}-idle", f"{case.name}-busy"
    for name in (idle, busy):
        producer = case.producer("t", name, bootstrap=expiring.open, partitions=1)
        assert producer.init().ok
        if name == busy:
            producer.begin()
            assert producer.send(0).ok
        else:
            assert producer.whole({0: 1}).ok
    wait_until(lambda: known(expiring, idle) is None, 20, "the idle id to expire")
    state = known(expiring, busy)
    ended = producer.commit()
    evidence(busy=state, ended=ended)
    assert state is not None
    assert state.state == "Ongoing"
    assert ended.ok


@pytest.mark.soak
def test_a_used_up_epoch_is_followed_by_a_new_producer_id(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence
) -> None:
    """Send InitProducerId for one transactional id 32,767 times, by hand-made requests."""
    topic = case.topic("t")
    first = case.init_by_hand()
    started = time.monotonic()
    given = initialise_repeatedly(cluster.admin, first.transactional_id, LAST_EPOCH)
    took = time.monotonic() - started
    epochs = [each.epoch for each in given]
    turn = next(i for i, each in enumerate(given) if each.producer_id != first.producer_id)
    last_old, first_new = given[turn - 1], given[turn]
    old = by_hand.ProducerIdentity(first.transactional_id, last_old.producer_id, last_old.epoch)
    late = by_hand.add_partitions(cluster.admin, old, [(topic, 0)])
    evidence(inits=len(given), took_s=round(took, 1), last=last_old, next=first_new, late=error_name(late))
    assert {each.code for each in given} == {0}
    assert epochs[:turn] == list(range(1, turn + 1))
    assert last_old.epoch == LAST_EPOCH - 1
    assert first_new.epoch == 0
    assert late != 0
    again = case.producer(topic)
    assert again.init().ok
    assert again.whole({0: 3}).ok
