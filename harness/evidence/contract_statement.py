"""Statements of a contract in SQL, and the result that a witness got for each.

A contract becomes a list of statements. A statement is a query over tables of inputs and outputs. It returns
the rows that break the contract: the kind of the deviation, its weight, and columns that describe it. Spark
and the plain reader decode the records independently, run the same queries with different SQL engines, and
must get the same results.

Every table has these columns besides its fields:

    eos_id            token of the record, in lower case; null if it contains none
    kafka_partition   partition
    kafka_offset      offset
    kafka_key         key as text; a number if all keys are numbers
    kafka_value       value as text; a number if all values are numbers

A field is a number (64-bit float) if it is a number or a boolean in every record that has it, else a text.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

PLACES: Final = ("eos_id", "kafka_partition", "kafka_offset")
TEXTS: Final = ("kafka_key", "kafka_value")
NUMBER_PATTERN: Final = r"-?[0-9]{1,15}(\.[0-9]{1,15})?"
"""Texts of this form are numbers, if all texts of a column have it."""
REFERENCES: Final = (".reference", ".reference-2")
"""Ends of the names of tables with the inputs and outputs of the two calm runs before a run."""
MOST_EXAMPLES: Final = 5
MOST_REQUIRED: Final = 1000
"""Most outputs of an input that a query may demand."""

PERMITTED: Final = "permitted"
"""Kind of a deviation that the contract permits: it is listed, but is no anomaly."""
KINDS: Final = {
    "missing": "too few outputs, or none",
    "repeated": "more outputs than demanded",
    "extra": "an output that nothing demands",
    "differs": "another value than demanded",
    "went_back": "a value that is older than an earlier one",
    "split": "outputs of one key in several partitions",
    PERMITTED: "outputs that the contract permits to be repeated",
}
"""Kinds of deviations that a query may return."""

Cell = str | None


class ContractTable(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of a contract: a topic of inputs or outputs.

    `fields` are the fields that the statements use. Fields of nested objects have joined names: `total` of
    `invoice` is `invoice_total`. If the values are CSV, `columns` are the names of their columns.
    """

    name: str
    topic: str
    fields: list[str] = []
    columns: list[str] = []


class Statement(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One demand on an output: `query` returns the deviations, `count` what was compared.

    `text` is the demand as the scenario has it. `columns` are the names of the columns after kind and weight.
    `needs_end` means that the demand only holds when all inputs are processed.
    """

    output: str
    verb: str
    text: str
    query: str
    count: str
    columns: list[str]
    needs_end: bool = False


class RequiredQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Query that returns the number of outputs that each input must have in one output topic.

    Its columns are `eos_id` and `required`. `text` is the expression as the scenario has it. `numbered` means
    that witnesses list the inputs for which the query returned a number; those of earlier releases did not.
    """

    topic: str
    text: str
    query: str
    numbered: bool = False


class Deviation(msgspec.Struct, forbid_unknown_fields=True):
    """All rows of one kind that a query returned: their number, their weight, and the first ones as text."""

    kind: str
    rows: int
    weight: int
    examples: list[list[Cell]]


class StatementResult(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Result of one statement. `error` is the reason why the query could not be run."""

    output: str
    verb: str
    text: str
    compared: int = 0
    found: list[Deviation] = []
    error: str = ""


def identifier(name: str) -> str:
    """Return a name of a table or column in quotes."""
    return f"`{name}`"


def is_identifier(name: str) -> bool:
    """Return whether a name can be the name of a table or column."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", name) is not None


def as_cell(value: object) -> Cell:
    """Return a value as text: the same number is the same text in all engines."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return f"{float(value):.12g}"
    return str(value)


def paths_of(field: str) -> list[list[str]]:
    """Return the paths in a JSON object that a field name may mean: `a_b` is `a_b`, or `b` in `a`."""
    words = field.split("_")
    paths = [[field]]
    for i in range(1, min(len(words), 5)):
        paths += [["_".join(words[:i]), *rest] for rest in paths_of("_".join(words[i:]))]
    return [path for path in paths if all(path)]
