"""Where the outputs of an application or a pipeline came from: who wrote a record, when, and in which frames.

The sources are the stored logs (audit.json), the starts of the instances (app.json), the frame log, and the
positions of the application's group that the observer sampled. A source that a run does not have is left out.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import msgspec
from markupsafe import Markup, escape

from harness.base.errors import HarnessError
from harness.base.partition_id import PartitionId, partition_name
from harness.base.unreadable import UNREADABLE
from harness.evidence.app_list import FILE as APP_FILE
from harness.evidence.app_list import AppList
from harness.evidence.checkers.model import Example, Expect, OffsetRef
from harness.evidence.history import HistoryFile, Sample, history_files
from harness.evidence.log_audit import LoggedBatch, PartitionLog
from harness.evidence.run_directory import RunDirectory
from harness.evidence.stored_logs import FILE as AUDIT_FILE
from harness.evidence.stored_logs import StoredLogs
from harness.report.html_template import link_to

T = TypeVar("T")

FRAMES: Final = "frames.jsonl"
OBSERVER: Final = "observer"
"""Name of the history with the sampled positions."""
_OUTPUTS_SHOWN: Final = 4
_FRAMES_SHOWN: Final = 4

Span = tuple[float, float]
"""First and last second of the run."""


class Origin(NamedTuple):
    """What is known about one output, or about the input that has none: its time, and lines of text.

    `end` continues the sentence of `head` with the end of the output's transaction, at the time `ended`.
    """

    span: Span | None
    head: str
    lines: list[Markup]
    end: str = ""
    ended: Span | None = None


class _Flow(NamedTuple):
    """Topics and group of an application or a pipeline. Without `outputs`, every other topic is an output."""

    group: str
    inputs: list[str]
    outputs: list[str] | None

    def is_output(self, topic: str) -> bool:
        """Return whether a topic has the outputs."""
        return topic not in self.inputs if self.outputs is None else topic in self.outputs


def _flow(expect: Expect) -> _Flow:
    """Return the flow that a run checks; one without topics if it checks none."""
    if (contract := expect.contract) is not None:
        return _Flow(contract.group, contract.inputs, [output.topic for output in contract.outputs])
    if (pipeline := expect.pipeline) is not None:
        return _Flow(pipeline.group, pipeline.inputs, None)
    return _Flow("", [], [])


class _Batch(msgspec.Struct):
    topic: str
    partition: int
    count: int = 0
    producer_id: int = -1
    epoch: int = -1
    base_sequence: int = -1


class _Answer(msgspec.Struct):
    topic: str
    partition: int
    offset: int | None = None
    error: str | None = None


class _Facts(msgspec.Struct):
    batches: list[_Batch] = []
    partitions: list[_Answer] = []


class _Frame(msgspec.Struct):
    """The fields of a Produce frame that this module reads."""

    mono: int = 0
    conn: int = -1
    correlation: int = -1
    side: str = ""
    api: str = ""
    facts: _Facts | None = None


@dataclass
class _Output:
    """One output record: the batch of the log that contains it, and the frames that carried it."""

    place: PartitionId
    offset: int
    batch: LoggedBatch | None = None
    frames: dict[int, str] = field(default_factory=dict)
    """Text of each frame by its line number."""
    sent: int = 0
    """Monotonic time of the first request that carried it; 0 if no frame shows it."""

    def is_in(self, batch: _Batch) -> bool:
        """Return whether a batch of a request is the one in the log."""
        if self.batch is None or self.batch.producer_id < 0:
            return False
        mine = (self.batch.producer_id, self.batch.epoch, self.batch.base_sequence)
        return mine == (batch.producer_id, batch.epoch, batch.base_sequence)


class OutputOrigins:
    """The origins of the outputs that examples of anomalies of an application or a pipeline name."""

    def __init__(self, run: RunDirectory, examples: Sequence[Example], start: int) -> None:
        self._run = run
        self._start = start
        self._examples = {id(example) for example in examples}
        self._flow = _flow(_read(run, "expect.json", Expect, Expect()))
        self._outputs: dict[tuple[PartitionId, int], _Output] = {}
        wanted = [ref for example in examples for ref in self._refs(example, inputs=False)]
        inputs = any(self._refs(example, inputs=True) for example in examples)
        if not start or not (wanted or inputs):
            return
        self._app = _read(run, APP_FILE, AppList, AppList(run="", clock=""))
        self._logs = _read(run, AUDIT_FILE, StoredLogs, StoredLogs(run=""))
        self._names = {
            state.producer_id: state.transactional_id
            for log in self._logs.coordinators
            for state in log.states
        }
        self._ahead = _clocks_apart(run)
        self._positions = _positions(run, self._flow.group)
        tables = {log.partition_id: log for log in self._logs.partitions}
        for ref in wanted:
            place = (ref.topic, ref.partition)
            batch = _batch_at(tables.get(place), ref.first)
            self._outputs[place, ref.first] = _Output(place, ref.first, batch)
        self._find_frames()

    def of(self, example: Example) -> list[Origin]:
        """Return the origin of each output that an example names, the earliest one first.

        For an example that names inputs only, return when the group's position passed them. An example that
        was not given to the constructor has no origins.
        """
        if id(example) not in self._examples or not self._start:
            return []
        found = [
            self._describe(output)
            for ref in self._refs(example, inputs=False)
            if (output := self._outputs.get(((ref.topic, ref.partition), ref.first)))
        ]
        if found:
            return sorted(found, key=lambda origin: origin.span or (0.0, 0.0))
        return [passed for ref in self._refs(example, inputs=True) for passed in self._passed(ref)]

    def _refs(self, example: Example, *, inputs: bool) -> list[OffsetRef]:
        """Return the offsets of single outputs that an example names, or those of its inputs."""
        flow = self._flow
        refs = [
            ref
            for ref in example.offsets
            if (ref.topic in flow.inputs if inputs else flow.is_output(ref.topic))
        ]
        return refs[:1] if inputs else [ref for ref in refs if ref.first == ref.last][:_OUTPUTS_SHOWN]

    def _seconds(self, mono: int) -> float:
        return (mono - self._start) / 1e9

    def _seconds_of_wall(self, at_ms: int) -> float | None:
        """Return the second of the run of a time of day in milliseconds; None if the clocks are unknown."""
        return None if self._ahead is None else self._seconds(at_ms * 1_000_000 - self._ahead)

    def _describe(self, output: _Output) -> Origin:
        at = self._seconds(output.sent) if output.sent else None
        batch, name = output.batch, ""
        if batch is not None:
            at = self._seconds_of_wall(batch.at_ms) if at is None else at
            name = self._names.get(batch.producer_id, "")
        instance = self._instance(name, at)
        parts = [f"{partition_name(output.place)} offset {output.offset}: written"]
        parts += [f"by {instance}"] if instance else []
        parts += [f"at {at:.3f} s"] if at is not None else []
        head = " ".join(parts)
        if name:
            head += f", transactional id {name}"
        if batch is not None and batch.producer_id >= 0:
            head += f", producer id {batch.producer_id} epoch {batch.epoch}"
        end, ended = self._end_of_transaction(output)
        shown = sorted(output.frames.items())[:_FRAMES_SHOWN]
        lines = [Markup("  ") + link_to(self._run.path, FRAMES, text) for _, text in shown]
        names = {start.instance for start in self._app.starts}
        if instance in names:
            log = f"logs/{instance}.log"
            lines.append(Markup("  ") + link_to(self._run.path, log, log) + escape(", its output"))
        return Origin(None if at is None else (at, at), head, lines, end, ended)

    def _end_of_transaction(self, output: _Output) -> tuple[str, Span | None]:
        """Return how the transaction of an output ended, as the end of a sentence, and when."""
        if output.batch is None or not output.batch.transactional:
            return "", None
        log = next(log for log in self._logs.partitions if log.partition_id == output.place)
        for batch in log.batches:
            mine = batch.marker and batch.producer_id == output.batch.producer_id
            if mine and batch.base_offset > output.offset:
                at = self._seconds_of_wall(batch.at_ms)
                text = f", {batch.marker} marker"
                return (text, None) if at is None else (f"{text} at {at:.3f} s", (at, at))
        return ", without a marker", None

    def _instance(self, transactional_id: str, at: float | None) -> str:
        """Return the instance that wrote at a time: the one that the id names, or the only one that ran.

        If several ran, return all of their names.
        """
        names = {start.instance for start in self._app.starts}
        for name in sorted(names, key=len, reverse=True):
            if re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", transactional_id):
                return name
        if at is None:
            return ""
        ran = {
            start.instance
            for start in self._app.starts
            if self._seconds(start.started) <= at <= (self._seconds(start.at) if start.at else at)
        }
        return " or ".join(sorted(ran))

    def _passed(self, ref: OffsetRef) -> Iterator[Origin]:
        """Yield when the group's position passed an input, or where it stopped before.

        Of several inputs it is the first one, whose token and history lines the example has.
        """
        name = f"{ref.topic}-{ref.partition}"
        samples = self._positions.get((ref.topic, ref.partition), [])
        line = link_to(self._run.path, f"history/{OBSERVER}.jsonl", f"history/{OBSERVER}.jsonl")
        moved: tuple[int, int, int] | None = None
        before = 0
        for mono, position, number in samples:
            if position > ref.first:
                first, last = self._seconds(before or mono), self._seconds(mono)
                head = f"group {self._flow.group} passed {name} offset {ref.first} between {first:.1f} s"
                head += f" and {last:.1f} s"
                yield Origin((first, last), head, [Markup("  ") + line + escape(f":{number}")])
                return
            if moved is None or position > moved[1]:
                moved = mono, position, number
            before = mono
        if moved is not None:
            at = self._seconds(moved[0])
            head = f"group {self._flow.group} stopped in {name} at offset {moved[1]}, since {at:.1f} s"
            yield Origin((at, at), head, [Markup("  ") + line + escape(f":{moved[2]}")])

    def _find_frames(self) -> None:
        """Find the requests that carried the outputs, and their answers."""
        path = self._run.path / FRAMES
        wanted: dict[PartitionId, list[_Output]] = defaultdict(list)
        for output in self._outputs.values():
            wanted[output.place].append(output)
        if not wanted or not path.is_file():
            return
        pending: dict[tuple[int, int], tuple[_Frame, int]] = {}
        decoder = msgspec.json.Decoder(_Frame)
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if b'"Produce"' not in line:
                    continue
                try:
                    frame = decoder.decode(line)
                except msgspec.DecodeError:  # the line is incomplete because its writer was killed
                    continue
                if frame.facts is not None and frame.side == "request":
                    self._request(frame, number, wanted, pending)
                elif frame.facts is not None:
                    self._answer(frame, number, wanted, pending)

    def _request(
        self,
        frame: _Frame,
        number: int,
        wanted: dict[PartitionId, list[_Output]],
        pending: dict[tuple[int, int], tuple[_Frame, int]],
    ) -> None:
        assert frame.facts is not None
        batches = [batch for batch in frame.facts.batches if (batch.topic, batch.partition) in wanted]
        if batches:
            pending[frame.conn, frame.correlation] = frame, number
        for batch in batches:
            for output in wanted[batch.topic, batch.partition]:
                if output.is_in(batch):
                    self._note(output, frame, number)

    def _answer(
        self,
        frame: _Frame,
        number: int,
        wanted: dict[PartitionId, list[_Output]],
        pending: dict[tuple[int, int], tuple[_Frame, int]],
    ) -> None:
        request, line = pending.pop((frame.conn, frame.correlation), (None, 0))
        if request is None or request.facts is None or frame.facts is None:
            return
        counts = {(batch.topic, batch.partition): batch.count for batch in request.facts.batches}
        for answer in frame.facts.partitions:
            place, first = (answer.topic, answer.partition), answer.offset
            for output in wanted.get(place, []):
                carried = first is not None and first <= output.offset < first + counts.get(place, 0)
                if carried and not answer.error:
                    self._note(output, request, line)
                if line in output.frames:
                    self._note(output, frame, number)

    def _note(self, output: _Output, frame: _Frame, number: int) -> None:
        at = self._seconds(frame.mono)
        output.frames[number] = f"{FRAMES}:{number} Produce {frame.side} at {at:.3f} s"
        if frame.side == "request":
            output.sent = min(output.sent or frame.mono, frame.mono)


def _read(run: RunDirectory, name: str, kind: type[T], default: T) -> T:
    """Read a file of the run; return the default if it is missing or damaged, which the verdict reports."""
    try:
        return run.read(name, kind, default)
    except HarnessError:
        return default


def _batch_at(log: PartitionLog | None, offset: int) -> LoggedBatch | None:
    """Return the batch of records that contains an offset."""
    if log is None:
        return None
    index = bisect_right(log.batches, offset, key=lambda batch: batch.base_offset) - 1
    if index < 0 or log.batches[index].marker or log.batches[index].last_offset < offset:
        return None
    return log.batches[index]


def _clocks_apart(run: RunDirectory) -> int | None:
    """Return the time of day minus the monotonic time, in ns; None if no history is readable."""
    for file in history_files(run.histories) if run.histories.is_dir() else []:
        try:
            opened = file.opening()
        except (HarnessError, *UNREADABLE):
            continue
        return opened.wall - opened.mono
    return None


def _positions(run: RunDirectory, group: str) -> dict[PartitionId, list[tuple[int, int, int]]]:
    """Return the sampled positions of the group: time, position and line number of each sample."""
    found: dict[PartitionId, list[tuple[int, int, int]]] = defaultdict(list)
    path = run.histories / f"{OBSERVER}.jsonl"
    if not group or not path.is_file():
        return found
    try:
        for number, line in HistoryFile(path).read():
            if isinstance(line, Sample) and line.group == group:
                for topic, partition, position in line.positions:
                    found[topic, partition].append((line.mono, position, number))
    except (HarnessError, *UNREADABLE):
        pass  # the samples up to the damage are used; the verdict names it
    return found
