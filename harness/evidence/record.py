"""The identity of a record: fixed-width ASCII in front of the payload.

    EOS1 r7k2m9qa 000003 00001 000000000042 00000000007 c r | payload, any bytes, any size
    ^    ^        ^      ^     ^            ^           ^ ^
    |    run      |      lane  sequence     transaction | kind: r record, p pipeline output
    magic+version producer                              intended outcome: c commit, a abort, n none

(The spaces are only for readability.) Because of the fixed width, numpy can decode many records at once. In
an output of a pipeline, the identity is followed by the identity of the input from which the output was made.

This module imports only the standard library, because Spark's Python workers get it without the rest of the
harness.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MAGIC: Final = b"EOS1"
WIDTH: Final = 48
ORIGIN_WIDTH: Final = 32
HEADER: Final = "eos-id"
"""Name of the record header with the identity. It is used if the record's value belongs to the user's
application.
"""

COMMIT: Final = "c"
ABORT: Final = "a"
NONE: Final = "n"
OUTCOMES: Final = (COMMIT, ABORT, NONE)
KIND_RECORD: Final = "r"
KIND_PIPELINE: Final = "p"

CHECKSUM_WIDTH: Final = 8
"""Width of the checksum at the end of a pipeline's output: the CRC-32 of the input's value, in hexadecimal.
"""
_HEX: Final = frozenset(b"0123456789abcdef")


class Field(NamedTuple):
    """Name, first byte and width in bytes of one field of the identity."""

    name: str
    start: int
    width: int


FIELDS: Final = (
    Field("magic", 0, 4),
    Field("run", 4, 8),
    Field("producer", 12, 6),
    Field("lane", 18, 5),
    Field("seq", 23, 12),
    Field("txn", 35, 11),
    Field("outcome", 46, 1),
    Field("kind", 47, 1),
)
ORIGIN_FIELDS: Final = (
    Field("origin_producer", 48, 6),
    Field("origin_lane", 54, 5),
    Field("origin_seq", 59, 12),
    Field("part", 71, 3),
    Field("processor", 74, 6),
)
MAX_PRODUCER: Final = 10**6 - 1
MAX_LANE: Final = 10**5 - 1
MAX_SEQ: Final = 10**12 - 1
MAX_TXN: Final = 10**11 - 1
MAX_PART: Final = 10**3 - 1


class NotARecordError(ValueError):
    """Error: the bytes do not start with a valid identity. The message gives the reason."""


class Origin(NamedTuple):
    """Origin of a pipeline's output: the input from which it was made.

    `part` is the part number: several outputs of the same input have different part numbers. `processor` is
    the producer number of the pipeline client that made the output.
    """

    producer: int
    lane: int
    seq: int
    part: int = 0
    processor: int = 0


class Identity(NamedTuple):
    """Identity of a record. No two records sent in a run have the same producer, lane and sequence."""

    run: str
    producer: int
    lane: int
    seq: int
    txn: int = 0
    outcome: str = NONE
    origin: Origin | None = None


def _number(name: str, value: int, maximum: int) -> int:
    if not 0 <= value <= maximum:
        raise ValueError(f"{name} is {value}: it must lie between 0 and {maximum}")
    return value


def _lane_prefix(run: str, producer: int, lane: int) -> bytes:
    if len(run) != 8 or not (run.isascii() and run.isalnum()):
        raise ValueError(f"run is {run!r}: it must be 8 ASCII letters and digits")
    _number("producer", producer, MAX_PRODUCER)
    _number("lane", lane, MAX_LANE)
    return b"%b%b%06d%05d" % (MAGIC, run.encode("ascii"), producer, lane)


def _txn_suffix(txn: int, outcome: str, kind: str) -> bytes:
    _number("txn", txn, MAX_TXN)
    if outcome not in OUTCOMES:
        raise ValueError(f"outcome is {outcome!r}: it must be one of {', '.join(OUTCOMES)}")
    return b"%011d%b%b" % (txn, outcome.encode("ascii"), kind.encode("ascii"))


def _origin_bytes(origin: Origin) -> bytes:
    _number("origin_producer", origin.producer, MAX_PRODUCER)
    _number("origin_lane", origin.lane, MAX_LANE)
    _number("origin_seq", origin.seq, MAX_SEQ)
    _number("part", origin.part, MAX_PART)
    _number("processor", origin.processor, MAX_PRODUCER)
    return b"%06d%05d%012d%03d%06d" % origin


class LaneEncoder:
    """Encoder for the records of one lane. It encodes their constant fields only once."""

    def __init__(self, run: str, producer: int, lane: int, payload: bytes = b"") -> None:
        self._prefix = _lane_prefix(run, producer, lane)
        self._payload = payload

    def batch(self, first: int, count: int, txn: int = 0, outcome: str = NONE) -> list[bytes]:
        """Encode `count` records of one transaction, with consecutive sequences from `first` on."""
        _number("seq", first, MAX_SEQ)
        _number("seq", first + max(count, 1) - 1, MAX_SEQ)
        prefix = self._prefix
        suffix = _txn_suffix(txn, outcome, KIND_RECORD) + self._payload
        return [b"%b%012d%b" % (prefix, seq, suffix) for seq in range(first, first + count)]

    def output(self, seq: int, txn: int, outcome: str, origin: Origin) -> bytes:
        """Encode one output of a pipeline, with the identity of its input."""
        _number("seq", seq, MAX_SEQ)
        suffix = _txn_suffix(txn, outcome, KIND_PIPELINE)
        return b"%b%012d%b%b%b" % (self._prefix, seq, suffix, _origin_bytes(origin), self._payload)


def encode(identity: Identity, payload: bytes = b"") -> bytes:
    """Encode one record.

    To encode many records of one lane, use a LaneEncoder, which is several times faster.
    """
    lane = LaneEncoder(identity.run, identity.producer, identity.lane, payload)
    if identity.origin is not None:
        return lane.output(identity.seq, identity.txn, identity.outcome, identity.origin)
    return lane.batch(identity.seq, 1, identity.txn, identity.outcome)[0]


def _digits(value: bytes, field: Field) -> int:
    text = value[field.start : field.start + field.width]
    # int() would also accept signs, spaces and underscores, which no encoder writes.
    if not text.isdigit():
        raise NotARecordError(
            f"bytes {field.start}-{field.start + field.width - 1} ({field.name}) are {text!r}"
        )
    return int(text)


def decode(value: bytes | None) -> Identity:
    """Decode the identity at the start of a value. Raise NotARecordError with the reason if it is invalid."""
    if value is None:
        raise NotARecordError("the value is null")
    if len(value) < WIDTH:
        raise NotARecordError(f"{len(value)} bytes are too few: an identity has {WIDTH}")
    if value[:4] != MAGIC:
        raise NotARecordError(f"it does not begin with {MAGIC.decode()}")
    run, outcome, kind = value[4:12], chr(value[46]), chr(value[47])
    if not run.isalnum():
        raise NotARecordError(f"bytes 4-11 (run) are {run!r}")
    if outcome not in OUTCOMES:
        raise NotARecordError(f"byte 46 (outcome) is {outcome!r}")
    if kind not in (KIND_RECORD, KIND_PIPELINE):
        raise NotARecordError(f"byte 47 (kind) is {kind!r}")
    origin = None
    if kind == KIND_PIPELINE:
        if len(value) < WIDTH + ORIGIN_WIDTH:
            raise NotARecordError(f"{len(value)} bytes are too few: an output has {WIDTH + ORIGIN_WIDTH}")
        origin = Origin(*(_digits(value, field) for field in ORIGIN_FIELDS))
    producer, lane, seq, txn = (_digits(value, field) for field in FIELDS[2:6])
    return Identity(run.decode("ascii"), producer, lane, seq, txn, outcome, origin)


def input_checksum(value: bytes) -> int:
    """Return the checksum of the input at the end of a pipeline's output, or -1 if the output has none.

    `value` is the whole value of the output.
    """
    tail = value[WIDTH + ORIGIN_WIDTH :][-CHECKSUM_WIDTH:]
    return int(tail, 16) if len(tail) == CHECKSUM_WIDTH and _HEX.issuperset(tail) else -1
