"""Reading of usual lines that have the same shape: they differ only in the values of their digits.

A client writes a few kinds of lines, and most numbers keep their count of digits for a long time. So most
lines of a block have one of a few shapes. One line is parsed with a regular expression. Then numpy compares
all lines of its length with it, and reads each number of all these lines at the same place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from harness.evidence.bit_words import Bools, Ints
from harness.evidence.eight_bytes import eight_digits

FUNCTIONS: Final = ("begin", "commit", "abort", "send", "abandon")
"""Operations whose lines may be usual. The column `f` contains an index into this tuple."""

MOST_INTERVALS: Final = 64
"""Maximum number of intervals in a usual line. Each costs a step that all lines of a block share."""

MOST_DIGITS: Final = 18
"""Maximum number of digits of a number that is read. Such a number always fits into 64 bits."""

MOST_SKIPPED_DIGITS: Final = 23
"""Maximum number of digits of a number that is not read."""

_WORTH_LINES: Final = 16
"""Number of lines of the same length above which it is faster to compare them with one of them."""

_MOST_SHAPES: Final = 8
"""Maximum number of shapes that are tried for lines of the same length."""

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Lines(NamedTuple):
    """Usual lines of one kind as columns, sorted by line."""

    line: Ints
    columns: Ints
    """One row for each of: f, op, mono; of a request also producer, txn."""
    tuples: Ints
    """One row for the index of the line, and one for each number of a tuple."""


class _Kind(NamedTuple):
    """A kind of line: the numbers that it begins with, and the size of the tuples in its list."""

    pattern: re.Pattern[bytes]
    numbers: int
    width: int


def _pattern(kind: str, numbers: str, name: str, width: int, after: str) -> re.Pattern[bytes]:
    number, skipped = (f"(?:0|[1-9][0-9]{{0,{most - 1}}})" for most in (MOST_DIGITS, MOST_SKIPPED_DIGITS))
    item = rf"\[{','.join([number] * width)}\]"
    text = (
        rf'\{{"type":"{kind}","f":"(?P<f>{"|".join(FUNCTIONS)})","op":N{numbers}'
        rf'(?P<list>,"{name}":\[{item}(?:,{item}){{0,{MOST_INTERVALS - 1}}}\])?{after}'
        rf',"mono":N,"wall":S\}}'
    )
    return re.compile(text.replace("N", number).replace("S", skipped).encode())


_REQUEST: Final = _Kind(
    _pattern("invoke", ',"producer":N(?P<txn>,"txn":N)?', "sent", 3, '(?:,"limit_ms":S)?'), 2, 3
)
_ANSWER: Final = _Kind(_pattern("ok", "", "acked", 4, ""), 1, 4)
_DIGITS: Final = re.compile(rb"[0-9]+")


class _Shape:
    """The shape of a line: its fixed bytes, the places of its digits, and which of its numbers are read."""

    def __init__(self, kind: _Kind, line: bytes, match: re.Match[bytes]) -> None:
        self.kind = kind
        self.f = FUNCTIONS.index(match["f"].decode())
        spans = [found.span() for found in _DIGITS.finditer(line)]
        self.template: Bytes = np.frombuffer(line, np.uint8).copy()
        self.most: Bytes = np.zeros(len(line), np.uint8)
        for start, end in spans:
            self.template[start:end] = ord("0")
            self.most[start:end] = 9
        self.first_digits = [start for start, end in spans if end - start > 1]
        has_txn = kind is _REQUEST and match["txn"] is not None
        numbers = kind.numbers + has_txn
        listed = len(_DIGITS.findall(match["list"] or b""))
        self.tuples = listed // kind.width
        # The order of the columns of `Lines`, and then the numbers of the list.
        self.spans = [spans[0], spans[-2], *spans[1 : numbers + listed]]
        self.has_txn = has_txn

    def read(self, lines: Ints, digits: Bytes) -> Lines:
        """Return the numbers of these lines. `digits` are their bytes, in which fixed bytes are zero."""
        values = _numbers(digits, self.spans)
        columns = np.empty((3 if self.kind is _ANSWER else 5, len(lines)), np.int64)
        columns[0] = self.f
        columns[1:3] = values[:2]
        at = 2
        if self.kind is _REQUEST:
            at += 1 + self.has_txn
            columns[3:] = -1
            columns[3 : 1 + at] = values[2:at]
        return Lines(lines, columns, self._tuples(values[at:]))

    def _tuples(self, values: Ints) -> Ints:
        """Return the tuples of all lines. Those of the same line follow each other."""
        width, lines = self.kind.width, values.shape[1]
        tuples = np.empty((width + 1, lines, self.tuples), np.int64)
        tuples[0] = np.arange(lines)[:, None]
        tuples[1:] = values.reshape(self.tuples, width, lines).transpose(1, 2, 0)
        return tuples.reshape(width + 1, -1)

    def fits(self, digits: Bytes) -> Bools:
        """Return a mask of the lines that have this shape. Their numbers have no leading zeros."""
        wrong = digits > self.most
        fits = ~wrong.any(axis=1) if wrong.any() else np.ones(len(digits), np.bool_)
        for at in self.first_digits:
            fits &= digits[:, at] > 0
        return np.asarray(fits)


def _numbers(digits: Bytes, spans: list[tuple[int, int]]) -> Ints:
    """Decode the number at each span in all lines; one row for each span."""
    rows, size = digits.shape
    pieces = [(start, min(start + 8, end)) for first, end in spans for start in range(first, end, 8)]
    words = np.empty((len(pieces), rows), np.uint64)
    for word, (start, end) in zip(words, pieces, strict=True):
        # At least eight bytes follow the start of each number that is read: the line ends with its time.
        column = np.ndarray((rows,), "<u8", buffer=digits, offset=start, strides=(size,))
        np.left_shift(column, np.uint64(8 * (8 - (end - start))), out=word)
    values = eight_digits(words)
    if len(pieces) == len(spans):
        return values
    row = 0
    numbers = np.empty((len(spans), rows), np.int64)
    for i, (first, end) in enumerate(spans):
        numbers[i] = values[row]
        row += 1
        for start in range(first + 8, end, 8):
            numbers[i] *= 10 ** min(8, end - start)
            numbers[i] += values[row]
            row += 1
    return numbers


def read_shapes(data: bytes, starts: Ints, ends: Ints) -> tuple[list[Lines], list[Lines]]:
    """Read the usual lines that have the same shape as several others.

    Return requests and answers, with one item for each shape. `starts` and `ends` are the places of lines.
    """
    requests: list[Lines] = []
    answers: list[Lines] = []
    sizes = ends - starts
    common = np.bincount(np.minimum(sizes, _LONGEST))
    for size in np.flatnonzero(common[:_LONGEST] >= _WORTH_LINES).tolist():
        if size >= _SHORTEST:
            for shape, lines, digits in _same_size(data, size, np.flatnonzero(sizes == size), starts):
                found = shape.read(lines, digits)
                (requests if shape.kind is _REQUEST else answers).append(found)
    return requests, answers


_SHORTEST: Final = len(b'{"type":"ok","f":"send","op":0,"mono":0,"wall":0}')
_LONGEST: Final = 4096
"""Size in bytes from which on a line is not compared with others."""


def _same_size(data: bytes, size: int, lines: Ints, starts: Ints) -> Iterator[tuple[_Shape, Ints, Bytes]]:
    """Yield the shapes of lines of the same size, with the numbers of the lines and their digits."""
    texts = np.ndarray((len(data) - size + 1,), f"V{size}", buffer=data, strides=(1,))
    for _ in range(_MOST_SHAPES):
        if len(lines) < _WORTH_LINES:
            return
        start = int(starts[lines[0]])
        shape = _shape_of(data[start : start + size].translate(_ONES))
        if shape is None:
            return
        content = texts[starts[lines]].view(np.uint8).reshape(len(lines), size)
        content ^= shape.template
        fits = shape.fits(content)
        if fits.all():
            yield shape, lines, content
            return
        if fits.any():
            yield shape, lines[fits], content[fits]
        lines = lines[~fits]


_ONES: Final = bytes.maketrans(b"023456789", b"111111111")


@lru_cache(maxsize=1024)
def _shape_of(line: bytes) -> _Shape | None:
    """Return the shape of a usual line in which each digit is 1."""
    for kind in (_REQUEST, _ANSWER):
        if match := kind.pattern.fullmatch(line):
            return _Shape(kind, line, match)
    return None
