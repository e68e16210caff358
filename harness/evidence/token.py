"""The token: the identity of an input as one word, which an application copies into its outputs.

    eos1 r7k2m9qa 000003 00001 000000000042
    |    run      |      lane  sequence
    magic         producer

(The spaces are only for readability.) A token is the first 35 bytes of the identity of a record (record.py)
in lower case. It contains no punctuation, so it survives JSON, CSV, string fields of Avro and Protobuf,
splitting into words, and a change of case. It is found anywhere in the key, the value and the headers of a
record.

A record of an output topic without a token gets an identity too: producer 99999, and its offset as the
sequence. So a witness counts such records like all others. Spark reads inputs and outputs in one pass. To
keep them apart, each output topic has a slot from 1 to 9. The slot replaces the first digit of the producer
number, which is 0 in every token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from harness.evidence.record import FIELDS, MAGIC, MAX_LANE, MAX_SEQ, NONE, Identity, NotARecordError

TOKEN_WIDTH: Final = 35
NUMBERS_WIDTH: Final = 23
"""Width of the producer, lane and sequence at the end of a token."""
SLOT_PRODUCERS: Final = 100_000
"""Number of producer numbers in each slot. Slot 0 contains the inputs."""
MAX_SLOT: Final = 9
NO_TOKEN: Final = SLOT_PRODUCERS - 1
"""Producer number of the records of an output topic without a token."""
DIGITS: Final = 22
"""Digits of a token after the first digit of the producer number."""

_WIDTHS: Final = {field.name: field.width for field in FIELDS}


def token_of(run: str, producer: int, lane: int, seq: int) -> str:
    """Return the token of an input."""
    if not 0 <= producer < NO_TOKEN or not 0 <= lane <= MAX_LANE or not 0 <= seq <= MAX_SEQ:
        raise ValueError(f"producer {producer}, lane {lane}, sequence {seq} do not fit into a token")
    return f"{MAGIC.decode()}{run}{producer:06d}{lane:05d}{seq:012d}".lower()


def token_pattern(run: str) -> str:
    """Return a regular expression that finds the tokens of a run. Its group 1 contains the last digits."""
    return f"(?i){MAGIC.decode()}{run}0([0-9]{{{DIGITS}}})"


class TokenFinder:
    """Finder of the tokens of one run."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._pattern = re.compile(token_pattern(run).encode())

    def find(self, parts: Iterable[bytes | None]) -> list[Identity]:
        """Return the identity of every different token in the parts of a record, in their order."""
        found = dict.fromkeys(digits for part in parts if part for digits in self._pattern.findall(part))
        return [self._identity(digits.decode()) for digits in found]

    def inputs(self, parts: Iterable[bytes | None]) -> list[Identity]:
        """Return what a witness records about a record of an input topic.

        Raise NotARecordError if the record contains no token.
        """
        if found := self.find(parts):
            return found
        raise NotARecordError("it contains no token of this run")

    def outputs(self, offset: int, parts: Iterable[bytes | None]) -> list[Identity]:
        """Return what a witness records about the record at an offset of an output topic."""
        return self.find(parts) or [Identity(self._run, NO_TOKEN, 0, offset)]

    def _identity(self, digits: str) -> Identity:
        producer, lane = _WIDTHS["producer"] - 1, _WIDTHS["lane"]
        return Identity(
            self._run,
            int(digits[:producer]),
            int(digits[producer : producer + lane]),
            int(digits[producer + lane :]),
            0,
            NONE,
        )
