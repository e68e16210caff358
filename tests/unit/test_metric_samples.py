"""Samples of metrics: the file of a run, the names of the metrics, and their curves."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cluster.broker_metrics import METRICS, PRODUCER_IDS, UNDER_MIN_ISR, Reading, errors, named
from harness.evidence.metric_samples import FILE, SampleWriter, growth, read_samples
from harness.report.metric_curves import metric_curves
from harness.report.timeline_data import TimelineData
from harness.report.timeline_svg import draw_timeline

SECOND = 1_000_000_000
ISR_ERROR = "error Produce NOT_ENOUGH_REPLICAS"


def write(
    directory: Path, *samples: tuple[float, dict[str, dict[str, float]], dict[str, dict[str, float]]]
) -> None:
    with SampleWriter(directory) as writer:
        for at, brokers, clients in samples:
            writer.write(int(at * SECOND), brokers, clients, {})


def test_only_values_that_have_changed_are_written(tmp_path: Path) -> None:
    first = {"kafka-1": {"a": 1.0, "b": 2.0}}
    second = {"kafka-1": {"a": 1.0, "b": 3.0}}
    write(tmp_path, (1, first, {}), (2, first, {}), (3, second, {"t-1": {"a": 1.0}}))

    assert [(s.brokers, s.clients) for s in read_samples(tmp_path)] == [
        (first, {}),
        ({}, {}),
        ({"kafka-1": {"b": 3.0}}, {"t-1": {"a": 1.0}}),
    ]


def test_a_run_without_samples_has_none_and_a_cut_line_is_left_out(tmp_path: Path) -> None:
    assert list(read_samples(tmp_path)) == []
    write(tmp_path, (1, {"kafka-1": {"a": 1.0}}, {}))
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"at": 2, "brok')
    assert [sample.at for sample in read_samples(tmp_path)] == [SECOND]


@pytest.mark.parametrize(("before", "now", "grown"), [(None, 3, 3), (2, 5, 3), (5, 2, 2), (5, 5, 0)])
def test_a_counter_that_is_lower_has_begun_again(before: float | None, now: float, grown: float) -> None:
    assert growth(before, now) == grown


def test_mbeans_get_their_names_whatever_the_order_of_their_keys() -> None:
    values = {
        "kafka.server:name=ProducerIdCount,type=ReplicaManager#Value": 4,
        "kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount#Value": 1,
        "kafka.network:error=NOT_ENOUGH_REPLICAS,request=Produce,name=ErrorsPerSec,type=X#Count": 7,
        "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=EndTxn,error=NONE#Count": 9,
    }
    assert named(values) == {PRODUCER_IDS: 4, UNDER_MIN_ISR: 1, ISR_ERROR: 7, "requests EndTxn": 9}
    assert len({metric.name for metric in METRICS}) == len(METRICS)


def test_errors_are_those_of_the_requests_of_producers() -> None:
    values = {ISR_ERROR: 7.0, "error Fetch NOT_LEADER_OR_FOLLOWER": 1.0, "requests Produce": 9.0}
    assert errors(values) == {ISR_ERROR: 7.0}
    assert Reading({"kafka-1": values, "kafka-2": {ISR_ERROR: 1.0}}, {}).total()[ISR_ERROR] == 8


def test_curves_are_rates_over_all_brokers_and_leave_out_what_is_older_than_the_run(tmp_path: Path) -> None:
    old = {"kafka-1": {ISR_ERROR: 100.0, PRODUCER_IDS: 5.0}, "kafka-2": {PRODUCER_IDS: 7.0}}
    write(
        tmp_path,
        (10, old, {"t-1": {"request retries": 0.0}}),
        (12, {**old, "kafka-2": {ISR_ERROR: 4.0, PRODUCER_IDS: 8.0}}, {"t-1": {"request retries": 6.0}}),
        (14, {"kafka-1": {ISR_ERROR: 2.0, PRODUCER_IDS: 5.0}}, {"t-1": {"request retries": 6.0}}),
    )
    curves = metric_curves(tmp_path, 10 * SECOND)

    assert curves.counted == {("Produce", "NOT_ENOUGH_REPLICAS"): 4 + 2}
    assert curves.errors == {"NOT_ENOUGH_REPLICAS": [(0, 0), (2, 2), (4, 1)]}
    assert curves.retries["request retries"] == [(2, 3), (4, 0)]
    assert curves.producer_ids == [(0, 12), (2, 13), (4, 13)]


def test_the_timeline_draws_metrics_only_if_there_are_any(tmp_path: Path) -> None:
    series = TimelineData(seconds=20, isr=[(0, 3), (20, 2)])
    assert "producer ids" not in draw_timeline(series, metrics=metric_curves(tmp_path, 0))
    write(
        tmp_path,
        (1, {"kafka-1": {PRODUCER_IDS: 5.0}}, {}),
        (3, {"kafka-1": {PRODUCER_IDS: 5.0, ISR_ERROR: 1.0}}, {}),
    )
    drawn = draw_timeline(series, metrics=metric_curves(tmp_path, 0))
    assert "producer ids of brokers" in drawn
    assert "NOT_ENOUGH_REPLICAS" in drawn
