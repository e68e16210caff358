"""The life of a transactional id: forgotten when idle, a new producer id when its epochs run out."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from harness.base.waits import wait_until
from harness.clients import fencing_check
from harness.cluster.cluster import Cluster
from harness.kafka import transactions as by_hand
from harness.kafka.brokers import setting
from harness.kafka.errors import KafkaAnswerError, error_name
from tests.broker_requests import change_settings, initialise_repeatedly
from tests.single_broker import OneBroker, one_broker
from tests.tapped import Evidence
from tests.transactional.bench import UNKNOWN_ID, Bench

pytestmark = pytest.mark.cluster

EXPIRATION_MS = 3_000
"""Longer than a busy machine needs from one call of a producer to the next: meanwhile its id must not go."""
LAST_EPOCH = 2**15 - 1


@pytest.fixture(scope="module")
def forgetful(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneBroker]:  # noqa: ARG001
    """A broker that forgets an idle transactional id soon: in the cluster that is a setting of its start."""
    folder = tmp_path_factory.mktemp("forgetful")
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


def test_an_idle_id_is_forgotten_and_works_again_as_new(
    bench: Bench, forgetful: OneBroker, evidence: Evidence
) -> None:
    first = bench.told("t", bootstrap=forgetful.open, partitions=1)
    assert first.init().said == "ok"
    assert first.whole({0: 2}).said == "ok"
    before = known(forgetful, bench.transactional_id)
    started = time.monotonic()
    wait_until(lambda: known(forgetful, bench.transactional_id) is None, 20, "the id to be forgotten")
    took = time.monotonic() - started

    # A producer that is still there is told, aborts, and is somebody new by itself.
    assert first.begin().said == "ok"
    refused = [first.send(0), first.commit()]
    gone_on = [first.abort(), first.whole({0: 1})]
    renewed = known(forgetful, bench.transactional_id)
    again = bench.told("t", bootstrap=forgetful.open, partitions=1)
    assert again.init().said == "ok"
    after = known(forgetful, bench.transactional_id)
    evidence(
        before=before,
        forgotten_after_s=round(took, 2),
        refused=refused,
        gone_on=gone_on,
        renewed=renewed,
        after=after,
    )
    assert before is not None
    assert renewed is not None
    assert after is not None
    assert refused[1].said == "INVALID_PRODUCER_ID_MAPPING"
    assert [answer.said for answer in gone_on] == ["ok", "ok"]
    assert renewed.producer_id != before.producer_id
    assert (after.producer_id, after.epoch) == (renewed.producer_id, renewed.epoch + 1)
    assert took >= EXPIRATION_MS / 1000 - 0.5


def test_how_long_an_id_is_kept_is_said_at_a_brokers_start(forgetful: OneBroker, evidence: Evidence) -> None:
    """Which is why these cases have a broker of their own."""
    with pytest.raises(KafkaAnswerError) as refused:
        change_settings(forgetful.admin, 1, {"transactional.id.expiration.ms": str(2 * EXPIRATION_MS)})
    evidence(refused=str(refused.value))
    assert setting(forgetful.admin, 1, "transactional.id.expiration.ms") == str(EXPIRATION_MS)


def test_an_open_transaction_keeps_its_id(bench: Bench, forgetful: OneBroker, evidence: Evidence) -> None:
    """Expiration is for ids at rest."""
    idle, busy = f"{bench.name}-idle", f"{bench.name}-busy"
    for name in (idle, busy):
        told = bench.told("t", name, bootstrap=forgetful.open, partitions=1)
        assert told.init().said == "ok"
        if name == busy:
            told.begin()
            assert told.send(0).said == "ok"
        else:
            assert told.whole({0: 1}).said == "ok"
    wait_until(lambda: known(forgetful, idle) is None, 20, "the idle id to be forgotten")
    state = known(forgetful, busy)
    ended = told.commit()
    evidence(busy=state, ended=ended)
    assert state is not None
    assert state.state == "Ongoing"
    assert ended.said == "ok"


@pytest.mark.soak
def test_a_used_up_epoch_is_followed_by_a_new_producer_id(
    cluster: Cluster, bench: Bench, evidence: Evidence
) -> None:
    """32,767 inits of one transactional id, by hand."""
    topic = bench.topic("t")
    first = bench.take()
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
    again = bench.told(topic)
    assert again.init().said == "ok"
    assert again.whole({0: 3}).said == "ok"
