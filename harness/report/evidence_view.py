"""The evidence of a report: every anomaly with its examples, linked to the lines and frames that prove it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from harness.evidence.checkers.model import SEVERITY, Anomaly, Example, HistoryRef
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.history import HistoryFile
from harness.evidence.run_directory import RunDirectory

T = TypeVar("T", bound=msgspec.Struct)

FRAMES: Final = "frames.jsonl"
_LINES_SHOWN: Final = 4  # history lines of one example
_FRAMES_SHOWN: Final = 3
_LINE_LENGTH: Final = 400


class _Op(msgspec.Struct):
    """What a history line says of its operation."""

    mono: int = 0
    op: int | None = None


class _Frame(msgspec.Struct):
    """What a line of the frame log says of a frame; other lines have no api."""

    mono: int = 0
    client_id: str = ""
    api: str = ""
    side: str = ""


class _Span(msgspec.Struct):
    """An operation of a client from its first line to its last, and the first frames in between."""

    first: int
    last: int
    frames: list[str] = []


def section(run: RunDirectory, judgement: Judgement) -> str:
    """What is wrong or not known, the worst first, with a line of links to each anomaly on top."""
    found = sorted(
        (anomaly for result in judgement.results for anomaly in result.anomalies),
        key=lambda anomaly: (SEVERITY[anomaly.name], -anomaly.count),
    )
    reasons = [reason for result in judgement.results for reason in result.reasons]
    if not (found or reasons):
        return ""
    anchors = [f"anomaly-{number}-{anomaly.name}" for number, anomaly in enumerate(found, 1)]
    links = [
        f'<a href="#{anchor}">{escape(anomaly.name)}</a> {anomaly.count} {escape(anomaly.unit)}'
        for anchor, anomaly in zip(anchors, found, strict=True)
    ]
    proof = _Proof(run, (example for anomaly in found for example in anomaly.examples))
    parts = [f"<p>{' · '.join(links)}</p>"] if links else []
    parts += [f"<p>{escape(reason)}</p>" for reason in reasons]
    parts += [_anomaly(proof, anchor, anomaly) for anchor, anomaly in zip(anchors, found, strict=True)]
    return f"<section><h2>What is wrong, or not known</h2>{''.join(parts)}</section>"


def _anomaly(proof: _Proof, anchor: str, anomaly: Anomaly) -> str:
    name, unit = escape(anomaly.name), escape(anomaly.unit)
    head = f'<h3 id="{anchor}"><code>{name}</code>: {anomaly.count} {unit}</h3>'
    shown = "".join(_example(proof, example) for example in anomaly.examples)
    return f"{head}<p class='note'>the worst examples:</p>{shown}"


def _example(proof: _Proof, example: Example) -> str:
    offsets = [f"{o.topic}-{o.partition} offsets {o.first}-{o.last}" for o in example.offsets]
    where = escape(", ".join(offsets)) + (f" (seen by {escape(example.witness)})" if example.witness else "")
    told = "\n".join(proof.told(ref) for ref in example.lines[:_LINES_SHOWN])
    return (
        f"<details open><summary>{escape(example.what)}</summary><p class='note'>{where}</p>"
        f"<pre>{told}</pre></details>"
    )


class _Proof:
    """The lines and frames that some examples rest on, read once for all of them."""

    def __init__(self, run: RunDirectory, examples: Iterable[Example]) -> None:
        self._run = run
        self._texts: dict[HistoryRef, str] = {}
        self._spans: dict[HistoryRef, _Span] = {}
        wanted: dict[str, set[int]] = defaultdict(set)
        for example in examples:
            for ref in example.lines[:_LINES_SHOWN]:
                wanted[ref.client].add(ref.line)
        for client, numbers in wanted.items():
            self._read(client, numbers)
        self._find_frames()

    def told(self, ref: HistoryRef) -> str:
        """A history line under its place, and the frames of its operation."""
        file = f"history/{ref.client}.jsonl"
        frames = self._spans[ref].frames if ref in self._spans else []
        return "\n".join(
            [
                _link(self._run.path, file, f"{file}:{ref.line}"),
                f"  {escape(self._texts.get(ref, '(no such line)'), quote=False)}",
                *(f"  {_link(self._run.path, FRAMES, frame)}" for frame in frames),
            ]
        )

    def _read(self, client: str, numbers: set[int]) -> None:
        """Take the wanted lines of a history, and when their operations began and ended."""
        history = HistoryFile(self._run.histories / f"{client}.jsonl")
        if not history.path.exists():
            missing = "(the history is not there)"
            self._texts |= {HistoryRef(client, number): missing for number in numbers}
            return
        ops: dict[int, _Span] = {}
        for number, line in _numbered(history):
            if number not in numbers:
                continue
            ref = HistoryRef(client, number)
            self._texts[ref] = line.decode(errors="replace")[:_LINE_LENGTH]
            if (said := _decoded(line, _Op)) is not None:
                span = _Span(said.mono, said.mono)
                self._spans[ref] = span if said.op is None else ops.setdefault(said.op, span)
        for _, line in _numbered(history) if ops else ():
            said = _decoded(line, _Op)
            if said is not None and said.op in ops:
                span = ops[said.op]
                span.first, span.last = min(span.first, said.mono), max(span.last, said.mono)

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
    except msgspec.DecodeError:  # torn: the writer was killed
        return None


def _link(folder: Path, file: str, text: str) -> str:
    """A link to a file of the run, beside the report; only its text where there is no such file."""
    shown = escape(text)
    return f'<a href="{quote(file)}">{shown}</a>' if (folder / file).exists() else shown
