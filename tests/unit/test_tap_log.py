"""The frame log: its lines, its limits, its facts, and its join with histories."""

from __future__ import annotations

import asyncio
import json
import time
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from harness.base.errors import UsageError
from harness.evidence.history import HistoryWriter
from harness.evidence.history.lines import Error
from harness.evidence.log_line import clock_id
from harness.kafka.coordinators import java_hash
from harness.report.diagram.operation_join import Operations
from harness.tap import frame_lines
from harness.tap.counters import Stats
from harness.tap.decoded_fields import BatchFields, Coordinator, Facts, PartitionFields, VerifiedTransaction
from harness.tap.frame_decoder import Decoder
from harness.tap.frame_lines import Frame, FrameLogOpened, schema_text
from harness.tap.frame_log import FrameLog
from tests.tap_rig import end_txn, framed, raw_answer, rig

SCHEMA = resources.files("harness.evidence.schemas").joinpath("frames.schema.json").read_text()


def test_the_published_schema_is_current() -> None:
    assert schema_text() == SCHEMA


def test_every_line_of_a_log_matches_the_schema(tmp_path: Path) -> None:
    async def run() -> None:
        async with rig(raw_answer) as made:
            made.hub.log.start(tmp_path / "frames.jsonl", 500, 1 << 30)
            made.arm(verb="duplicate", side="response")
            client = await made.client()
            await client.ask(end_txn(1))
            await made.until(lambda: made.hits and made.hits[0].did == "delivered")
            client.send(b"\x00\x00\x00\x01x", end_txn(2)[:9])
            await made.until(lambda: made.hub.stats.odd.get("malformed"))
            await made.settled()
            made.hub.log.stop("test")

    asyncio.run(run())
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA))
    read = [json.loads(line) for line in (tmp_path / "frames.jsonl").read_text().splitlines()]
    for line in read:
        validator.validate(line)
    assert [line["type"] for line in read if line["type"] != "frame"] == [
        "open",
        "connection",
        "touch",
        "connection",
        "touch",
        "note",
        "note",
        "note",
        "closed",
        "close",
    ]
    assert read[0]["clock"] == clock_id()
    frames = [(x["n"], x["side"], x.get("fate")) for x in read if x["type"] == "frame"]
    assert frames == [
        (1, "request", None),
        (1, "response", None),
        (1, "request", "copy"),
        (1, "response", "copy"),
    ]


def test_above_its_rate_the_log_keeps_transactions_and_counts_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "frames.jsonl"
    stats = Stats()
    loop = asyncio.new_event_loop()
    log = FrameLog(loop, stats, Decoder(), "test")
    log.start(path, rate=2, most=1 << 30)
    mono = time.monotonic_ns()
    logged = [log.wants(api, mono) for api in ["Produce", "Fetch", "Produce", "EndTxn", "Fetch", "Produce"]]
    later = log.wants("Produce", mono + 2_000_000_000)
    log.stop("test")
    loop.close()

    assert (logged, later) == ([True, True, False, True, False, False], True)
    assert stats.not_logged == {"Produce": 2, "Fetch": 1}
    sampled = [x for x in map(json.loads, path.read_text().splitlines()) if x["type"] == "sampled"]
    assert [line["exchanges"] for line in sampled] == [{"Produce": 2, "Fetch": 1}]


def test_a_log_is_never_overwritten(tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()
    log = FrameLog(loop, Stats(), Decoder(), "test")
    log.start(tmp_path / "frames.jsonl", 1, 1)
    with pytest.raises(FileExistsError):
        log.start(tmp_path / "frames.jsonl", 1, 1)
    log.stop("test")
    loop.close()


def records(*, control: bytes | None = None, **producer: Any) -> bytes:
    from kafka.record.default_records import DefaultRecordBatchBuilder

    fields = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 5} | producer
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=True, batch_size=10_000, **fields
    )
    for offset in range(1 if control else 3):
        builder.append(offset, timestamp=1, key=control, value=b"v", headers=[])
    data = builder.build()
    if control:
        data[22] |= 0x20  # set the control-batch bit of the attributes
    return bytes(data)


def test_facts_of_a_produce_request_and_its_response() -> None:
    from kafka.protocol.producer import ProduceRequest, ProduceResponse

    topic = ProduceRequest.TopicProduceData
    part = topic.PartitionProduceData(index=4, records=records())
    request = ProduceRequest(
        transactional_id="t",
        acks=-1,
        timeout_ms=1,
        version=9,
        topic_data=[topic(name="a", partition_data=[part])],
    )
    batch = BatchFields(
        topic="a",
        partition=4,
        count=3,
        bytes=len(records()),
        producer_id=7,
        epoch=2,
        base_sequence=5,
        transactional=True,
    )
    assert Decoder().request(0, 9, framed(request)) == Facts(
        transactional_id="t", acks=-1, request_timeout_ms=1, producer_id=7, epoch=2, batches=[batch]
    )

    answer = ProduceResponse.TopicProduceResponse
    refused = answer.PartitionProduceResponse(
        index=4, error_code=47, base_offset=-1, record_errors=[], error_message=None
    )
    response = ProduceResponse(responses=[answer(name="a", partition_responses=[refused])], version=9)
    facts = Decoder().response(0, 9, framed(response))
    assert facts.refusals == ["INVALID_PRODUCER_EPOCH"]


def test_facts_of_a_fetch_response_have_topic_names_from_metadata() -> None:
    import uuid

    from kafka.protocol.consumer import FetchResponse
    from kafka.protocol.metadata import MetadataResponse

    ident = uuid.uuid4()
    topic = FetchResponse.FetchableTopicResponse
    part = topic.PartitionData(
        partition_index=1,
        error_code=0,
        high_watermark=9,
        last_stable_offset=8,
        log_start_offset=0,
        aborted_transactions=[topic.PartitionData.AbortedTransaction(producer_id=7, first_offset=3)],
        records=records() + records(control=b"\0\0\0\1"),
        preferred_read_replica=-1,
    )
    response = framed(FetchResponse(responses=[topic(topic_id=ident, partitions=[part])], version=13))
    decoder = Decoder()
    assert decoder.response(1, 13, response).partitions[0].topic == f"id:{ident}"

    named = MetadataResponse.MetadataResponseTopic(error_code=0, name="a", topic_id=ident, partitions=[])
    metadata = MetadataResponse(brokers=[], cluster_id="c", controller_id=1, topics=[named], version=12)
    decoder.response(3, 12, framed(metadata))
    facts = decoder.response(1, 13, response)
    assert facts.partitions == [
        PartitionFields(
            topic="a", partition=1, high_watermark=9, last_stable_offset=8, log_start=0, aborted=[(7, 3)]
        )
    ]
    assert [(b.topic, b.count, b.marker) for b in facts.batches] == [("a", 3, None), ("a", 1, "commit")]


@pytest.mark.parametrize("version", [3, 4])
def test_facts_of_both_shapes_of_add_partitions(version: int) -> None:
    from kafka.protocol.producer import AddPartitionsToTxnRequest as Request

    if version == 3:
        topic = Request.AddPartitionsToTxnTopic(name="a", partitions=[0, 2])
        request = Request(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=7,
            v3_and_below_producer_epoch=1,
            v3_and_below_topics=[topic],
            version=3,
        )
    else:
        transaction = Request.AddPartitionsToTxnTransaction
        topic = transaction.AddPartitionsToTxnTopic(name="a", partitions=[0, 2])
        request = Request(
            transactions=[
                transaction(
                    transactional_id="t", producer_id=7, producer_epoch=1, verify_only=False, topics=[topic]
                )
            ],
            version=4,
        )
    verified = VerifiedTransaction(transactional_id="t", producer_id=7, epoch=1, verify_only=False)
    assert Decoder().request(24, version, framed(request)) == Facts(
        transactional_id="t",
        producer_id=7,
        epoch=1,
        partitions=[PartitionFields(topic="a", partition=0), PartitionFields(topic="a", partition=2)],
        transactions=[verified] if version == 4 else [],
    )


def test_facts_of_a_coordinator_lookup() -> None:
    from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["t"], version=4)
    assert Decoder().request(10, 4, framed(request)).transactional_id == "t"
    coordinator = FindCoordinatorResponse.Coordinator(key="t", node_id=3, host="h", port=1, error_code=15)
    response = FindCoordinatorResponse(coordinators=[coordinator], version=4)
    facts = Decoder().response(10, 4, framed(response))
    assert facts.coordinators == [Coordinator(key="t", broker=3, error=facts.refusals[0])]


def test_frames_are_joined_to_the_operation_that_was_open(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "p1.jsonl", run="r", client="p1", role="producer") as history:
        history.producer(1, [("a", 0)], transactional_id="t")
        outer = history.invoke("send", producer=1)
        before = time.monotonic_ns()
        inner = history.invoke("commit", producer=1)
        inside = time.monotonic_ns()
        history.info(inner, Error(code=-1, name="x"))
        history.ok(outer)
        between = time.monotonic_ns()
        never = history.invoke("abort", producer=1)
        after = time.monotonic_ns()
    operations = Operations(tmp_path)

    def joined(mono: int, client_id: str = "p1", tid: str | None = None) -> int | None:
        frame = Frame(
            n=1,
            conn=1,
            broker=1,
            side="request",
            key=26,
            api="EndTxn",
            version=1,
            correlation=1,
            bytes=1,
            client_id=client_id,
            facts=Facts(transactional_id=tid),
            mono=mono,
            wall=0,
        )
        operation = operations.of(frame)
        return operation.op if operation else None

    assert [joined(before), joined(inside), joined(after)] == [outer, inner, never]
    assert joined(inside, "librdkafka", "t") == inner  # the operation is found by the transactional id
    assert joined(inside, "stranger", "u") is None
    assert joined(0) is None
    assert joined(between) is None


def test_frames_of_another_clock_are_not_joined(tmp_path: Path) -> None:
    HistoryWriter(tmp_path / "p1.jsonl", run="r", client="p1", role="producer").close()
    opening = FrameLogOpened(
        format=1,
        cluster="c",
        host="h",
        pid=1,
        clock="another boot",
        exchanges_per_s=1,
        most_bytes=1,
        mono=0,
        wall=0,
    )
    with pytest.raises(UsageError, match="another boot"):
        Operations(tmp_path, opening)


def test_the_hash_of_a_transactional_id_equals_javas() -> None:
    # Known values of Java's String.hashCode, without their sign. The hash of "polygenelubricants" is the
    # smallest int, which becomes 0.
    assert [java_hash(s) for s in ("", "a", "hello", "polygenelubricants")] == [0, 97, 99162322, 0]
    assert java_hash("orders705") % 50 == 13  # a Kafka 4.3.1 broker chose this partition


def test_a_decoded_line_equals_the_encoded_one() -> None:
    closed = frame_lines.ConnectionClosed(
        conn=1,
        broker=2,
        request=frame_lines.ByteAccount(received=3, sent=3),
        response=frame_lines.ByteAccount(),
        mono=1,
        wall=2,
    )
    assert msgspec.json.decode(msgspec.json.encode(closed), type=frame_lines.Line) == closed
