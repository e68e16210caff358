"""Reads one history file into columns: what grows with the run is numbers in arrays, no objects.

Lines are decoded in blocks into slim objects that know only what the fold needs, which makes
reading a history as fast as decoding it. Lines that are rare (declarations, faults, samples,
inits) are decoded in full.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

import msgspec
import numpy as np

from harness.errors import UsageError
from harness.history import (
    FORMAT,
    Block,
    Close,
    Completion,
    Fail,
    Fault,
    HistoryFile,
    Info,
    Invoke,
    Line,
    Ok,
    Open,
    Producer,
    Sample,
)
from harness.history.reader import decode_line
from harness.observation import Ints

COMMIT: Final = 0
ABORT: Final = 1
SEND: Final = 2
ENDS: Final = {"commit": COMMIT, "abort": ABORT, "abandon": ABORT, "send": SEND}
"""Operations that say what was sent; abandoning is an abort that was never asked for."""

NO_ANSWER: Final = 0
ANSWERS: Final = {"ok": 1, "fail": 2, "info": 3}
OK: Final = 1
FAIL: Final = 2
INFO: Final = 3

_RARE: Final = frozenset({"init", "await", "send_offsets", "poll"})


class _Slim(msgspec.Struct, gc=False):
    type: str
    f: str = ""
    op: int = -1
    mono: int = 0
    producer: int = -1
    txn: int = -1
    sent: tuple[tuple[int, int, int], ...] = ()
    acked: tuple[tuple[int, int, int, int], ...] = ()
    failed: tuple[tuple[int, int, int], ...] = ()


class At(NamedTuple):
    """A typed line and its number in its file."""

    number: int
    line: Line


@dataclass
class Scan:
    """One history file, read."""

    name: str
    lines: int = 0
    torn: bool = False
    opening: Open | None = None
    closing: Close | None = None
    producers: dict[int, At] = field(default_factory=dict)
    begun: dict[int, tuple[int, int]] = field(default_factory=dict)  # producer -> (txn, line)
    rare: list[At] = field(default_factory=list)
    ends: Ints = field(default_factory=lambda: np.zeros((0, 6), np.int64))  # producer txn op kind mono line
    sent: Ints = field(default_factory=lambda: np.zeros((0, 4), np.int64))  # end row, lane, first, last
    done: Ints = field(default_factory=lambda: np.zeros((0, 4), np.int64))  # op, answer, mono, line
    acked: Ints = field(default_factory=lambda: np.zeros((0, 6), np.int64))  # op lane first last offset line
    failed: Ints = field(default_factory=lambda: np.zeros((0, 4), np.int64))  # op, lane, first, last
    good: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # times of ok answers
    waiting: Ints = field(default_factory=lambda: np.zeros((0, 6), np.int64))  # ends without an answer

    def faults(self) -> Iterator[tuple[int, Fault]]:
        """Yield the fault events of this file."""
        return ((number, line) for number, line in self.rare if isinstance(line, Fault))

    def samples(self) -> Iterator[tuple[int, Sample]]:
        """Yield the samples of this file."""
        return ((number, line) for number, line in self.rare if isinstance(line, Sample))

    def invokes(self, *names: str) -> Iterator[tuple[int, Invoke]]:
        """Yield the rare operations of these names that were asked for."""
        return ((n, line) for n, line in self.rare if isinstance(line, Invoke) and line.f in names)

    def completions(self, *names: str) -> Iterator[tuple[int, Completion]]:
        """Yield the completions of the rare operations of these names, or all that were not ok."""
        for number, line in self.rare:
            if isinstance(line, Ok | Fail | Info) and (line.f in names or not names):
                yield number, line


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    # The decoded lines hold no cycles; without this half the time goes into looking for some.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Columns:
    """Arrays of one file as they grow, block by block."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Ints]] = {
            name: [] for name in ("ends", "sent", "done", "acked", "failed")
        }
        self.widths = {"ends": 6, "sent": 4, "done": 4, "acked": 6, "failed": 4}
        self.rows = 0

    def asked(self, asks: list[tuple[int, _Slim]]) -> None:
        flat = [(x.producer, x.txn, x.op, ENDS[x.f], x.mono, number) for number, x in asks]
        self._add("ends", flat)
        counts = np.fromiter([len(x.sent) for _, x in asks], np.int64, len(asks))
        parts = chain.from_iterable(x.sent for _, x in asks)
        triples = np.fromiter(chain.from_iterable(parts), np.int64).reshape(-1, 3)
        owners = np.repeat(np.arange(self.rows, self.rows + len(asks)), counts)
        self.tables["sent"].append(np.column_stack([owners, triples]))
        self.rows += len(asks)

    def answered(self, answers: list[tuple[int, _Slim]]) -> None:
        self._add("done", [(x.op, ANSWERS[x.type], x.mono, number) for number, x in answers])
        acks = [(x.op, *ack, number) for number, x in answers if x.acked for ack in x.acked]
        fails = [(x.op, *failed) for _, x in answers if x.failed for failed in x.failed]
        self._add("acked", acks)
        self._add("failed", fails)

    def _add(self, name: str, rows: Sequence[tuple[int, ...]]) -> None:
        if rows:
            width = self.widths[name]
            table = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * width)
            self.tables[name].append(table.reshape(-1, width))

    def whole(self, name: str) -> Ints:
        tables = self.tables.pop(name)
        return np.concatenate(tables) if tables else np.zeros((0, self.widths[name]), np.int64)


def scan(history: HistoryFile) -> Scan:
    """Read one history file in bounded memory, but for the columns that the fold needs."""
    result, columns = Scan(history.name), _Columns()
    decoder = msgspec.json.Decoder(_Slim)
    with _no_garbage_collection():
        for block in history.blocks():
            try:
                slims = decoder.decode_lines(block.data)
            except msgspec.DecodeError:
                # Decode again line by line, to say which line it is.
                for number, data in enumerate(block.data.splitlines(), block.first_line):
                    decode_line(msgspec.json.Decoder(Line), data, history.path, number)
                raise
            _scan_block(history, block, slims, result, columns)
    result.lines, result.torn = history.lines, history.torn is not None
    for name in ("ends", "sent", "done", "acked", "failed"):
        setattr(result, name, columns.whole(name))
    _check_opening(history, result)
    return result


def _scan_block(
    history: HistoryFile, block: Block, slims: list[_Slim], result: Scan, columns: _Columns
) -> None:
    asks: list[tuple[int, _Slim]] = []
    answers: list[tuple[int, _Slim]] = []
    rare: list[int] = []
    for number, slim in enumerate(slims, block.first_line):
        f = slim.f
        if slim.type == "invoke":
            if f in ENDS:
                asks.append((number, slim))
            elif f == "begin":
                result.begun[slim.producer] = (slim.txn, number)
            elif f in _RARE:
                rare.append(number)
        elif slim.type in ANSWERS:
            answers.append((number, slim))
            if f in _RARE or slim.type != "ok":
                rare.append(number)
        else:
            rare.append(number)
    if asks:
        columns.asked(asks)
    if answers:
        columns.answered(answers)
    if rare:
        _keep_rare(history, block, rare, result)


def _keep_rare(history: HistoryFile, block: Block, numbers: list[int], result: Scan) -> None:
    lines = block.data.splitlines()
    decoder = msgspec.json.Decoder(Line)
    for number in numbers:
        line = decode_line(decoder, lines[number - block.first_line], history.path, number)
        if isinstance(line, Open):
            result.opening = line
        elif isinstance(line, Close):
            result.closing = line
        elif isinstance(line, Producer):
            result.producers[line.producer] = At(number, line)
        else:
            result.rare.append(At(number, line))


def _check_opening(history: HistoryFile, result: Scan) -> None:
    if result.opening is None and result.lines:
        raise UsageError(
            f"{history.path}: there is no opening line",
            "the first line of a history says which format, run and clock it has; this file lost it",
        )
    if result.opening is not None and result.opening.format != FORMAT:
        raise UsageError(
            f"{history.path}: format {result.opening.format}, and this version reads {FORMAT}",
            "read it with the version of the harness that wrote it",
        )
