"""Batches as somebody wants them, sent as they are: what a broker says to what no client would send.

A client library never repeats an old sequence, leaves a gap or invents a producer id; a test must.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from harness.base.waits import wait_until
from harness.kafka.admin import Address, producer_id_request
from harness.kafka.connection import KafkaAnswerError, RawConnection

TIMEOUT_S: Final = 15.0
ACKS_TIMEOUT_MS: Final = 5_000
"""How long the leader waits for its followers before it says REQUEST_TIMED_OUT."""
MOST_SEQUENCE: Final = 2**31 - 1
Place = tuple[str, int]


class Written(NamedTuple):
    """A broker's answer to one batch: Kafka's error code, its name, and the offset that it names (or -1)."""

    code: int
    error: str
    offset: int


def encode_batch(
    producer_id: int, epoch: int, base_sequence: int, values: Sequence[bytes], *, transactional: bool = False
) -> bytes:
    """One batch of format 2, with whatever producer id, epoch and sequence it is to claim."""
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
    address: Address, place: Place, batch: bytes, acks: int = -1, transactional_id: str | None = None
) -> Written:
    """Send one batch to the broker at this address and return what it says, also when it refuses."""
    from kafka.errors import for_code
    from kafka.protocol.producer import ProduceRequest

    topic = ProduceRequest.TopicProduceData
    request: Any = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=ACKS_TIMEOUT_MS,
        topic_data=[
            topic(name=place[0], partition_data=[topic.PartitionProduceData(index=place[1], records=batch)])
        ],
        version=9,
    )
    with RawConnection(*address, TIMEOUT_S) as connection:
        answer = connection.call(request).responses[0].partition_responses[0]
    name = "NONE" if answer.error_code == 0 else for_code(answer.error_code).__name__
    return Written(int(answer.error_code), name, int(answer.base_offset))


def new_producer_ids(address: Address, count: int) -> list[int]:
    """So many fresh producer ids of one broker, each asked for as a starting producer asks.

    A broker that waits for a block from the controllers says COORDINATOR_LOAD_IN_PROGRESS: it is asked again.
    """
    with RawConnection(*address, TIMEOUT_S) as connection:

        def ask() -> int:
            answer = connection.call(producer_id_request())
            if answer.error_code:
                raise KafkaAnswerError("a producer id", answer.error_code)
            return int(answer.producer_id) + 1  # an id may be zero, and a wait is over at what is true

        return [wait_until(ask, TIMEOUT_S, "a producer id", every=0.01) - 1 for _ in range(count)]
