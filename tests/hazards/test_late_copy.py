"""A late copy of a batch does no harm to the log, and makes the producer's next batch there fatal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.base.waits import wait_until
from harness.clients import fencing_check
from harness.clients.scripted.client_libraries import RefusedCallError
from harness.clients.scripted.scripted_client import RECORDS, Scripted
from harness.cluster.cluster import Cluster
from harness.faults import DuplicateFrame, arm
from harness.tap.tap_client import ensure_tap
from harness.walkthroughs.broker_evidence import leader_log
from tests.hazards.conftest import CHANGED

pytestmark = pytest.mark.cluster

RUN = "hazard01"
LATE_MS = 30_000  # by then at latest; it is let go when the transaction has ended


@pytest.fixture
def producer(cluster: Cluster, topic: str, tmp_path: Path) -> Scripted:
    """A confluent-kafka producer of one partition, through the wire tap."""
    ensure_tap(cluster)
    made = Scripted(
        run=RUN,
        name=f"late-{topic}",
        number=1,
        library="confluent-kafka",
        partitions=[0],
        topic=topic,
        bootstrap=cluster.bootstrap("TAPPED"),
        histories=tmp_path,
    )
    made.init()
    return made


def test_a_batch_that_comes_again_after_its_commit_makes_the_next_one_fatal(
    cluster: Cluster, topic: str, producer: Scripted, evidence: Callable[..., None]
) -> None:
    """The broker asks the coordinator whether the copy may be written, and remembers its sequence meanwhile.

    The answer is no. The next batch has the next sequence, which is not the remembered one: it is refused.
    """
    copied = DuplicateFrame(api="Produce", topic=topic, partition=0, delay_ms=LATE_MS)

    def ended() -> bool:
        """The marker is there, and its coordinator knows: before, a leader wants the copy sent again."""
        end = cluster.end_offsets(topic)[0]
        known = fencing_check.ask(cluster.bootstrap("DIRECT"), producer.transactional_id)
        return end.last_stable == end.high_watermark > RECORDS and known.state == "CompleteCommit"

    with producer:
        producer.begin()
        with arm(cluster, copied) as copy:
            producer.send(0, "commit")
            producer.end("commit")
            wait_until(ended, 20, "its end")  # before it, a copy is one more repeat of an open transaction
            assert copy.wait().hits[0].did == "copied", "the copy was not late enough"
            assert copy.release() == 1
            copy.wait("delivered")
        before = leader_log(cluster, (topic, 0))
        producer.begin()
        with pytest.raises(RefusedCallError) as refused:
            producer.send(0, "commit")
        evidence(copy=copy.bite["hits"][0]["answer"], next=str(refused.value))
        assert copy.bite["hits"][0]["answer"] == "INVALID_TXN_STATE", CHANGED
        assert refused.value.name == "OUT_OF_ORDER_SEQUENCE_NUMBER", CHANGED
        assert leader_log(cluster, (topic, 0)) == before, "neither the copy nor the next batch is written"

        producer.init()
        producer.begin()
        producer.send(0, "commit")
        producer.end("commit")
    values = [value for batch in leader_log(cluster, (topic, 0)) for _, value in batch.values]
    assert len(values) == 2 * RECORDS
