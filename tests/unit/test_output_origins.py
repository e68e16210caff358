"""The origin of an application's outputs, from stored files alone: instance, time, transaction and frames."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.evidence.app_list import AppList, AppStart
from harness.evidence.checkers.model import AppContract, Example, Expect, OffsetRef, OutputContract, Pipeline
from harness.evidence.history import HistoryOpened, Sample
from harness.evidence.log_audit import CoordinatorLog, LoggedBatch, LoggedState, PartitionLog
from harness.evidence.run_directory import RunDirectory, RunInfo
from harness.evidence.stored_logs import StoredLogs
from harness.report.output_origins import OutputOrigins

RUN = "r7k2m9qa"
START = 10**12
AHEAD = 10**18
"""Time of day minus the monotonic time, in nanoseconds."""
IDS = {7: "billing-app-1", 8: "billing-app-2", 9: "shared"}


def mono(second: float) -> int:
    return START + int(second * 1e9)


def wall_ms(second: float) -> int:
    return (mono(second) + AHEAD) // 1_000_000


def batch(first: int, last: int, pid: int, second: float, marker: Any = None) -> LoggedBatch:
    return LoggedBatch(first, last, pid, 0, -1 if marker else first, pid >= 0, marker, wall_ms(second))


LOG = [
    batch(0, 4, 7, 2.0),
    batch(5, 5, 7, 3.0, "commit"),
    batch(6, 9, 8, 9.0),
    batch(10, 10, 8, 10.0, "abort"),
    batch(11, 11, -1, 11.0),
    batch(12, 13, 9, 12.0),
]


def produced(second: float, conn: int, pid: int, sequence: int, count: int) -> dict[str, Any]:
    sent = {"topic": "invoices", "partition": 0, "count": count, "producer_id": pid, "epoch": 0}
    facts = {"batches": [sent | {"base_sequence": sequence}]}
    return frame(second, conn, "request", facts)


def answered(second: float, conn: int, offset: int) -> dict[str, Any]:
    place = {"topic": "invoices", "partition": 0, "offset": offset}
    return frame(second, conn, "response", {"partitions": [place]})


def frame(second: float, conn: int, side: str, facts: dict[str, Any]) -> dict[str, Any]:
    at = mono(second)
    return {"type": "frame", "mono": at, "conn": conn, "correlation": 1, "side": side, "api": "Produce"} | {
        "facts": facts
    }


FRAMES = [
    {"type": "open"},
    produced(8.9, 1, 8, 6, 4),
    produced(8.95, 2, 7, 900, 4),  # another batch
    answered(9.1, 1, 6),
    produced(10.5, 3, -1, -1, 1),
    answered(10.6, 3, 11),
]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    info = RunInfo(run=RUN, scenario="orders", seed=1, started="2026-01-02T03:04:05")
    run = RunDirectory.create(tmp_path, info)
    contract = AppContract(inputs=["orders"], outputs=[OutputContract(topic="invoices")], group="billing")
    run.write("expect.json", Expect(contract=contract))
    starts = [
        AppStart(instance="app-1", number=1, started=mono(1), ended="by a fault", at=mono(11.5)),
        AppStart(instance="app-2", number=1, started=mono(1)),
    ]
    run.write("app.json", AppList(run=RUN, clock="c", starts=starts))
    states = [LoggedState(n, wall_ms(1), IDS[n], n, 0, 60_000, "Ongoing", ()) for n in (7, 8, 9)]
    log = PartitionLog(("invoices", 0), 0, LOG)
    stored = StoredLogs(run=RUN, partitions=[log], coordinators=[CoordinatorLog(states)])
    run.write("audit.json", msgspec.json.encode(stored))
    times = {"mono": START, "wall": START + AHEAD}
    opened = HistoryOpened(
        format=1, run=RUN, client="observer", role="observer", host="h", pid=1, clock="c", **times
    )
    samples = [
        Sample(group=group, positions=[("orders", 0, position)], mono=mono(at), wall=0)
        for at, position, group in (
            (5, 3, "billing"),
            (5, 99, "others"),
            (6, 3, "billing"),
            (7, 8, "billing"),
        )
    ]
    run.histories.mkdir(exist_ok=True)
    lines = [msgspec.json.encode(line) for line in (opened, *samples)]
    (run.histories / "observer.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    run.write("frames.jsonl", "".join(f"{json.dumps(line)}\n" for line in FRAMES) + '{"api":"Produce", torn')
    (run.path / "logs").mkdir()
    run.write("logs/app-2.log", "started\n")
    return run


def heads(run: RunDirectory, *offsets: int, topic: str = "invoices") -> list[str]:
    example = Example(what="x", offsets=[OffsetRef(topic, 0, offset, offset) for offset in offsets])
    return [origin.head + origin.end for origin in OutputOrigins(run, [example], START).of(example)]


def test_outputs_have_their_instance_time_and_transaction_the_earliest_first(run: RunDirectory) -> None:
    assert heads(run, 7, 2) == [
        "invoices-0 offset 2: written by app-1 at 2.000 s, transactional id billing-app-1, producer id 7 "
        "epoch 0, commit marker at 3.000 s",
        "invoices-0 offset 7: written by app-2 at 8.900 s, transactional id billing-app-2, producer id 8 "
        "epoch 0, abort marker at 10.000 s",
    ]


def test_an_output_is_linked_to_its_frames_and_to_the_log_of_its_instance(run: RunDirectory) -> None:
    example = Example(what="x", offsets=[OffsetRef("invoices", 0, 7, 7)])
    (origin,) = OutputOrigins(run, [example], START).of(example)
    assert origin.span == (8.9, 8.9), "the time of the request, which is exact"
    assert [str(line) for line in origin.lines] == [
        '  <a href="frames.jsonl">frames.jsonl:2 Produce request at 8.900 s</a>',
        '  <a href="frames.jsonl">frames.jsonl:4 Produce response at 9.100 s</a>',
        '  <a href="logs/app-2.log">logs/app-2.log</a>, its output',
    ]


def test_a_producer_without_an_id_is_found_by_the_offset_of_its_answer(run: RunDirectory) -> None:
    assert heads(run, 11) == ["invoices-0 offset 11: written by app-1 or app-2 at 10.500 s"]


def test_the_only_instance_that_ran_wrote_an_output_whose_id_names_none(run: RunDirectory) -> None:
    assert heads(run, 12) == [
        "invoices-0 offset 12: written by app-2 at 12.000 s, transactional id shared, producer id 9 epoch 0, "
        "without a marker"
    ]


@pytest.mark.parametrize(
    ("offset", "head"),
    [
        (2, "group billing passed orders-0 offset 2 between 5.0 s and 5.0 s"),
        (4, "group billing passed orders-0 offset 4 between 6.0 s and 7.0 s"),
        (8, "group billing stopped in orders-0 at offset 8, since 7.0 s"),
    ],
)
def test_an_input_without_output_has_the_time_at_which_the_group_passed_it(
    run: RunDirectory, offset: int, head: str
) -> None:
    assert heads(run, offset, topic="orders") == [head]


def test_of_several_inputs_the_first_one_has_a_time(run: RunDirectory) -> None:
    example = Example(what="x", offsets=[OffsetRef("orders", 0, 2, 4)])
    (origin,) = OutputOrigins(run, [example], START).of(example)
    assert origin.head == "group billing passed orders-0 offset 2 between 5.0 s and 5.0 s"


def test_without_stored_logs_the_frames_remain(run: RunDirectory) -> None:
    (run.path / "audit.json").unlink()
    assert heads(run, 7, 2) == [
        "invoices-0 offset 2: written",
        "invoices-0 offset 7: written by app-1 or app-2 at 8.900 s",
    ]


@pytest.mark.parametrize("name", ["audit.json", "app.json", "expect.json", "history/observer.jsonl"])
def test_a_damaged_file_is_left_out(run: RunDirectory, name: str) -> None:
    (run.path / name).write_text("{")
    heads(run, 7)
    heads(run, 4, topic="orders")


def test_outputs_of_a_pipeline_have_origins_too(run: RunDirectory) -> None:
    of_app = heads(run, 7, 2), heads(run, 3, topic="orders")
    run.write("expect.json", Expect(pipeline=Pipeline(group="billing", inputs=["orders"])))
    assert (heads(run, 7, 2), heads(run, 3, topic="orders")) == of_app


def test_offsets_of_other_topics_and_ranges_have_no_origin(run: RunDirectory) -> None:
    assert heads(run, 1, topic="audit") == []
    example = Example(what="x", offsets=[OffsetRef("invoices", 0, 1, 4)])
    assert OutputOrigins(run, [example], START).of(example) == []
    assert OutputOrigins(run, [example], 0).of(example) == [], "the start of the run is not known"
