"""Scan of one history file into columns. All data that grows with the length of the run is in arrays.

The scan decodes lines in blocks, into small objects with only the fields that the fold needs. So it takes
hardly longer than decoding alone. Rare lines (declarations, faults, samples, inits) are decoded completely.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np

from harness.base.errors import UsageError
from harness.evidence.bit_words import Ints
from harness.evidence.history import (
    FORMAT,
    Block,
    Completion,
    Fail,
    FaultLine,
    HistoryClosed,
    HistoryFile,
    HistoryOpened,
    Info,
    Invoke,
    Line,
    Ok,
    Producer,
    Sample,
)
from harness.evidence.history.file_reader import decode_line

COMMIT: Final = 0
ABORT: Final = 1
SEND: Final = 2
ABANDON: Final = 3
ENDS: Final = {"commit": COMMIT, "abort": ABORT, "send": SEND, "abandon": ABANDON}
"""Operations whose history lines list the records sent, with a code for each operation.

With `abandon`, the client gives up a transaction. It sends no request, so it gets no answer.
"""

MOVES: Final = ("assign", "revoke", "seek", "caught_up")
"""Notes of a consumer about its positions; each lists partitions with an offset."""

LINE_OPERATIONS: Final = ("init", "send_offsets", "commit_offsets", "poll", *MOVES)
"""Operations whose history lines the scan keeps as objects. The operations in ENDS are stored as columns."""

_KEPT: Final = (*LINE_OPERATIONS, "identity")
"""LINE_OPERATIONS, and the reports of producer ids, which are not operations: no request is sent for them."""

NO_ANSWER: Final = 0
OK: Final = 1
FAIL: Final = 2
INFO: Final = 3

# Each history line gets a code that consists of bit flags. _ANSWER marks an answer; the two lowest bits are
# then OK, FAIL or INFO. _END marks an operation in ENDS. _BEGIN marks the beginning of a transaction. _RARE
# marks a line that the scan keeps as an object. A line without any flag has the code 0.
_ANSWER: Final = 4
_END: Final = 8
_BEGIN: Final = 16
_RARE: Final = 32

# The scan looks up the code of every line, so this must be fast. CODES contains the usual operations. If a
# block contains any other operation, `_codes` uses a slower lookup for the whole block.
CODES: Final[dict[str, dict[str, int]]] = {
    "invoke": dict.fromkeys(ENDS, _END) | {"begin": _BEGIN} | dict.fromkeys(_KEPT, _RARE),
    "ok": dict.fromkeys([*ENDS, "begin"], _ANSWER | OK) | dict.fromkeys(_KEPT, _ANSWER | OK | _RARE),
    "fail": {},
    "info": {},
    **{name: {"": _RARE} for name in ("open", "producer", "sample", "fault", "close")},
}
OTHERWISE: Final = {
    "invoke": 0,
    "ok": _ANSWER | OK,
    "fail": _ANSWER | FAIL | _RARE,
    "info": _ANSWER | INFO | _RARE,
}


def _codes(slims: Sequence[_Loose]) -> Ints:
    try:
        return _column([CODES[x.type][x.f] for x in slims])
    except KeyError:
        return _column([CODES.get(x.type, {}).get(x.f, OTHERWISE.get(x.type, _RARE)) for x in slims])


class _Loose(msgspec.Struct, gc=False):
    type: str
    f: str = ""
    op: int = -1
    mono: int = 0
    producer: int = -1
    txn: int = -1
    sent: tuple[tuple[int, int, int], ...] = ()
    acked: tuple[tuple[int, int, int, int], ...] = ()
    failed: tuple[tuple[int, int, int], ...] = ()


class _Slim(_Loose, gc=False):
    # msgspec returns an existing string for the value of a Literal. This avoids creating and hashing a string
    # for each line.
    type: Literal["open", "producer", "invoke", "ok", "fail", "info", "sample", "fault", "close"]
    f: Literal[
        "",
        "init",
        "identity",
        "begin",
        "commit",
        "abort",
        "abandon",
        "send",
        "send_offsets",
        "commit_offsets",
        "poll",
        "assign",
        "revoke",
        "seek",
        "caught_up",
    ] = ""


class At(NamedTuple):
    """A decoded line and its line number."""

    number: int
    line: Line


@dataclass
class Scan:
    """Contents of one history file: frequent lines as arrays, rare lines as objects."""

    name: str
    lines: int = 0
    torn: bool = False
    opening: HistoryOpened | None = None
    closing: HistoryClosed | None = None
    producers: dict[int, At] = field(default_factory=dict)
    begun: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The last transaction that each producer began, as a pair: number of the transaction, number of the
    line.
    """
    begins: Ints = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    """Beginnings of transactions; columns: producer, txn, time."""
    rare: list[At] = field(default_factory=list)
    ends: Ints = field(default_factory=lambda: np.zeros((0, 6), np.int64))
    """Commits, aborts, abandons and sends; columns: producer, txn, op, kind (see ENDS), time, line."""
    sent: Ints = field(default_factory=lambda: np.zeros((0, 4), np.int64))
    """Intervals of records sent that the lines in `ends` list; columns: row of `ends`, lane, first, last."""
    done: Ints = field(default_factory=lambda: np.zeros((0, 4), np.int64))
    """Answers to operations; columns: op, answer (OK, FAIL or INFO), time, line."""
    acked: Ints = field(default_factory=lambda: np.zeros((0, 6), np.int64))
    """Intervals of acknowledged records; columns: op, lane, first, last, offset, line."""
    failed: Ints = field(default_factory=lambda: np.zeros((0, 4), np.int64))
    """Intervals of records that were certainly not written; columns: op, lane, first, last."""
    good: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Monotonic times of all results of type `ok`, sorted."""
    waiting: Ints = field(default_factory=lambda: np.zeros((0, 6), np.int64))
    """Rows of `ends` that expect an answer but got none."""
    refused: Ints = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    """Operations of `ends` whose answer is not ok; columns: op, producer, time of the request."""

    def faults(self) -> Iterator[tuple[int, FaultLine]]:
        """Yield the lines about fault injections, each as a pair: line number and line."""
        return ((number, line) for number, line in self.rare if isinstance(line, FaultLine))

    def samples(self) -> Iterator[tuple[int, Sample]]:
        """Yield the lines with offsets that an observer read, each as a pair: line number and line."""
        return ((number, line) for number, line in self.rare if isinstance(line, Sample))

    def invokes(self, *names: str) -> Iterator[tuple[int, Invoke]]:
        """Yield the invoke lines of the operations with these names, each as a pair: line number and line.

        The names must be in LINE_OPERATIONS, or be `identity`.
        """
        return ((n, line) for n, line in self.rare if isinstance(line, Invoke) and line.f in names)

    def completions(self, *names: str) -> Iterator[tuple[int, Completion]]:
        """Yield the kept lines with results (ok, fail, info), each as a pair: line number and line.

        The scan keeps all fail and info lines, and the ok lines of the operations in LINE_OPERATIONS. If
        `names` of operations are given, yield only the results of these operations.
        """
        for number, line in self.rare:
            if isinstance(line, Ok | Fail | Info) and (line.f in names or not names):
                yield number, line


def _column(values: list[int]) -> Ints:
    return np.fromiter(values, np.int64, len(values))


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    # Decoded lines contain no reference cycles, so garbage collection would only cost time.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Columns:
    """The arrays of one history file. They grow with every block of lines."""

    def __init__(self) -> None:
        self.tables: dict[str, list[Ints]] = {
            name: [] for name in ("begins", "ends", "sent", "done", "acked", "failed")
        }
        self.widths = {"begins": 3, "ends": 6, "sent": 4, "done": 4, "acked": 6, "failed": 4}
        self.rows = 0

    def asked(self, asks: Sequence[_Loose], lines: Ints) -> None:
        # Building each column with its own comprehension is faster than building a tuple per line and
        # splitting it into columns.
        self._add(
            "ends",
            [
                _column([x.producer for x in asks]),
                _column([x.txn for x in asks]),
                _column([x.op for x in asks]),
                _column([ENDS[x.f] for x in asks]),
                _column([x.mono for x in asks]),
                lines,
            ],
        )
        sent = [x.sent for x in asks]
        triples = np.fromiter(chain.from_iterable(chain.from_iterable(sent)), np.int64).reshape(-1, 3)
        owners = np.repeat(
            np.arange(self.rows, self.rows + len(asks)), _column([len(intervals) for intervals in sent])
        )
        self.tables["sent"].append(np.column_stack([owners, triples]))
        self.rows += len(asks)

    def began(self, begins: Sequence[_Loose]) -> None:
        columns = ([x.producer for x in begins], [x.txn for x in begins], [x.mono for x in begins])
        self._add("begins", [_column(column) for column in columns])

    def answered(self, answers: Sequence[_Loose], kinds: Ints, lines: Ints) -> None:
        self._add(
            "done", [_column([x.op for x in answers]), kinds, _column([x.mono for x in answers]), lines]
        )
        for x, line in zip(answers, lines.tolist(), strict=True):
            if x.acked:
                self.tables["acked"].append(np.array([(x.op, *ack, line) for ack in x.acked], np.int64))
            if x.failed:
                self.tables["failed"].append(np.array([(x.op, *failed) for failed in x.failed], np.int64))

    def _add(self, name: str, columns: list[Ints]) -> None:
        self.tables[name].append(np.column_stack(columns))

    def whole(self, name: str) -> Ints:
        tables = self.tables.pop(name)
        return np.concatenate(tables) if tables else np.zeros((0, self.widths[name]), np.int64)


def scan(history: HistoryFile) -> Scan:
    """Scan one history file. Apart from the resulting columns, memory use is constant."""
    result, columns = Scan(history.name), _Columns()
    with _no_garbage_collection():
        for block in history.blocks():
            try:
                _scan_block(history, block, _decode(history, block), result, columns)
            except OverflowError as error:
                raise UsageError(
                    f"{history.path}: a number after line {block.first_line} does not fit into 64 bits",
                    "restore the file from a copy of the run directory",
                ) from error
    result.lines, result.torn = history.lines, history.torn is not None
    for name in ("begins", "ends", "sent", "done", "acked", "failed"):
        setattr(result, name, columns.whole(name))
    _check_opening(history, result)
    return result


_SLIM: Final = msgspec.json.Decoder(_Slim)
_LOOSE: Final = msgspec.json.Decoder(_Loose)


def _decode(history: HistoryFile, block: Block) -> Sequence[_Loose]:
    count = block.data.count(b"\n")
    for decoder in (_SLIM, _LOOSE):  # the second one is for unusual operations
        try:
            slims = decoder.decode_lines(block.data)
        except (ValueError, RecursionError):
            continue
        if len(slims) == count:  # the decoder skips empty lines and accepts a line break inside an object
            return slims
    lines = msgspec.json.Decoder(Line)
    for number, data in enumerate(block.lines(), block.first_line):
        decode_line(lines, data, history.path, number)
    raise UsageError(f"{history.path}: not a history", "restore the file from a copy of the run directory")


def _scan_block(
    history: HistoryFile, block: Block, slims: Sequence[_Loose], result: Scan, columns: _Columns
) -> None:
    codes = _codes(slims)
    lines = np.arange(block.first_line, block.first_line + len(slims))
    ends = np.flatnonzero(codes == _END)
    if len(ends):
        columns.asked([slims[i] for i in ends.tolist()], lines[ends])
    answers = np.flatnonzero((codes & _ANSWER) > 0)
    if len(answers):
        columns.answered([slims[i] for i in answers.tolist()], codes[answers] & 3, lines[answers])
    begins = np.flatnonzero(codes == _BEGIN).tolist()
    if begins:
        columns.began([slims[i] for i in begins])
        for i in begins:
            result.begun[slims[i].producer] = (slims[i].txn, block.first_line + i)
    rare = np.flatnonzero((codes & _RARE) > 0)
    if len(rare):
        _keep_rare(history, block, lines[rare].tolist(), result)


def _keep_rare(history: HistoryFile, block: Block, numbers: list[int], result: Scan) -> None:
    lines = block.lines()
    decoder = msgspec.json.Decoder(Line)
    for number in numbers:
        line = decode_line(decoder, lines[number - block.first_line], history.path, number)
        if isinstance(line, HistoryOpened):
            result.opening = line
        elif isinstance(line, HistoryClosed):
            result.closing = line
        elif isinstance(line, Producer):
            result.producers[line.producer] = At(number, line)
        else:
            result.rare.append(At(number, line))


def _check_opening(history: HistoryFile, result: Scan) -> None:
    if result.opening is None and result.lines:
        raise UsageError(
            f"{history.path}: there is no opening line",
            "the first line of a history holds format, run and clock; it was removed from this file",
        )
    if result.opening is not None and result.opening.format != FORMAT:
        raise UsageError(
            f"{history.path}: format {result.opening.format}, but this version reads {FORMAT}",
            "read it with the version of the harness that wrote it",
        )
