"""The anomalies section of a report: examples of each anomaly, with their time, faults, and proof.

The proof of an example consists of lines of the histories and of the frame log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from markupsafe import Markup, escape

from harness.evidence.checkers.model import ANOMALIES, SEVERITY, Anomaly, Example, HistoryRef
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.history import HistoryFile
from harness.evidence.run_directory import RunDirectory
from harness.report.explanations import explanation_of
from harness.report.fault_spans import FaultSpan
from harness.report.html_template import link_to, render
from harness.report.output_origins import FRAMES, Origin, OutputOrigins
from harness.report.timeline_svg import Mark

T = TypeVar("T", bound=msgspec.Struct)

_LINES_SHOWN: Final = 4  # maximum number of history lines per example
CONTRACT: Final = "contract"
"""Property whose anomalies concern the outputs of an application."""
_OUTPUTS: Final = (CONTRACT, "pipeline")
"""Properties whose examples name outputs, and inputs without an output."""
_FRAMES_SHOWN: Final = 3
_LINE_LENGTH: Final = 400
_FAULTS_NAMED: Final = 3
_REASONS_SHOWN: Final = 60


class _Op(msgspec.Struct):
    """The fields of a history line that this module reads."""

    mono: int = 0
    op: int | None = None
    type: str = ""
    f: str = ""


class _Frame(msgspec.Struct):
    """The fields of a frame log line that this module reads. If the line is not a frame, `api` is empty."""

    mono: int = 0
    client_id: str = ""
    api: str = ""
    side: str = ""


class _Span(msgspec.Struct):
    """The time span of an operation in a history, its end, and the first frames of its client within it."""

    first: int
    last: int
    ended: str = ""
    frames: list[str] = []


class AnomalySection(NamedTuple):
    """The section as HTML, and a mark in the timeline for each example whose time is known."""

    html: Markup
    marks: list[Mark]


def anomaly_section(
    run: RunDirectory, judgement: Judgement, faults: Sequence[FaultSpan] = (), start: int = 0
) -> AnomalySection:
    """Render the anomalies, worst first, and the reasons for an unknown verdict.

    `start` is the monotonic time at which the run started, and 0 if it is not known. The section is empty if
    there are neither anomalies nor reasons.
    """
    found = sorted(
        ((anomaly, result.property) for result in judgement.results for anomaly in result.anomalies),
        key=lambda pair: (SEVERITY[pair[0].name], -pair[0].count),
    )
    anomalies = [anomaly for anomaly, _ in found]
    apps = {id(anomaly) for anomaly, name in found if name == CONTRACT}
    reasons = [(result.property, reason) for result in judgement.results for reason in result.reasons]
    if not (anomalies or reasons):
        return AnomalySection(Markup(), [])
    of_outputs = [example for anomaly, name in found if name in _OUTPUTS for example in anomaly.examples]
    examples = [example for anomaly in anomalies for example in anomaly.examples]
    proofs = _Proofs(run, examples, start, OutputOrigins(run, of_outputs, start))
    marks: list[Mark] = []
    views = [
        _anomaly_view(number, anomaly, proofs, faults, marks)
        | {"explanation": explanation_of(anomaly.name, of_app=id(anomaly) in apps)}
        for number, anomaly in enumerate(anomalies, 1)
    ]
    html = render(
        "anomalies.html",
        anomalies=views,
        reasons=reasons[:_REASONS_SHOWN],
        reasons_left_out=len(reasons) - _REASONS_SHOWN,
    )
    return AnomalySection(html, marks)


def _anomaly_view(
    number: int, anomaly: Anomaly, proofs: _Proofs, faults: Sequence[FaultSpan], marks: list[Mark]
) -> dict[str, Any]:
    anchor = f"anomaly-{number}-{anomaly.name}"
    examples = []
    for i, example in enumerate(anomaly.examples, 1):
        view = _example_view(proofs, example, faults) | {"anchor": f"{anchor}-{i}"}
        examples.append(view)
        if (span := proofs.span_of(example)) is not None:
            marks.append(Mark(span[0], anomaly.name, view["anchor"]))
    return {
        "anchor": anchor,
        "name": anomaly.name,
        "meaning": ANOMALIES[anomaly.name],
        "count": anomaly.count,
        "unit": anomaly.unit,
        "counted": anomaly.counted,
        "left_out": anomaly.count - sum(example.weight for example in anomaly.examples),
        "examples": examples,
    }


def _example_view(proofs: _Proofs, example: Example, faults: Sequence[FaultSpan]) -> dict[str, Any]:
    offsets = [offset.text for offset in example.offsets]
    span = proofs.span_of(example)
    origins = [line for origin in proofs.origins.of(example) for line in _origin_lines(origin, faults)]
    return {
        "what": example.what,
        "when": _when(span, faults) if span else "",
        "place": ", ".join(offsets) + (f" (seen by {example.witness})" if example.witness else ""),
        "tokens": ", ".join(example.tokens),
        "proof": Markup("\n").join([*origins, *map(proofs.render, example.lines[:_LINES_SHOWN])]),
        "lines_left_out": len(example.lines) - _LINES_SHOWN,
    }


def _origin_lines(origin: Origin, faults: Sequence[FaultSpan]) -> list[Markup]:
    written = f" ({_faults_at(origin.span, faults)})" if origin.span else ""
    ended = f" ({_faults_at(origin.ended, faults)})" if origin.ended else ""
    return [escape(origin.head + written + origin.end + ended), *origin.lines]


def _when(span: tuple[float, float], faults: Sequence[FaultSpan]) -> str:
    """Describe the time of an example: seconds of the run, and the faults that were active or ended last."""
    first, last = span
    text = f"{first:.3f} s of the run" if last - first < 0.001 else f"{first:.3f}-{last:.3f} s of the run"
    return f"{text}, {_faults_at(span, faults)}"


def _faults_at(span: tuple[float, float], faults: Sequence[FaultSpan]) -> str:
    """Describe which faults were active in a span of time, or which one ended last before it."""
    first, last = span
    if active := [fault for fault in faults if fault.covers(first, last)]:
        names = [f"{fault.name} ({_from_to(fault)})" for fault in active[:_FAULTS_NAMED]]
        more = [f"{len(active) - _FAULTS_NAMED} more"] if len(active) > _FAULTS_NAMED else []
        return f"during {', '.join(names + more)}"
    if healed := [(fault.healed, fault) for fault in faults if fault.healed and fault.healed < first]:
        at, fault = max(healed, key=lambda pair: pair[0])
        return f"{first - at:.1f} s after {fault.name} was healed"
    return "before any fault"


def _from_to(fault: FaultSpan) -> str:
    return f"{fault.begin:.1f}-{fault.healed:.1f} s" if fault.healed else f"from {fault.begin:.1f} s"


class _Proofs:
    """The history lines and frames that prove the given examples of anomalies. The constructor reads them."""

    def __init__(
        self, run: RunDirectory, examples: Sequence[Example], start: int, origins: OutputOrigins
    ) -> None:
        self.origins = origins
        self._run = run
        self._start = start
        self._texts: dict[HistoryRef, str] = {}
        self._ops: dict[HistoryRef, _Op] = {}
        self._spans: dict[HistoryRef, _Span] = {}
        lines_by_client: dict[str, set[int]] = defaultdict(set)
        for example in examples:
            for ref in example.lines[:_LINES_SHOWN]:
                lines_by_client[ref.client].add(ref.line)
        for client, numbers in lines_by_client.items():
            self._read(client, numbers)
        self._find_frames()

    def span_of(self, example: Example) -> tuple[float, float] | None:
        """Return the seconds of the run of the latest output of an example, or else of its operations."""
        if made := [origin.span for origin in self.origins.of(example) if origin.span is not None]:
            return made[-1]
        spans = [self._spans[ref] for ref in example.lines[:_LINES_SHOWN] if ref in self._spans]
        if not spans or not self._start:
            return None
        first, last = min(span.first for span in spans), max(span.last for span in spans)
        return (first - self._start) / 1e9, (last - self._start) / 1e9

    def render(self, ref: HistoryRef) -> Markup:
        """Render a history line: file, line number, operation, text, and the frames of the operation."""
        file = f"history/{ref.client}.jsonl"
        frames = self._spans[ref].frames if ref in self._spans else []
        return Markup("\n").join(
            [
                link_to(self._run.path, file, f"{file}:{ref.line}") + escape(self._describe(ref)),
                f"  {self._texts.get(ref, '(no such line)')}",
                *(Markup("  ") + link_to(self._run.path, FRAMES, frame) for frame in frames),
            ]
        )

    def _describe(self, ref: HistoryRef) -> str:
        """Describe the operation of a line, such as `  send, op 42 (invoke), 5.612 s to 5.640 s: ok`."""
        op, span = self._ops.get(ref), self._spans.get(ref)
        if op is None or span is None or not self._start:
            return ""
        first, last = (span.first - self._start) / 1e9, (span.last - self._start) / 1e9
        name = op.f or op.type
        number = f", op {op.op}" if op.op is not None else ""
        ended = f" to {last:.3f} s: {span.ended}" if span.ended else ""
        # A request and its answer are two lines of one operation.
        kind = f" ({op.type})" if op.f and op.type else ""
        return f"  {name}{number}{kind}, {first:.3f} s{ended}"

    def _read(self, client: str, numbers: set[int]) -> None:
        """Read the given lines of a history, and the times at which their operations began and ended."""
        history = HistoryFile(self._run.histories / f"{client}.jsonl")
        if not history.path.exists():
            missing = "(the history file does not exist)"
            self._texts |= {HistoryRef(client, number): missing for number in numbers}
            return
        ops: dict[int, _Span] = {}
        for number, line in _numbered(history):
            if number not in numbers:
                continue
            ref = HistoryRef(client, number)
            self._texts[ref] = line.decode(errors="replace")[:_LINE_LENGTH]
            if (op := _decoded(line, _Op)) is not None:
                self._ops[ref] = op
                span = _Span(op.mono, op.mono)
                self._spans[ref] = span if op.op is None else ops.setdefault(op.op, span)
        for _, line in _numbered(history) if ops else ():
            op = _decoded(line, _Op)
            if op is not None and op.op in ops:
                span = ops[op.op]
                span.first, span.last = min(span.first, op.mono), max(span.last, op.mono)
                span.ended = op.type if op.type in ("ok", "fail", "info") else span.ended

    def _find_frames(self) -> None:
        path = self._run.path / FRAMES
        spans: dict[str, list[_Span]] = defaultdict(list)
        for ref, span in self._spans.items():
            spans[ref.client].append(span)
        if not path.exists():
            return
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                frame = _decoded(line, _Frame)
                if frame is None or not frame.api:
                    continue
                for span in {id(span): span for span in spans.get(frame.client_id, ())}.values():
                    if span.first <= frame.mono <= span.last and len(span.frames) < _FRAMES_SHOWN:
                        at = f" at {(frame.mono - self._start) / 1e9:.3f} s" if self._start else ""
                        span.frames.append(f"{FRAMES}:{number} {frame.api} {frame.side}{at}")


def _numbered(history: HistoryFile) -> Iterator[tuple[int, bytes]]:
    for block in history.blocks():
        yield from enumerate(block.data.splitlines(), block.first_line)


def _decoded(line: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError:  # the line is incomplete because its writer was killed
        return None
