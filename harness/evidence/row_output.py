"""Outputs of an application that are no topic: rows as JSON lines in the folder `rows` of the run directory.

A row is a record without a key. Its number, from 0, takes the place of the offset. The rows of a command or a
database have no order, so they are numbered by the tokens that they contain. Two witnesses then give the same
rows the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from harness.evidence.checkers.model import UNORDERED, Source
from harness.evidence.observation import Findings, Meta, Observation, Window
from harness.evidence.observation_builder import Records, observe_outputs
from harness.evidence.record import Identity
from harness.evidence.token import NO_TOKEN, TokenFinder

FOLDER: Final = "rows"
"""Folder of the run directory with one file for each output that consists of rows."""


class RowSource(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a witness finds the rows of one output: in a file, or in a database.

    With the source "reference", they are inputs or outputs of a calm run.
    `driver` contains the paths of the jars of the database's driver. `password` is a reference to a secret.
    """

    name: str
    source: Source | Literal["reference"]
    file: str
    counted: bool = False
    jdbc: str = ""
    query: str = ""
    driver: list[str] = []
    user: str = ""
    password: str = ""

    @property
    def is_ordered(self) -> bool:
        """Whether the order of the rows means something."""
        return self.source not in UNORDERED and self.is_output

    @property
    def is_output(self) -> bool:
        """Whether the rows are an output of this run."""
        return self.source != "reference"


class BadRowError(ValueError):
    """Error: a line is no JSON object."""


def rows_of(path: Path) -> Iterator[bytes]:
    """Yield the rows of a file; raise BadRowError for a line that is no JSON object."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            row = line.strip()
            if not row:
                continue
            try:
                is_object = isinstance(json.loads(row), dict)
            except (ValueError, RecursionError):
                is_object = False
            if not is_object:
                text = row[:60].decode(errors="replace")
                raise BadRowError(f"line {number} is no JSON object: {text!r}")
            yield row


def observe_rows(meta: Meta, row: RowSource, run: str, rows: Iterable[bytes]) -> Observation:
    """Return what a witness saw in the rows of an output: which tokens they contain, and how often."""
    finder = TokenFinder(run)
    found = [finder.find([each]) for each in rows]
    if not row.is_ordered:
        found.sort(key=lambda identities: [each[1:4] for each in identities])
    records = Records()
    for number, identities in enumerate(found):
        for identity in identities or [Identity(run, NO_TOKEN, 0, number)]:
            records.add(0, number, identity)
    meta.purpose, meta.windows = "outputs", [row_window(row.name, len(found))]
    observation = observe_outputs(meta, records, counted=row.counted)
    if not row.is_ordered:
        observation.meta.late = Findings()
    return observation


def row_window(name: str, size: int) -> Window:
    """Return the window of an output with `size` rows."""
    return Window(topic=name, partition=0, start=0, lso=size, hw=size, read_to=size)
