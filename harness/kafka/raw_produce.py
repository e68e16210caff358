"""Produce requests with any batch header, to test how brokers answer.

A client library never repeats an old sequence, leaves a gap or invents a producer id. Tests of brokers must
send such batches.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from harness.base.addresses import Address
from harness.base.partition_id import PartitionId
from harness.base.waits import wait_until
from harness.kafka.admin import init_producer_id_request
from harness.kafka.connection import RawConnection
from harness.kafka.errors import check, error_name

TIMEOUT_S: Final = 15.0
ACKS_TIMEOUT_MS: Final = 5_000
"""Milliseconds that the leader waits for its followers before it answers REQUEST_TIMED_OUT."""
MAX_SEQUENCE: Final = 2**31 - 1


class ProduceResult(NamedTuple):
    """A broker's answer to one batch: error code, error name and base offset (-1 if none was assigned)."""

    code: int
    error: str
    offset: int


def encode_batch(
    producer_id: int, epoch: int, base_sequence: int, values: Sequence[bytes], *, transactional: bool = False
) -> bytes:
    """Encode one batch of format 2 with any producer id, epoch and sequence."""
    from kafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=transactional,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
        batch_size=1 << 20,
    )
    now = int(time.time() * 1000)
    for number, value in enumerate(values):
        if builder.append(number, timestamp=now, key=None, value=value, headers=[]) is None:
            raise ValueError(f"{len(values)} values do not fit into one batch")
    return bytes(builder.build())


def produce(
    address: Address,
    partition_id: PartitionId,
    batch: bytes,
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceResult:
    """Send one batch to the broker at this address; return its answer, which may be an error."""
    from kafka.protocol.producer import ProduceRequest

    topic = ProduceRequest.TopicProduceData
    partition = topic.PartitionProduceData(index=partition_id[1], records=batch)
    request: Any = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=ACKS_TIMEOUT_MS,
        topic_data=[topic(name=partition_id[0], partition_data=[partition])],
        version=9,
    )
    with RawConnection(*address, TIMEOUT_S) as connection:
        answer = connection.call(request).responses[0].partition_responses[0]
    return ProduceResult(int(answer.error_code), error_name(answer.error_code), int(answer.base_offset))


def new_producer_ids(address: Address, count: int) -> list[int]:
    """Request `count` new producer ids from one broker, as a producer does when it starts.

    While a broker waits for a new block of ids, it answers COORDINATOR_LOAD_IN_PROGRESS. The request is then
    repeated.
    """
    with RawConnection(*address, TIMEOUT_S) as connection:

        def next_id() -> list[int]:
            answer = connection.call(init_producer_id_request())
            check("a producer id", answer.error_code)
            return [int(answer.producer_id)]

        return [wait_until(next_id, TIMEOUT_S, "a producer id", every=0.01)[0] for _ in range(count)]
