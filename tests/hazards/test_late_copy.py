"""A late copy of a batch does not harm the log, but makes the producer's next batch fail fatally."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.base.waits import wait_until
from harness.clients import fencing_check
from harness.clients.scripted.client_libraries import RefusedCallError
from harness.clients.scripted.library_producer import RECORDS, LibraryProducer
from harness.clients.scripted.scripted_clients import ScriptedClients
from harness.cluster.cluster import Cluster
from harness.faults import DuplicateFrame, arm
from harness.tap.tap_client import ensure_tap
from harness.walkthroughs.broker_evidence import leader_log
from tests.hazards.conftest import CHANGED

pytestmark = pytest.mark.cluster

RUN = "hazard01"
LATE_MS = 30_000  # upper limit; the test releases the copy as soon as the transaction has ended


@pytest.fixture
def producer(cluster: Cluster, topic: str, tmp_path: Path) -> Iterator[LibraryProducer]:
    """Yield a confluent-kafka producer for one partition; it connects through the wire tap."""
    ensure_tap(cluster)
    clients = ScriptedClients(RUN, cluster.bootstrap("TAPPED"), tmp_path)
    producer = clients.library(f"late-{topic}", "confluent-kafka", topic, [0])
    producer.init()
    yield producer
    clients.close()


def test_a_copy_of_a_batch_after_its_commit_makes_the_next_batch_fatal(
    cluster: Cluster, topic: str, producer: LibraryProducer, evidence: Callable[..., None]
) -> None:
    """While the broker verifies the copy with the coordinator, it already stores the copy's sequence.

    The coordinator refuses the copy. The producer's next batch does not follow the stored sequence, so the
    broker refuses this batch as well.
    """
    copied = DuplicateFrame(api="Produce", topic=topic, partition=0, delay_ms=LATE_MS)

    def ended() -> bool:
        """Return whether the marker and the entry CompleteCommit are written.

        Before that, the broker would answer the copy with a retriable error.
        """
        end = cluster.end_offsets(topic)[0]
        description = fencing_check.ask(cluster.bootstrap("DIRECT"), producer.transactional_id)
        return end.last_stable == end.high_watermark > RECORDS and description.state == "CompleteCommit"

    producer.begin()
    with arm(cluster, copied) as copy:
        producer.send(0, "commit")
        producer.end("commit")
        # Release the copy only after the transaction has ended. Otherwise the copy would repeat a batch of a
        # transaction that is still open.
        wait_until(ended, 20, "CompleteCommit")
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
