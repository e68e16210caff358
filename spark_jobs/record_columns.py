"""Decoding of raw bytes into columns, for one Arrow batch at a time, without a Python object per record.

Most consecutive records differ only in their sequence. All other fields are therefore compared with the
previous record, eight bytes at a time, and decoded only where they change. Three multiplications decode the
last eight digits of each sequence.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.evidence.bit_words import Bools, Ints, Words
from harness.evidence.eight_bytes import eight_digits, not_digits
from harness.evidence.record import (
    ABORT,
    FIELDS,
    KIND_PIPELINE,
    KIND_RECORD,
    MAGIC,
    ORIGIN_FIELDS,
    ORIGIN_WIDTH,
    OUTCOMES,
    WIDTH,
    Field,
)

Bytes = npt.NDArray[np.uint8]

_BY_NAME: Final = {field.name: field for field in (*FIELDS, *ORIGIN_FIELDS)}
_SEQ = _BY_NAME["seq"]
_SEQ_LOW: Final = _SEQ.start + _SEQ.width - 8
# `same_as_before` compares eight bytes from each of these positions on. These groups of eight bytes may
# overlap. Together they cover the whole identity except the last eight digits of the sequence.
_SAME: Final = (0, 8, 16, _SEQ_LOW - 8, _SEQ.start + _SEQ.width, WIDTH - 8)
_ORIGIN_SEQ = _BY_NAME["origin_seq"]
_ORIGIN_LOW: Final = _ORIGIN_SEQ.start + _ORIGIN_SEQ.width - 8
_POWERS: Final = 10 ** np.arange(12, dtype=np.int64)[::-1]


class Values(NamedTuple):
    """The values of one batch that are long enough to contain an identity, as a table of bytes.

    Shorter values are left out. `rows` contains the index in the batch of each remaining value.
    """

    table: Bytes
    """One row per value; each row has at least WIDTH bytes."""
    rows: Ints
    lengths: Ints
    """Length in bytes of each value in `table`."""


def gather(values: pa.Array) -> Values:
    """Return the values that are long enough to contain an identity, as a table of bytes.

    If all values have the same length, the table is a view of the data and copies nothing. Otherwise the
    table is a copy, as wide as the identity of a pipeline output. If a value is shorter, the rest of its row
    is undefined.
    """
    count = len(values)
    nothing = np.zeros(0, np.int64)
    if not count:
        return Values(np.zeros((0, WIDTH), np.uint8), nothing, nothing)
    wide = pa.types.is_large_binary(values.type)
    _, offsets, data = values.buffers()
    at = np.frombuffer(offsets, np.int64 if wide else np.int32)[values.offset : values.offset + count + 1]
    lengths = np.diff(at).astype(np.int64)
    if values.null_count:
        lengths[np.asarray(values.is_null())] = -1
    flat = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    first = int(lengths[0])
    if first >= WIDTH and np.all(lengths == first):
        table = flat[at[0] : at[-1]].reshape(count, first)
        return Values(table, np.arange(count), lengths)
    rows = np.flatnonzero(lengths >= WIDTH)
    index = at[:-1][rows].astype(np.int64)[:, None] + np.arange(WIDTH + ORIGIN_WIDTH)
    return Values(flat[np.minimum(index, max(len(flat) - 1, 0))], rows, lengths[rows])


def eight(table: Bytes, start: int) -> Words:
    """Return eight bytes of every row as one number; the bytes begin at position `start`."""
    if not len(table):
        return np.zeros(0, np.uint64)
    column: Words = np.ndarray(
        (len(table),), "<u8", buffer=table.data, offset=start, strides=(table.strides[0],)
    )
    # The view is unaligned; numpy computes faster on an aligned copy.
    return column.copy()


def number(table: Bytes, field: Field) -> Ints:
    """Decode one numeric field of each row."""
    digits = table[:, field.start : field.start + field.width].astype(np.int64) - 48
    value: Ints = digits @ _POWERS[-field.width :]
    return value


def field_of(name: str) -> Field:
    """Return the place of the named field: its first byte and its width in bytes.

    The field belongs to the identity of a record, or to the origin of a pipeline output.
    """
    return _BY_NAME[name]


def same_as_before(table: Bytes, places: tuple[int, ...] = _SAME) -> Bools:
    """Return a mask of the rows that equal the previous row in certain bytes.

    Eight bytes are compared from each position in `places` on. The mask is False for the first row.
    """
    same = np.ones(len(table), np.bool_)
    same[:1] = False
    for place in places:
        column = eight(table, place)
        same[1:] &= column[1:] == column[:-1]
    return same


_PART = _BY_NAME["part"]
ORIGIN_SAME: Final = (WIDTH, _ORIGIN_LOW - 8, _PART.start)
"""Start positions of the groups of eight bytes that `same_as_before` compares in outputs of a pipeline.

Together they cover the input's producer and lane, the first four digits of the input's sequence, and the
output's part number.
"""


def sequences(table: Bytes, same: Bools) -> Ints:
    """Decode the sequence of every row.

    `same` marks rows that equal the previous row except for the last eight digits of the sequence. For these
    rows, the first four digits of the sequence are not decoded again.
    """
    return _long_number(table, same, _SEQ)


def origin_sequences(table: Bytes, same: Bools) -> Ints:
    """Decode, for every output, the sequence of its input."""
    return _long_number(table, same, _ORIGIN_SEQ)


def _long_number(table: Bytes, same: Bools, field: Field) -> Ints:
    low = eight_digits(eight(table, field.start + field.width - 8))
    heads = np.flatnonzero(~same)
    high = number(table[heads], Field("high", field.start, field.width - 8)) * 10**8
    if high.any():
        low = low + np.repeat(high, np.diff(np.append(heads, len(table))))
    return low


def _digits_everywhere(table: Bytes, start: int, stop: int) -> Bools:
    # For bytes below "0" the subtraction wraps around to a large number, so one comparison is enough.
    good: Bools = np.all(table[:, start:stop] - np.uint8(48) <= 9, axis=1)
    return good


def bad_rows(table: Bytes, same: Bools, lengths: Ints) -> Bools:
    """Return a mask of the rows that do not start with a valid identity.

    It applies the same rules as `harness.evidence.record.decode`.
    """
    heads = np.flatnonzero(~same)
    head = np.ascontiguousarray(table[heads, :WIDTH])
    run = _BY_NAME["run"]
    magic = np.all(head[:, : run.start] == np.frombuffer(MAGIC, np.uint8), axis=1)
    run_is_valid = _alphanumeric(head[:, run.start : run.start + run.width])
    # Skip the last eight digits of the sequence: they differ from row to row and are checked below.
    digits = _digits_everywhere(head, _BY_NAME["producer"].start, _SEQ_LOW)
    digits &= _digits_everywhere(head, _BY_NAME["txn"].start, _BY_NAME["outcome"].start)
    outcome = np.isin(head[:, _BY_NAME["outcome"].start], [ord(letter) for letter in OUTCOMES])
    kind = head[:, _BY_NAME["kind"].start]
    known = np.isin(kind, [ord(KIND_RECORD), ord(KIND_PIPELINE)])
    sizes = np.diff(np.append(heads, len(table)))
    bad: Bools = np.repeat(~(magic & run_is_valid & digits & outcome & known), sizes)
    wrong = not_digits(eight(table, _SEQ_LOW))
    if wrong.any():
        bad |= wrong != 0
    outputs = np.repeat(kind == ord(KIND_PIPELINE), sizes) & ~bad
    if outputs.any():
        short = outputs & (lengths < WIDTH + ORIGIN_WIDTH)
        bad |= short
        rows = np.flatnonzero(outputs & ~short)
        if len(rows):
            bad[rows] |= ~_digits_everywhere(table[rows], WIDTH, WIDTH + ORIGIN_WIDTH)
    return bad


def _alphanumeric(text: Bytes) -> Bools:
    lower = text | np.uint8(0x20)
    letter = (lower - np.uint8(ord("a"))) < 26
    good: Bools = np.all(letter | (text - np.uint8(48) <= 9), axis=1)
    return good


def runs_of(table: Bytes, heads: Ints) -> npt.NDArray[Any]:
    """Return, for each row with an index in `heads`, the run id of its record (eight bytes)."""
    run = _BY_NAME["run"]
    return np.ascontiguousarray(table[heads, run.start : run.start + run.width]).view("S8").reshape(-1)


def outcome_is_abort(table: Bytes, heads: Ints) -> Bools:
    """Return, for each row with an index in `heads`, whether its record's intended outcome is abort."""
    return np.asarray(table[heads, _BY_NAME["outcome"].start] == ord(ABORT))


def is_output(table: Bytes, heads: Ints) -> Bools:
    """Return, for each row with an index in `heads`, whether its record is an output of a pipeline."""
    return np.asarray(table[heads, _BY_NAME["kind"].start] == ord(KIND_PIPELINE))
