"""The sequence diagram of a frame log: participants, the order of messages, and marks such as `retry`."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.base.errors import UsageError
from harness.base.events import Started
from harness.report.diagram import diagram_file
from harness.report.diagram.diagram_file import draw_mermaid
from harness.report.diagram.sequence import Sequence, SequenceFilter, build_sequence
from harness.report.diagram.svg import draw_svg
from harness.tap.coordinator_entries import CoordinatorEntry
from harness.tap.decoded_fields import BatchFields, Coordinator, Facts, PartitionFields
from harness.tap.frame_lines import Frame, FrameLogOpened, Line, Sampled, Touch

OPEN = FrameLogOpened(
    format=1, cluster="c", host="h", pid=1, clock="k", exchanges_per_s=1, most_bytes=1, mono=0, wall=0
)


class Log:
    """A frame log in memory, with one second between its lines."""

    def __init__(self) -> None:
        self.lines: list[Line] = [OPEN]
        self.now = 0

    def at(self) -> dict[str, int]:
        self.now += 1_000_000_000
        return {"mono": self.now, "wall": self.now}

    def frame(self, n: int, side: str, api: str, facts: Facts, **more: Any) -> None:
        fields: dict[str, Any] = {"client_id": "p1", "conn": 1, "broker": 1} | more
        self.lines.append(
            Frame(
                n=n,
                side=side,
                key=0,
                api=api,
                version=1,
                correlation=n,
                bytes=1,
                facts=facts,  # type: ignore[arg-type]
                **fields,
                **self.at(),
            )
        )

    def ask(self, n: int, api: str, asked: Facts, answered: Facts, **more: Any) -> None:
        self.frame(n, "request", api, asked, **more)
        self.frame(n, "response", api, answered, **more)

    def touch(self, n: int, did: str, **more: Any) -> None:
        fields: dict[str, Any] = {"conn": 1, "broker": 1} | more
        self.lines.append(Touch(rule="r", verb="hold", did=did, n=n, **fields, **self.at()))

    def sequence(self, *entries: CoordinatorEntry, **chosen: Any) -> Sequence:
        return build_sequence(self.lines, entries, None, SequenceFilter(**chosen))


def end(committed: bool = True) -> Facts:
    return Facts(transactional_id="t", producer_id=7, epoch=0, committed=committed)


def produce(sequence: int) -> Facts:
    batch = BatchFields(
        topic="a", partition=0, count=2, bytes=9, producer_id=7, epoch=0, base_sequence=sequence
    )
    return Facts(producer_id=7, epoch=0, batches=[batch])


def arrows(sequence: Sequence) -> list[tuple[str, str, str, str]]:
    return [(step.source, step.target, step.text, step.mark) for step in sequence.messages]


def test_messages_are_numbered_and_clients_come_before_brokers() -> None:
    log = Log()
    log.ask(
        1, "FindCoordinator", Facts(transactional_id="t"), Facts(coordinators=[Coordinator(key="", broker=2)])
    )
    log.ask(2, "Produce", produce(0), Facts(partitions=[PartitionFields(topic="a", partition=0, offset=5)]))
    log.ask(3, "Heartbeat", Facts(), Facts())

    sequence = log.sequence()

    assert arrows(sequence) == [
        ("p1", "broker 1", "FindCoordinator of t", ""),
        ("broker 1", "p1", "broker 2", ""),
        ("p1", "broker 1", "Produce a-0 seq 0-1 pid 7 epoch 0", ""),
        ("broker 1", "p1", "written: a-0 at offset 5", ""),
    ]
    assert [step.number for step in sequence.messages] == [1, 2, 3, 4]
    assert sequence.roles == {"p1": ["producer"], "broker 1": ["leader of a-0"]}


def test_a_request_is_a_retry_unless_an_equal_one_was_answered_without_error() -> None:
    log = Log()
    log.ask(1, "EndTxn", end(), Facts())
    log.ask(2, "EndTxn", end(), Facts(error="CONCURRENT_TRANSACTIONS"))  # EndTxn of the next transaction
    log.frame(3, "request", "EndTxn", end())
    log.frame(4, "request", "EndTxn", end())

    assert [(s.text.partition(" epoch 0")[2], s.mark) for s in log.sequence().messages if not s.answer] == [
        ("", ""),
        ("", ""),
        (" (retry of 3)", "retry"),
        (" (retry of 5)", "retry"),
    ]
    assert [s.mark for s in log.sequence().messages if s.answer] == ["", "refused"]


def test_frames_that_a_fault_hit_go_through_the_tap() -> None:
    log = Log()
    log.frame(1, "request", "EndTxn", end(), fate="held")
    log.ask(2, "EndTxn", end(), Facts(), conn=2)
    log.touch(1, "released")
    log.frame(1, "response", "EndTxn", Facts(), fate="cut")
    log.frame(3, "request", "EndTxn", end(), conn=3, fate="lost")
    log.ask(4, "EndTxn", end(), Facts(), conn=4, fate="copy")

    text = "EndTxn COMMIT t pid 7 epoch 0"
    assert arrows(log.sequence()) == [
        ("p1", "wire tap", f"{text} (held)", "fault"),
        ("p1", "broker 1", f"{text} (retry of 1)", "retry"),
        ("broker 1", "p1", "ok", ""),
        ("wire tap", "broker 1", f"released: {text}", "fault"),
        ("broker 1", "wire tap", "ok (its client was cut off)", "fault"),
        ("p1", "wire tap", f"{text} (lost)", "fault"),
        ("wire tap", "broker 1", f"{text} (sent again by the tap)", "fault"),
        ("broker 1", "wire tap", "ok", ""),
    ]


def test_fetches_are_shown_if_they_return_records() -> None:
    log = Log()
    asked = Facts(isolation="read_committed", partitions=[PartitionFields(topic="a", partition=0, offset=3)])
    stable = PartitionFields(topic="a", partition=0, last_stable_offset=5, aborted=[(7, 3)])
    marker = BatchFields(
        topic="a", partition=0, count=1, bytes=1, producer_id=7, base_offset=4, marker="abort"
    )
    log.ask(1, "Fetch", asked, Facts(partitions=[stable]))
    log.ask(2, "Fetch", asked, Facts(partitions=[stable], batches=[marker]))

    assert [text for _, _, text, _ in arrows(log.sequence())] == [
        "Fetch a-0 from 3 read_committed",
        "marker ABORT of pid 7 in a-0 at 4, aborted in a-0: pid 7 from 3; a-0 LSO 5",
    ]
    assert len(log.sequence(everything=True).messages) == 4


def test_log_entries_are_placed_between_the_frames_by_time() -> None:
    log = Log()
    log.ask(1, "EndTxn", end(), Facts())
    second = 1_000_000_000
    entries = [
        CoordinatorEntry(kind="ids", wall=second // 2, node=11, producer_id=1000, what="1"),
        CoordinatorEntry(
            kind="decision", wall=second + 1, node=1, producer_id=7, transactional_id="t", what="Ongoing"
        ),
        CoordinatorEntry(
            kind="marker", wall=second + 2, node=2, topic="a", partition=0, producer_id=7, what="commit"
        ),
    ]

    sequence = log.sequence(*entries)

    assert [(source, target, mark) for source, target, _, mark in arrows(sequence)] == [
        ("controller 11", "broker 1", "log"),
        ("p1", "broker 1", ""),
        ("broker 1", "broker 1", "log"),
        ("broker 1", "broker 2", "log"),  # the marker, from coordinator to leader
        ("broker 1", "p1", ""),
    ]
    assert sequence.roles["controller 11"] == ["active controller"]
    assert list(sequence.roles) == ["p1", "broker 1", "broker 2", "controller 11"]


def test_copies_are_placed_before_the_answer_that_waited_for_them() -> None:
    log = Log()
    place = PartitionFields(topic="a", partition=0, offset=5)
    log.ask(1, "Produce", produce(0), Facts(partitions=[place]))
    copies = [
        CoordinatorEntry(kind="copy", wall=0, node=1, topic="a", partition=0, offset=offset, what=follower)
        for offset, follower in ((5, "2"), (5, "3"), (9, "2"))
    ]

    sequence = log.sequence(*copies)

    assert [(source, target, text) for source, target, text, _ in arrows(sequence)][1:] == [
        ("broker 1", "broker 2", "copy of a-0 at 5"),
        ("broker 1", "broker 3", "copy of a-0 at 5"),
        ("broker 1", "p1", "written: a-0 at offset 5"),
    ]
    assert sequence.roles["broker 3"] == ["follower of a-0"]


def test_the_filter_selects_by_window_by_transactional_id_and_by_count() -> None:
    log = Log()
    log.ask(1, "EndTxn", end(), Facts())
    log.ask(2, "EndTxn", Facts(transactional_id="u", committed=True), Facts(), client_id="p2", conn=2)
    log.lines.append(Sampled(since=0, exchanges={"Produce": 9}, **log.at()))

    assert {step.source for step in log.sequence(transactional_id="u").messages} == {"p2", "broker 1"}
    assert len(log.sequence(window=(0, 1.5)).messages) == 1
    sequence = log.sequence(most=3)
    assert (len(sequence.messages), sequence.left_out, sequence.not_logged) == (3, 1, 9)


def hostile_sequence(name: str) -> Sequence:
    log = Log()
    facts = Facts(transactional_id=name, producer_id=7, epoch=0, committed=False)
    log.ask(1, "EndTxn", facts, Facts(error="PRODUCER_FENCED"), client_id=name)
    log.ask(2, "EndTxn", facts, Facts(), client_id=name)
    return log.sequence()


def test_names_cannot_break_the_text_or_the_drawing() -> None:
    sequence = hostile_sequence('a;b#c<d>&"e\n-->>f')
    text = draw_mermaid(sequence)
    lines = text.splitlines()
    assert lines[0] == "sequenceDiagram"
    assert len(lines) == 1 + 2 + 4
    assert all(sign not in text.replace("#59;", "").replace("#35;", "") for sign in (";b", "#c"))
    ElementTree.fromstring(draw_svg(sequence))


@settings(deadline=None, max_examples=30)
@given(st.text(max_size=20))
def test_any_name_gives_a_drawing_that_is_xml(name: str) -> None:
    drawing = draw_svg(hostile_sequence(name))
    root = ElementTree.fromstring(drawing)
    assert root.tag.endswith("svg")


def test_a_run_directory_is_drawn_without_a_cluster(tmp_path: Path) -> None:
    log = Log()
    log.ask(1, "EndTxn", end(), Facts())
    (tmp_path / "frames.jsonl").write_bytes(
        b"".join(msgspec.json.encode(x) + b"\n" for x in log.lines) + b'{"torn'
    )

    drawn, files = diagram_file.write(tmp_path)

    assert drawn.text == "2 steps between 2 participants"
    assert [path.name for path in files] == ["diagram.mmd", "diagram.svg"]
    assert files[0].read_text().count("EndTxn COMMIT t") == 1
    with pytest.raises(UsageError, match="no frame log"):
        diagram_file.draw(tmp_path / "elsewhere")


PARSE = """
import { JSDOM } from 'jsdom';
import { readFileSync } from 'node:fs';
const dom = new JSDOM('');
globalThis.window = dom.window;
globalThis.document = dom.window.document;
const { default: mermaid } = await import('mermaid');
for (const text of JSON.parse(readFileSync(0, 'utf8'))) {
  const found = await mermaid.parse(text);
  if (found.diagramType !== 'sequence') throw new Error(found.diagramType);
}
"""
NAMES = [
    "plain",
    "a;b",
    "a#b",
    "end",
    "a:b",
    "-->>",
    "<br/>",
    '"quoted"',
    "%%",
    "größe",
    "{x}",
    "alt",
    "\t",
    "a\\nb",
]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_mermaids_own_parser_accepts_the_text(tmp_path: Path) -> None:
    npm, node = shutil.which("npm"), shutil.which("node")
    assert npm, "this check runs Mermaid's own parser: install Node.js"
    assert node
    subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "mermaid@11.12.0", "jsdom@26.1.0"],
        cwd=tmp_path,
        check=True,
        timeout=500,
    )
    (tmp_path / "parse.mjs").write_text(PARSE)
    texts = [draw_mermaid(hostile_sequence(name)) for name in NAMES]
    subprocess.run(
        [node, "parse.mjs"], cwd=tmp_path, input=json.dumps(texts), text=True, check=True, timeout=60
    )


def test_the_seconds_of_a_diagram_are_those_of_the_run(tmp_path: Path) -> None:
    """The run began 2 s before the frame log, whose frames are at 1, 2, 3 and 4 s of the log."""
    log = Log()
    log.lines = [msgspec.structs.replace(OPEN, mono=2_000_000_000)]
    for number in (1, 2):
        log.ask(number, "EndTxn", end(), Facts())
    (tmp_path / "frames.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in log.lines))

    def drawn(first: float, last: float) -> int:
        return len(diagram_file.draw(tmp_path, SequenceFilter(window=(first, last))).sequence.messages)

    assert drawn(0.0, 2.5) == 2  # without the events of the run: seconds after the start of the frame log
    started = Started(scenario="s", run="r", seed=1, directory="d", environment={}, mono=1)
    (tmp_path / "events.jsonl").write_bytes(msgspec.json.encode(started) + b"\n")
    assert (drawn(0.0, 2.5), drawn(2.5, 4.5), drawn(4.5, 9.0)) == (0, 2, 2)
