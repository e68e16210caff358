"""Scan of one history file into columns. All data that grows with the length of the run is in arrays.

The scan reads lines in blocks. numpy reads the usual lines of a block at once (usual_lines.py). The other
lines are decoded into small objects with only the fields that the fold needs. Rare lines (declarations,
faults, samples, inits) are decoded completely.
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
    Lateness,
    Line,
    Ok,
    Producer,
    Sample,
)
from harness.evidence.history.file_reader import BLOCK_BYTES, decode_line
from harness.evidence.ledger.line_shapes import FUNCTIONS
from harness.evidence.ledger.own_pages import empty
from harness.evidence.ledger.usual_lines import Answers, Requests, read_usual

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

SETTINGS: Final = ("transactional_id", "idempotent", "acks", "in_flight", "timeout_ms")
"""Settings of a producer that must be the same whenever its history declares it."""

NO_ANSWER: Final = 0
OK: Final = 1
FAIL: Final = 2
INFO: Final = 3

# Each history line gets a code that consists of bit flags. _ANSWER marks an answer; the two lowest bits are
# then OK, FAIL or INFO. _ASK marks a request. _END marks a request of an operation in ENDS. _BEGIN marks the
# beginning of a transaction. _RARE marks a line that the scan keeps as an object.
_ANSWER: Final = 4
_END: Final = 8
_BEGIN: Final = 16
_RARE: Final = 32
_ASK: Final = 64

# The scan looks up the code of every line, so this must be fast. CODES contains the usual operations. If a
# block contains any other operation, `_codes` uses a slower lookup for the whole block.
CODES: Final[dict[str, dict[str, int]]] = {
    "invoke": dict.fromkeys(ENDS, _ASK | _END)
    | {"begin": _ASK | _BEGIN}
    | dict.fromkeys(_KEPT, _ASK | _RARE),
    "ok": dict.fromkeys([*ENDS, "begin"], _ANSWER | OK) | dict.fromkeys(_KEPT, _ANSWER | OK | _RARE),
    "fail": {},
    "info": {},
    **{name: {"": _RARE} for name in ("open", "producer", "sample", "lateness", "fault", "close")},
}
OTHERWISE: Final = {
    "invoke": _ASK,
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
    type: Literal["open", "producer", "invoke", "ok", "fail", "info", "sample", "lateness", "fault", "close"]
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
    closed_in: int = 0
    """Number of the first closing line."""
    producers: dict[int, At] = field(default_factory=dict)
    """The last declaration of each producer."""
    contradictory: dict[int, list[str]] = field(default_factory=dict)
    """Producers that were declared again with other settings or partitions, with the reasons."""
    moved: set[int] = field(default_factory=set)
    """Producers that were declared again with another partition for a lane."""
    asks: Ints = field(default_factory=lambda: np.zeros((0, 4), np.int64))
    """Requests of all operations; columns: op, code of the operation's name, time, line."""
    begun: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The last transaction that each producer began, as a pair: number of the transaction, number of the
    line.
    """
    begins: Ints = field(default_factory=lambda: np.zeros((0, 4), np.int64))
    """Beginnings of transactions; columns: producer, txn, time, line."""
    misplaced: list[str] = field(default_factory=list)
    """Reasons why lines cannot be of one client: a second opening line, or lines after the closing line."""
    miscounted: str = ""
    """How the number of lines differs from the number in the closing line; empty if it does not."""
    reused: Ints = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    """Numbers that were used for several transactions; columns: producer, txn. The fold fills this in."""
    rare: list[At] = field(default_factory=list)
    ends: Ints = field(default_factory=lambda: np.zeros((0, 6), np.int64))
    """Commits, aborts, abandons and sends; columns: producer, txn, op, kind (see ENDS), time, line."""
    sent: Ints = field(default_factory=lambda: np.zeros((0, 4), np.int64))
    """Intervals of records sent that the lines in `ends` list; columns: row of `ends`, lane, first, last."""
    done: Ints = field(default_factory=lambda: np.zeros((0, 5), np.int64))
    """Answers to operations; columns: op, answer (OK, FAIL or INFO), time, line, code of the name."""
    acked: Ints = field(default_factory=lambda: np.zeros((0, 6), np.int64))
    """Intervals of acknowledged records; columns: op, lane, first, last, offset, line."""
    failed: Ints = field(default_factory=lambda: np.zeros((0, 4), np.int64))
    """Intervals of records that were certainly not written; columns: op, lane, first, last."""
    begin_times: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Times of the beginnings of transactions. The fold fills this in and empties `begins`."""
    waiting: Ints = field(default_factory=lambda: np.zeros((0, 6), np.int64))
    """Rows of `ends` that expect an answer but got none."""
    refused: Ints = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    """Operations of `ends` whose answer is not ok; columns: op, producer, time of the request."""
    lateness: Ints = field(default_factory=lambda: np.zeros((0, 6), np.int64))
    """Lateness of a thread; columns: since, until, wakes, largest, total, line (see Lateness)."""

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


_BEGIN_INDEX: Final = FUNCTIONS.index("begin")
_END_KINDS: Final = np.array([ENDS.get(name, -1) for name in FUNCTIONS])
_LATENESS: Final = ("since", "mono", "wakes", "largest", "total")
_LINE_COLUMNS: Final = {"asks": 3, "begins": 3, "done": 3, "acked": 5, "lateness": len(_LATENESS)}
"""Tables that a block's usual lines and its other lines both extend, with the column of the line's number."""


class _Columns:
    """The arrays of one history file. They grow with every block of lines.

    `room` is the number of rows for which a table has room. A table that needs more gets further parts.
    """

    def __init__(self, room: int) -> None:
        self.widths = {"asks": 4, "begins": 4, "ends": 6, "sent": 4, "done": 5, "acked": 6, "failed": 4}
        self.widths |= {"lateness": len(_LATENESS) + 1}
        self.room = room
        self.parts: dict[str, list[Ints]] = {name: [] for name in self.widths}
        self.used: dict[str, list[int]] = {name: [] for name in self.widths}
        self.rows = 0
        self._names: dict[str, int] = {}

    def requested(self, asks: Sequence[_Loose], lines: Ints) -> None:
        columns = ([x.op for x in asks], self._codes_of(asks), [x.mono for x in asks])
        self._add("asks", [*(_column(column) for column in columns), lines])

    def _codes_of(self, lines: Sequence[_Loose]) -> list[int]:
        """Return a number for the name of each line's operation, the same for the same name."""
        names = self._names
        try:
            return [names[x.f] for x in lines]
        except KeyError:
            for x in lines:
                names.setdefault(x.f, len(names))
            return [names[x.f] for x in lines]

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
        self._add("sent", [owners, *triples.T])
        self.rows += len(asks)

    def began(self, begins: Sequence[_Loose], lines: Ints) -> None:
        columns = ([x.producer for x in begins], [x.txn for x in begins], [x.mono for x in begins])
        self._add("begins", [*(_column(column) for column in columns), lines])

    def answered(self, answers: Sequence[_Loose], kinds: Ints, lines: Ints) -> None:
        columns = (_column([x.op for x in answers]), kinds, _column([x.mono for x in answers]), lines)
        self._add("done", [*columns, _column(self._codes_of(answers))])
        for x, line in zip(answers, lines.tolist(), strict=True):
            if x.acked:
                self._add("acked", np.array([(x.op, *ack, line) for ack in x.acked], np.int64).T)
            if x.failed:
                self._add("failed", np.array([(x.op, *failed) for failed in x.failed], np.int64).T)

    def was_late(self, line: Lateness, number: int) -> None:
        row = [*(getattr(line, name) for name in _LATENESS), number]
        self._add("lateness", np.array([row], np.int64).T)

    def _add(self, name: str, columns: Sequence[Ints] | Ints) -> None:
        """Add rows to a table. Each of its columns is contiguous."""
        count, parts, used = len(columns[0]), self.parts[name], self.used[name]
        if not count:
            return
        if not parts or used[-1] + count > parts[-1].shape[1]:
            parts.append(empty((self.widths[name], max(count, self.room)), np.int64))
            used.append(0)
        for column, values in zip(parts[-1], columns, strict=True):
            column[used[-1] : used[-1] + count] = values
        used[-1] += count

    def add_usual(self, requests: Requests, answers: Answers, first_line: int) -> None:
        """Add the usual lines of a block, whose first line has this number."""
        codes = np.array([self._names.setdefault(name, len(self._names)) for name in FUNCTIONS])
        asked = requests.line + first_line
        self._add("asks", [requests.op, codes[requests.f], requests.mono, asked])
        is_end = requests.f != _BEGIN_INDEX
        begins, ends = np.flatnonzero(~is_end), np.flatnonzero(is_end)
        begun = (requests.producer, requests.txn, requests.mono, asked)
        self._add("begins", [column[begins] for column in begun])
        kinds = _END_KINDS[requests.f]
        columns = (requests.producer, requests.txn, requests.op, kinds, requests.mono, asked)
        self._add("ends", [column[ends] for column in columns])
        row, *intervals = requests.sent.T
        if len(row) and not is_end[row].all():
            listed = is_end[row]
            row, *intervals = (column[listed] for column in requests.sent.T)
        self._add("sent", [(np.cumsum(is_end) - 1 + self.rows)[row], *intervals])
        self.rows += len(ends)
        answered = answers.line + first_line
        oks = np.full(len(answered), OK)
        self._add("done", [answers.op, oks, answers.mono, answered, codes[answers.f]])
        if len(answers.acked):
            rows = answers.acked[:, 0]
            self._add("acked", [answers.op[rows], *answers.acked[:, 1:].T, answered[rows]])

    def whole(self, name: str) -> Ints:
        parts = [part[:, :used] for part, used in zip(self.parts.pop(name), self.used[name], strict=True)]
        if not parts:
            return np.zeros((0, self.widths[name]), np.int64)
        whole = (parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)).T
        if (column := _LINE_COLUMNS.get(name)) is not None and np.any(whole[1:, column] < whole[:-1, column]):
            whole = whole[np.argsort(whole[:, column], kind="stable")]
        return whole


_USUAL_BYTES: Final = 1 << 21
"""Size of a block for numpy, in bytes. In smaller blocks, the constant cost of its steps dominates."""


_LINE_BYTES: Final = 100
"""Size in bytes that most lines have at least, to estimate the number of rows of a table."""

_MOST_ROOM: Final = 1 << 23
"""Maximum number of rows for which a table has room before it is filled."""


def _count_lines(data: bytes) -> int:
    """Return the number of complete lines. numpy is faster than `bytes.count`."""
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == ord("\n")))


def scan(history: HistoryFile) -> Scan:
    """Scan one history file. Apart from the resulting columns, memory use is constant."""
    room = min(history.size // _LINE_BYTES + 1, _MOST_ROOM)
    result, columns = Scan(history.name), _Columns(room)
    with _no_garbage_collection():
        for block in history.blocks(_USUAL_BYTES, _count_lines):
            try:
                if not _scan_usual(history, block, result, columns):
                    for part in block.parts(BLOCK_BYTES):
                        _scan_block(history, part, _decode(history, part), result, columns)
            except OverflowError as error:
                raise UsageError(
                    f"{history.path}: a number after line {block.first_line} does not fit into 64 bits",
                    "restore the file from a copy of the run directory",
                ) from error
    result.lines, result.torn = history.lines, history.torn is not None
    for name in columns.widths:
        setattr(result, name, columns.whole(name))
    _check_opening(history, result)
    counted = result.closing.lines if result.closing else None
    if counted is not None and counted != result.closed_in:
        result.miscounted = (
            f"line {result.closed_in}: the closing line counts {counted} lines, so lines were "
            f"{'removed' if counted > result.closed_in else 'added'}"
        )
    if 0 < result.closed_in < result.lines:
        result.misplaced.append(
            f"line {result.closed_in}: a closing line, but {result.lines - result.closed_in} lines follow it"
        )
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


def _scan_usual(history: HistoryFile, block: Block, result: Scan, columns: _Columns) -> bool:
    """Scan a block whose commits, aborts, sends and begins are usual lines; return whether it is one."""
    usual = read_usual(block.data)
    rest, lines = [], block.lines() if len(usual.rest) else []
    if 2 * len(usual.rest) > len(lines) and lines:
        return False
    if lines:
        rest = [lines[i] for i in usual.rest.tolist()]
        try:
            slims = _SLIM.decode_lines(b"\n".join(rest) + b"\n")
        except (ValueError, RecursionError):
            return False
        if len(slims) != len(rest) or (_codes(slims) & (_END | _BEGIN)).any():
            return False
    requests = usual.requests
    columns.add_usual(requests, usual.answers, block.first_line)
    begins = np.flatnonzero(requests.f == _BEGIN_INDEX)[::-1]
    producers, last = np.unique(requests.producer[begins], return_index=True)
    for producer, row in zip(producers.tolist(), begins[last].tolist(), strict=True):
        result.begun[producer] = (int(requests.txn[row]), block.first_line + int(requests.line[row]))
    if rest:
        rest_block = _Decoded(block, slims, usual.rest + block.first_line)
        _scan_rest(history, rest_block, result, columns)
    return True


def _scan_block(
    history: HistoryFile, block: Block, slims: Sequence[_Loose], result: Scan, columns: _Columns
) -> None:
    lines = np.arange(block.first_line, block.first_line + len(slims))
    _scan_rest(history, _Decoded(block, slims, lines), result, columns)


class _Decoded(NamedTuple):
    """Decoded lines of a block, with their numbers."""

    block: Block
    slims: Sequence[_Loose]
    lines: Ints


def _scan_rest(history: HistoryFile, decoded: _Decoded, result: Scan, columns: _Columns) -> None:
    block, slims, lines = decoded
    codes = _codes(slims)
    asks = np.flatnonzero((codes & _ASK) > 0)
    if len(asks):
        columns.requested([slims[i] for i in asks.tolist()], lines[asks])
    ends = np.flatnonzero((codes & _END) > 0)
    if len(ends):
        columns.asked([slims[i] for i in ends.tolist()], lines[ends])
    answers = np.flatnonzero((codes & _ANSWER) > 0)
    if len(answers):
        columns.answered([slims[i] for i in answers.tolist()], codes[answers] & 3, lines[answers])
    begins = np.flatnonzero((codes & _BEGIN) > 0).tolist()
    if begins:
        columns.began([slims[i] for i in begins], lines[begins])
        for i in begins:
            result.begun[slims[i].producer] = (slims[i].txn, int(lines[i]))
    rare = np.flatnonzero((codes & _RARE) > 0)
    if len(rare):
        _keep_rare(history, block, lines[rare].tolist(), result, columns)


def _keep_rare(
    history: HistoryFile, block: Block, numbers: list[int], result: Scan, columns: _Columns
) -> None:
    lines = block.lines()
    decoder = msgspec.json.Decoder(Line)
    for number in numbers:
        line = decode_line(decoder, lines[number - block.first_line], history.path, number)
        if isinstance(line, HistoryOpened):
            if number > 1:
                result.misplaced.append(f"line {number}: an opening line, which must be the first line")
            result.opening = result.opening or line
        elif isinstance(line, HistoryClosed):
            result.closing, result.closed_in = line, result.closed_in or number
        elif isinstance(line, Producer):
            _declare(result, At(number, line), line)
        elif isinstance(line, Lateness):
            columns.was_late(line, number)
        else:
            result.rare.append(At(number, line))


def _declare(result: Scan, at: At, declared: Producer) -> None:
    """Keep the declaration of a producer.

    A later declaration may add lanes. If it changes a setting or the partition of a lane, the history does
    not show which of the two applies to which record.
    """
    number = declared.producer
    before = result.producers.get(number)
    if before is not None and isinstance(earlier := before.line, Producer):
        changed = [name for name in SETTINGS if getattr(earlier, name) != getattr(declared, name)]
        kept = min(len(earlier.lanes), len(declared.lanes))
        if earlier.lanes[:kept] != declared.lanes[:kept]:
            changed.append("the partition of a lane")
            result.moved.add(number)
        if changed:
            result.contradictory.setdefault(number, []).append(
                f"line {at.number}: producer {number} is declared again with another value of "
                f"{', '.join(changed)} than in line {before.number}"
            )
        if len(declared.lanes) < len(earlier.lanes):
            lanes = [*declared.lanes, *earlier.lanes[len(declared.lanes) :]]
            at = At(at.number, msgspec.structs.replace(declared, lanes=lanes))
    result.producers[number] = at


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
