"""Spark's findings on pipelines: they equal those of the checkers, and include every planted violation."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from harness.cluster.cluster import Cluster
from harness.evidence.checkers import offsets, pipeline_outputs
from harness.evidence.checkers.model import Anomaly, Evidence, Expect, Pipeline
from harness.evidence.checkers.verdict import Judgement, judge
from harness.evidence.history import history_files
from harness.evidence.ledger import fold
from harness.evidence.observation import Observation
from harness.evidence.record import Identity, Origin, encode
from harness.witness.plain_consumer import group_positions, observe_topics
from harness.witness.spark.topic_verification import WITH_LEDGER, verify_topics
from spark_jobs import scan_rows as row
from spark_jobs.crosscheck_pipeline import pipeline_findings
from spark_jobs.expected_words import frame_of
from spark_jobs.scan_pass import Wanted, scan_words
from tests.planted import cases_systems
from tests.planted.tiny import Tiny, _identity, _offsets
from tests.property.pipelines import PLANTINGS, Pipe
from tests.spark.generated import RUN, Log, by_words
from tests.spark.test_planted_cluster import Planted, of_stream

pytestmark = pytest.mark.spark

NAMES = ("processed_twice", "never_processed", "offset_drift")
MANY = 300


def drawn(seed: int) -> Tiny:
    """Draw a pipeline with alternating workers and zero to two flaws."""
    rng = random.Random(seed)
    pipe = Pipe(inputs=rng.choice([2, 60, 300, 700]))
    for _ in range(rng.randint(1, 6)):
        if left := pipe.inputs - pipe.position:
            end = rng.choice(["commit ok", "commit ok", "abort ok"])
            pipe.process(rng.choice([7, 8]), min(rng.randint(1, 200), left), end)
    if not pipe.position:
        pipe.process(7, 1, "commit ok")
    chosen = rng.sample(sorted(PLANTINGS), rng.choice([0, 1, 1, 2]))
    # Plant never_processed last. It removes the name of the input from an output, and the other functions
    # need this name.
    for name in sorted(chosen, key=lambda name: name == "never_processed"):
        PLANTINGS[name][0](pipe, rng.randrange(1000))
    return pipe.case()


def cases() -> Iterator[Tiny]:
    for table in (cases_systems.CAUGHT, cases_systems.NEAR_MISSES):
        for group in table.values():
            for one in group.values():
                case = one[0] if isinstance(one, tuple) else one
                if case.expect.pipeline is not None:
                    yield case
    yield from map(drawn, range(60))


def log_of(case: Tiny, names: list[str], end: int | None) -> Log:
    log = Log(len(names))
    for index, name in enumerate(names):
        for offset, token in enumerate(_offsets(case.log[name])[:end]):
            if token not in ".?":
                identity = _identity(name, token)._replace(run=RUN)
                log.rows.append((index, offset, encode(identity)))
    return log


def rows_of(log: Log, case: int) -> pa.Table:
    rows = pa.Table.from_batches(list(scan_words(Wanted(RUN))(log.batches(97))), row.SCHEMA)
    return rows.append_column("case", pa.array(np.full(rows.num_rows, case, np.int32)))


def by_checkers(case: Tiny, observation: Observation) -> dict[str, int]:
    evidence = case.evidence()
    evidence.observations[0] = observation
    found: dict[str, int] = {}
    for result in (pipeline_outputs.check(evidence), offsets.check(evidence)):
        for one in result.anomalies:
            if one.name in NAMES and one.unit != "positions":
                found[one.name] = one.count
    return found


def test_findings_equal_the_pure_checkers(spark: SparkSession) -> None:
    all_cases, outputs, inputs, parts, wanted = list(cases()), [], [], [], []
    for i, case in enumerate(all_cases):
        assert case.expect.pipeline is not None
        log = log_of(case, list(case.log), None)
        observation = by_words(log, 97)
        plain = case.evidence().observations[0]
        assert observation.meta.twice.count == plain.meta.twice.count
        assert [(s.seq, s.offset, s.other_offset) for s in observation.meta.twice.examples] == [
            (s.seq, s.offset, s.other_offset) for s in plain.meta.twice.examples
        ]
        observation.meta.windows = plain.meta.windows
        wanted.append(by_checkers(case, observation))
        outputs.append(rows_of(log, i))
        inputs.append(rows_of(log_of(case, ["i"], case.consumed), i))
        parts.append((i, case.expect.pipeline.outputs))
    frames = (frame_of(spark, outputs), frame_of(spark, inputs))
    found: list[dict[str, int]] = [{} for _ in all_cases]
    for one in pipeline_findings(*frames, spark.createDataFrame(parts, "case int, expected int")).collect():
        found[one["case"]][one["name"]] = one["count"]
    assert found == wanted
    assert {name for one in found for name in one} == set(NAMES)
    assert len(found) >= 75
    assert sum(not one for one in found) >= 20


class Piped(NamedTuple):
    """The topics of a pipeline on the cluster, and the expectations that its verification checks."""

    planted: Planted
    expect: Expect


def produce(bootstrap: str, values: list[tuple[str, int, Identity]]) -> None:
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    for topic, partition, identity in values:
        producer.produce(
            topic,
            encode(identity),
            partition=partition,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert not failed


def history(folder: Path, run: str, producer: int, topic: str, sent: list[tuple[int, int, int]]) -> None:
    clocks = {"mono": 1, "wall": 1}
    opening = {"type": "open", "format": 1, "run": run, "client": f"p{producer}", "role": "producer"}
    declared = {"type": "producer", "producer": producer, "transactional_id": f"{run}-{producer}"}
    declared |= {"lanes": [(topic, 0), (topic, 1)]}
    asked = {"type": "invoke", "f": "commit", "op": 0, "producer": producer, "txn": 1, "sent": sent}
    lines = [{**opening, "host": "h", "pid": 1, "clock": "clock"}, declared, asked]
    lines.append({"type": "ok", "f": "commit", "op": 0})
    folder.mkdir(parents=True, exist_ok=True)
    text = msgspec.json.Encoder().encode_lines([{**line, **clocks} for line in lines])
    (folder / f"p{producer}.jsonl").write_bytes(text)


def plant(cluster: Cluster, folder: Path, *, flawed: bool) -> Piped:
    """Write the inputs and outputs of a pipeline, and the offsets that its group has committed.

    With `flawed`, some inputs have too many outputs, and one input has none. Ten inputs at the end of a
    partition have outputs, although the group's committed offset is still before these inputs.
    """
    run, bootstrap = uuid.uuid4().hex[:8], cluster.bootstrap("DIRECT")
    source, target, group = f"pipe-in-{run}", f"pipe-out-{run}", f"pipe-{run}"
    for topic in (source, target):
        cluster.create_topic(topic, 2)
    made = {
        (lane, seq): Identity(run, 7, lane, seq, 1, "c", Origin(1, lane, seq, 0, 7))
        for lane in (0, 1)
        for seq in range(MANY)
    }
    more: list[tuple[str, int, Identity]] = []
    if flawed:
        made[0, 256] = made[0, 256]._replace(origin=None)
        more = [
            (target, 0, Identity(run, 7, 0, MANY, 1, "c", Origin(1, 0, MANY - 1, 0, 7))),
            (target, 1, Identity(run, 8, 1, 0, 1, "c", Origin(1, 0, 255, 0, 8))),
            (target, 1, Identity(run, 8, 1, 1, 1, "c", Origin(1, 1, 3, 1, 8))),
        ]
    produce(bootstrap, [(source, lane, Identity(run, 1, lane, s, 1, "c")) for lane, s in made])
    produce(bootstrap, [*((target, lane, one) for (lane, _), one in made.items()), *more])
    positions = [TopicPartition(source, 0, MANY), TopicPartition(source, 1, MANY - 10 * flawed)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, positions)])[group].result(30)
    both = [(0, 0, MANY - 1), (1, 0, MANY - 1)]
    history(folder, run, 1, source, both)
    history(folder, run, 7, target, [(0, 0, MANY), (1, 0, MANY - 1)] if flawed else both)
    if flawed:
        history(folder, run, 8, target, [(1, 0, 1)])
    expect = Expect(pipeline=Pipeline(group=group, inputs=[source]))
    return Piped(Planted(run, [source, target], folder, bootstrap), expect)


def anomalies(judgement: Judgement) -> dict[str, Anomaly]:
    return {one.name: one for result in judgement.results for one in result.anomalies}


def proofs(one: Anomaly) -> list[tuple[str, list[tuple[str, int, int, int]]]]:
    return [(e.what, [(r.topic, r.partition, r.first, r.last) for r in e.offsets]) for e in one.examples]


WANTED = {"processed_twice": 3, "never_processed": 1, "offset_drift": 11}


def assert_named(found: dict[str, Anomaly], topics: list[str]) -> None:
    source, target = topics
    more = "input {} of producer 1 lane 0 has an output too many: part 0, first made at"
    assert {name: one.count for name, one in found.items()} == WANTED
    assert sorted(proofs(found["processed_twice"])) == [
        (f"{more.format(255)} {target}-0 offset 255", [(target, 1, MANY, MANY)]),
        (
            f"{more.format(299)} {target}-0 offset 299",
            [(target, 0, MANY, MANY), (target, 0, MANY - 1, MANY - 1)],
        ),
        ("inputs 3 of producer 1 lane 1 have outputs of part 1, but the pipeline makes only 1 per input", []),
    ]
    group = [(source, 0, MANY, MANY), (source, 1, MANY - 10, MANY - 10)]
    ((what, places),) = proofs(found["never_processed"])
    assert what.startswith("inputs 256 of producer 1 lane 0 are before the position of group")
    assert places == [*group, (source, 0, 256, 256)]
    assert [what.partition(" lane ")[0] for what, _ in proofs(found["offset_drift"])] == [
        "inputs 290-299 of producer 1",
        "inputs 256 of producer 1",
    ]


@pytest.mark.cluster
def test_batch_and_stream_find_the_errors_of_a_pipeline(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    planted, expect = plant(cluster, tmp_path / "flawed", flawed=True)
    found = verify_topics(
        planted.bootstrap, planted.topics, history=planted.history, expect=expect, session=spark
    )
    assert found.judgement is not None
    assert found.spark_findings == WANTED
    assert found.disagreements == []
    assert_named(anomalies(found.judgement), planted.topics)
    plain = verify_topics(
        planted.bootstrap, planted.topics, history=planted.history, expect=expect, reader="plain"
    )
    assert plain.judgement is not None
    assert_named(anomalies(plain.judgement), planted.topics)
    assert plain.shares == found.shares
    assert expect.pipeline is not None
    consumed = observe_topics(
        planted.bootstrap,
        expect.pipeline.inputs,
        planted.run,
        ends=group_positions(planted.bootstrap, expect.pipeline.group),
        group=expect.pipeline.group,
    )
    seen = of_stream(spark, planted, tmp_path / "stream", 400)
    wanted = Expect(properties=[*WITH_LEDGER, "pipeline"], pipeline=expect.pipeline)
    ledger = fold(history_files(planted.history))
    assert_named(anomalies(judge(Evidence(ledger, [seen, consumed], wanted))), planted.topics)


@pytest.mark.cluster
def test_a_correct_pipeline_raises_no_alarm(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    planted, expect = plant(cluster, tmp_path, flawed=False)
    found = verify_topics(
        planted.bootstrap, planted.topics, history=planted.history, expect=expect, session=spark
    )
    assert found.judgement is not None
    assert found.judgement.exit_code == 0, found.judgement.encode().decode()
    assert (found.spark_findings, found.disagreements) == ({}, [])
    compared = {result.property: result.compared for result in found.judgement.results}
    assert compared["pipeline"] == 2 * 2 * MANY - 2 * MANY
