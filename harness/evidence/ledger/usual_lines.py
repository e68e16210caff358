"""Columnar reading of the usual lines of a history: begins, commits, aborts, sends, and their answers.

A client of the harness writes these lines in one form (history/writer.py). So numpy reads the same field of
all lines of a block at once, without an object for each line. A line is usual only if each of its bytes is as
expected, from the first brace to the newline. Every other line is decoded as JSON (history_scan.py).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from harness.evidence.bit_words import Bools, Ints, Words, stable_order
from harness.evidence.eight_bytes import eight_digits, leading_digits
from harness.evidence.ledger.line_shapes import (
    FUNCTIONS,
    MOST_DIGITS,
    MOST_INTERVALS,
    MOST_SKIPPED_DIGITS,
    Lines,
    read_shapes,
)

_PADDING: Final = 256
_KIND: Final = len(b'{"type":')


class Requests(NamedTuple):
    """Usual requests as columns. `sent` has the columns row, lane, first sequence, last sequence."""

    line: Ints
    f: Ints
    op: Ints
    mono: Ints
    producer: Ints
    txn: Ints
    sent: Ints


class Answers(NamedTuple):
    """Usual answers as columns. `acked` has the columns row, lane, first sequence, last sequence, offset."""

    line: Ints
    f: Ints
    op: Ints
    mono: Ints
    acked: Ints


class UsualLines(NamedTuple):
    """The usual lines of a block. `line` is the index of a line in the block, and `rest` are the others."""

    requests: Requests
    answers: Answers
    rest: Ints


class _Text:
    """The bytes of a block: one by one, and as words of eight bytes that begin at any byte."""

    def __init__(self, data: bytes) -> None:
        padded = data + bytes(_PADDING)
        self.bytes = np.frombuffer(padded, np.uint8)
        self.words: Words = np.ndarray((len(padded) - 7,), "<u8", buffer=padded, strides=(1,))


class _Cursor:
    """A position in each of several lines, and whether the bytes before it were as expected."""

    def __init__(self, text: _Text, at: Ints) -> None:
        self.text = text
        self.at = at.copy()
        self.good: Bools = np.ones(len(at), np.bool_)

    def starts(self, text: bytes) -> Bools:
        """Return a mask of the lines that continue with this text."""
        if len(text) == 1:
            return np.asarray(self.text.bytes[self.at] == text[0])
        same: Bools = np.ones(len(self.at), np.bool_)
        for start in range(0, len(text), 8):
            same &= _begins(self.text.words[self.at + start], text[start : start + 8])
        return same

    def skip(self, text: bytes) -> None:
        """Expect this text."""
        self.good &= self.starts(text)
        self.at += len(text)

    def skip_number(self) -> None:
        """Expect a number, whatever its value."""
        word = self.text.words[self.at]
        count = leading_digits(word)
        for start in (8, 16):
            whole = np.flatnonzero(count == start)
            count[whole] += leading_digits(self.text.words[self.at[whole] + start])
        self._advance(word, count, MOST_SKIPPED_DIGITS)

    def number(self) -> Ints:
        """Expect a number that is not negative, and return it."""
        first = self.text.words[self.at]
        count = leading_digits(first)
        value = eight_digits(_aligned(first, count))
        for start in (8, 16):
            whole = np.flatnonzero(count == start)
            if not len(whole):
                break
            word = self.text.words[self.at[whole] + start]
            # A third word with more than two digits is too much; do not let the value overflow.
            more = np.minimum(leading_digits(word), 8 if start == 8 else MOST_DIGITS - 16 + 1)
            value[whole] = value[whole] * _POWERS[more] + eight_digits(_aligned(word, more))
            count[whole] += more
        self._advance(first, count, MOST_DIGITS)
        return value

    def _advance(self, first: Words, count: Ints, most: int) -> None:
        is_zero = (first & np.uint64(0xFF)) == np.uint64(ord("0"))
        self.good &= (count > 0) & (count <= np.where(is_zero, 1, most))
        self.at += count

    def name(self) -> Ints:
        """Expect the name of an operation and its quote; return its index in FUNCTIONS."""
        word = self.text.words[self.at]
        f = np.full(len(self.at), -1, np.int64)
        for i, name in enumerate(FUNCTIONS):
            f[_begins(word, name.encode() + b'"')] = i
        self.good &= f >= 0
        self.at += _NAME_SIZES[f]
        return f

    def tuples(self, width: int) -> Ints:
        """Expect tuples of numbers and the end of their list; return them behind the index of their line."""
        rows = np.flatnonzero(self.good)
        found = [np.zeros((0, width + 1), np.int64)]
        for _ in range(MOST_INTERVALS):
            if not len(rows):
                break
            part = _Cursor(self.text, self.at[rows])
            columns = []
            for i in range(width):
                part.skip(b"," if i else b"[")
                columns.append(part.number())
            part.skip(b"]")
            found.append(np.column_stack([rows, *columns])[part.good])
            ended, again = part.starts(b"]"), part.starts(b",")
            self.good[rows] &= part.good & (ended | again)
            self.at[rows] = part.at + 1
            rows = rows[again & part.good]
        self.good[rows] = False
        table = np.concatenate(found)
        return table[np.argsort(table[:, 0], kind="stable")]


_NAME_SIZES: Final = np.array([len(name) + 1 for name in FUNCTIONS])
_POWERS: Final = 10 ** np.arange(9, dtype=np.int64)


def _begins(word: Words, text: bytes) -> Bools:
    """Return a mask of the words that begin with a text of at most eight bytes."""
    if len(text) < 8:
        word = word & np.uint64((1 << 8 * len(text)) - 1)
    return np.asarray(word == np.uint64(int.from_bytes(text, "little")))


def _aligned(word: Words, count: Ints) -> Words:
    """Move the first `count` bytes of each word to its end, and fill it with zeros."""
    half = (32 - 4 * count).astype(np.uint64)  # a shift by 64 bits is undefined, so shift twice
    return (word << half) << half


def read_usual(data: bytes) -> UsualLines:
    """Read the usual lines of complete lines. All numbers of lines are indices, which begin at 0."""
    text = _Text(data)
    ends = np.flatnonzero(text.bytes == ord("\n"))
    starts = np.append(0, ends[:-1] + 1)
    requests, answers = read_shapes(data, starts, ends)
    is_rest = np.ones(len(starts), np.bool_)
    for part in (*requests, *answers):
        is_rest[part.line] = False
    others = np.flatnonzero(is_rest)
    if len(others):
        kind = text.words[starts[others] + _KIND]
        invoke = others[kind == np.uint64(int.from_bytes(b'"invoke"', "little"))]
        ok = others[kind == np.uint64(int.from_bytes(b'"ok","f"', "little"))]
        requests.append(_requests(text, invoke, starts, ends))
        answers.append(_answers(text, ok, starts, ends))
        is_rest[requests[-1].line] = is_rest[answers[-1].line] = False
    asked, answered = _in_order(requests, 5, 3), _in_order(answers, 3, 4)
    f, op, mono, producer, txn = asked.columns
    answered_f, answered_op, answered_mono = answered.columns
    return UsualLines(
        Requests(asked.line, f, op, mono, producer, txn, asked.tuples.T),
        Answers(answered.line, answered_f, answered_op, answered_mono, answered.tuples.T),
        np.flatnonzero(is_rest),
    )


def _in_order(parts: list[Lines], numbers: int, width: int) -> Lines:
    """Join lines of one kind, in the order of the lines; their numbers are as in `Lines`."""
    if not parts:
        sizes = ((0,), (numbers, 0), (width + 1, 0))
        return Lines(*(np.zeros(size, np.int64) for size in sizes))
    if len(parts) == 1:
        return parts[0]
    line = np.concatenate([part.line for part in parts])
    order = stable_order(line)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    columns = np.concatenate([part.columns for part in parts], axis=1)
    tuples = np.concatenate([part.tuples for part in parts], axis=1)
    base = np.cumsum([0, *(len(part.line) for part in parts[:-1])])
    tuples[0] = place[tuples[0] + np.repeat(base, [part.tuples.shape[1] for part in parts])]
    tuples = np.take(tuples, stable_order(tuples[0]), axis=1)
    return Lines(line[order], np.take(columns, order, axis=1), tuples)


def _opening(text: _Text, lines: Ints, starts: Ints, kind: bytes) -> tuple[_Cursor, Ints, Ints]:
    """Read the first fields of a line; return also the operation's index in FUNCTIONS, and its number."""
    cursor = _Cursor(text, starts[lines])
    cursor.skip(b'{"type":"' + kind + b'","f":"')
    f = cursor.name()
    cursor.skip(b',"op":')
    return cursor, f, cursor.number()


def _optional(cursor: _Cursor, prefix: bytes) -> tuple[Ints, _Cursor]:
    """Return the lines that continue with this text, and a cursor behind it."""
    rows = np.flatnonzero(cursor.starts(prefix) & cursor.good)
    return rows, _Cursor(cursor.text, cursor.at[rows] + len(prefix))


def _continue(cursor: _Cursor, rows: Ints, part: _Cursor) -> None:
    """Continue in these lines where the other cursor is."""
    cursor.at[rows] = part.at
    cursor.good[rows] &= part.good


def _list(cursor: _Cursor, name: bytes, width: int) -> Ints:
    """Read an optional list of tuples."""
    with_list, part = _optional(cursor, b',"' + name + b'":[')
    rows = part.tuples(width)
    _continue(cursor, with_list, part)
    rows[:, 0] = with_list[rows[:, 0]]
    return rows


def _times(cursor: _Cursor, ends: Ints) -> Ints:
    """Read the times, expect the end of the line, and return the monotonic time."""
    cursor.skip(b',"mono":')
    mono = cursor.number()
    cursor.skip(b',"wall":')
    cursor.skip_number()
    cursor.skip(b"}")
    cursor.good &= cursor.at == ends
    return mono


def _of_good(rows: Ints, good: Bools) -> Ints:
    """Return the rows of good lines, with the index of the line among the good ones."""
    rows = rows[good[rows[:, 0]]]
    rows[:, 0] = (np.cumsum(good) - 1)[rows[:, 0]]
    return rows


def _requests(text: _Text, lines: Ints, starts: Ints, ends: Ints) -> Lines:
    cursor, f, op = _opening(text, lines, starts, b"invoke")
    cursor.skip(b',"producer":')
    producer = cursor.number()
    txn = np.full(len(lines), -1, np.int64)
    with_txn, part = _optional(cursor, b',"txn":')
    txn[with_txn] = part.number()
    _continue(cursor, with_txn, part)
    sent = _list(cursor, b"sent", 3)
    with_limit, part = _optional(cursor, b',"limit_ms":')
    part.skip_number()
    _continue(cursor, with_limit, part)
    mono = _times(cursor, ends[lines])
    good = cursor.good
    columns = np.stack([f, op, mono, producer, txn])[:, good]
    return Lines(lines[good], columns, _of_good(sent, good).T)


def _answers(text: _Text, lines: Ints, starts: Ints, ends: Ints) -> Lines:
    cursor, f, op = _opening(text, lines, starts, b"ok")
    acked = _list(cursor, b"acked", 4)
    mono = _times(cursor, ends[lines])
    good = cursor.good
    columns = np.stack([f, op, mono])[:, good]
    return Lines(lines[good], columns, _of_good(acked, good).T)
