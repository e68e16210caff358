"""The anomalies section of a report: examples of each anomaly, with links to their proof.

The proof of an example consists of lines of the histories and of the frame log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec
from markupsafe import Markup, escape

from harness.evidence.checkers.model import SEVERITY, Example, HistoryRef
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.history import HistoryFile
from harness.evidence.run_directory import RunDirectory
from harness.report.html_template import render

T = TypeVar("T", bound=msgspec.Struct)

FRAMES: Final = "frames.jsonl"
_LINES_SHOWN: Final = 4  # maximum number of history lines per example
_FRAMES_SHOWN: Final = 3
_LINE_LENGTH: Final = 400


class _Op(msgspec.Struct):
    """The fields of a history line that this module reads: operation number and time."""

    mono: int = 0
    op: int | None = None


class _Frame(msgspec.Struct):
    """The fields of a frame log line that this module reads. If the line is not a frame, `api` is empty."""

    mono: int = 0
    client_id: str = ""
    api: str = ""
    side: str = ""


class _Span(msgspec.Struct):
    """The time span of an operation in a history, and the first frames of its client within that span."""

    first: int
    last: int
    frames: list[str] = []


def render_anomalies(run: RunDirectory, judgement: Judgement) -> Markup:
    """Render the anomalies, worst first, and the reasons for an unknown verdict.

    The result is empty if there are neither anomalies nor reasons.
    """
    anomalies = sorted(
        (anomaly for result in judgement.results for anomaly in result.anomalies),
        key=lambda anomaly: (SEVERITY[anomaly.name], -anomaly.count),
    )
    reasons = [reason for result in judgement.results for reason in result.reasons]
    if not (anomalies or reasons):
        return Markup()
    proofs = _Proofs(run, (example for anomaly in anomalies for example in anomaly.examples))
    views = [
        {
            "anchor": f"anomaly-{number}-{anomaly.name}",
            "name": anomaly.name,
            "count": anomaly.count,
            "unit": anomaly.unit,
            "counted": anomaly.counted,
            "examples": [_example_view(proofs, example) for example in anomaly.examples],
        }
        for number, anomaly in enumerate(anomalies, 1)
    ]
    return render("anomalies.html", anomalies=views, reasons=reasons)


def _example_view(proofs: _Proofs, example: Example) -> dict[str, Any]:
    offsets = [f"{o.topic}-{o.partition} offsets {o.first}-{o.last}" for o in example.offsets]
    return {
        "what": example.what,
        "place": ", ".join(offsets) + (f" (seen by {example.witness})" if example.witness else ""),
        "proof": Markup("\n").join(map(proofs.render, example.lines[:_LINES_SHOWN])),
    }


class _Proofs:
    """The history lines and frames that prove the given examples of anomalies. The constructor reads them."""

    def __init__(self, run: RunDirectory, examples: Iterable[Example]) -> None:
        self._run = run
        self._texts: dict[HistoryRef, str] = {}
        self._spans: dict[HistoryRef, _Span] = {}
        lines_by_client: dict[str, set[int]] = defaultdict(set)
        for example in examples:
            for ref in example.lines[:_LINES_SHOWN]:
                lines_by_client[ref.client].add(ref.line)
        for client, numbers in lines_by_client.items():
            self._read(client, numbers)
        self._find_frames()

    def render(self, ref: HistoryRef) -> Markup:
        """Render a history line: its file and line number, its text, and the frames of its operation."""
        file = f"history/{ref.client}.jsonl"
        frames = self._spans[ref].frames if ref in self._spans else []
        return Markup("\n").join(
            [
                _link(self._run.path, file, f"{file}:{ref.line}"),
                f"  {self._texts.get(ref, '(no such line)')}",
                *(Markup("  ") + _link(self._run.path, FRAMES, frame) for frame in frames),
            ]
        )

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
                span = _Span(op.mono, op.mono)
                self._spans[ref] = span if op.op is None else ops.setdefault(op.op, span)
        for _, line in _numbered(history) if ops else ():
            op = _decoded(line, _Op)
            if op is not None and op.op in ops:
                span = ops[op.op]
                span.first, span.last = min(span.first, op.mono), max(span.last, op.mono)

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
                        span.frames.append(f"{FRAMES}:{number} {frame.api} {frame.side}")


def _numbered(history: HistoryFile) -> Iterator[tuple[int, bytes]]:
    for block in history.blocks():
        yield from enumerate(block.data.splitlines(), block.first_line)


def _decoded(line: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError:  # the line is incomplete because its writer was killed
        return None


def _link(folder: Path, file: str, text: str) -> Markup:
    """Return a link to a file in the folder of the report, or only the text if the file does not exist."""
    if not (folder / file).exists():
        return escape(text)
    return Markup('<a href="{}">{}</a>').format(quote(file), text)
