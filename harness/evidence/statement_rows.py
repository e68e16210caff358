"""Run of a contract's queries with any SQL engine, and the bit words of the outputs that inputs must have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from harness.base.errors import describe_error
from harness.evidence.bit_words import WORD_SEQS, merge, single_bits
from harness.evidence.contract_statement import (
    MOST_EXAMPLES,
    MOST_REQUIRED,
    Deviation,
    Statement,
    StatementResult,
    as_cell,
)
from harness.evidence.observation import ORIGIN, WORD, Observation, Rows
from harness.evidence.record import FIELDS

Query = Callable[[str], Sequence[Sequence[object]]]
"""Function that runs a query and returns its rows."""
OriginPart = dict[str, np.ndarray]


class RequiredError(ValueError):
    """Error: an expression does not return a number of outputs."""


def run_statement(statement: Statement, query: Query, problem: str) -> StatementResult:
    """Run one statement. `problem` is the reason why it cannot be run; empty if it can."""
    result = StatementResult(output=statement.output, verb=statement.verb, text=statement.text, error=problem)
    if problem:
        return result
    try:
        ((compared, *_),) = query(statement.count)
        counts = f"SELECT kind, count(*) AS n, sum(weight) AS w FROM ({statement.query}) AS q GROUP BY kind"
        result.compared = _whole(compared)
        for kind, rows, weight in sorted(query(counts), key=lambda row: str(row[0])):
            examples = _first(statement, query, str(kind))
            result.found.append(Deviation(str(kind), _whole(rows), _whole(weight), list(examples)))
    except Exception as error:  # noqa: BLE001 - engines raise many classes, and every one makes it unknown
        text = describe_error(error).splitlines()
        result.error = text[0][:300] if text else type(error).__name__
        result.found = []
    return result


def _first(statement: Statement, query: Query, kind: str) -> Iterator[list[str | None]]:
    """Yield the first rows of one kind, in the order of all their columns."""
    order = ", ".join(str(3 + i) for i in range(len(statement.columns)))
    rows = query(
        f"SELECT * FROM ({statement.query}) AS q WHERE kind = '{kind}' ORDER BY {order} LIMIT {MOST_EXAMPLES}"
    )
    for row in rows:
        yield [as_cell(cell) for cell in row[2:]]


def _whole(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


_PLACES = {
    field.name: slice(field.start, field.start + field.width)
    for field in FIELDS
    if field.name in ("producer", "lane", "seq")
}


def describe_required(view: Observation, rows: Sequence[Sequence[object]]) -> None:
    """Add to an observation how many outputs inputs must have, from pairs of token and number.

    The words of the observation are the inputs for which there is a number, also if it is 0. So an input that
    the query left out is no input without a demand.
    """
    view.origins = required_rows(rows)
    view.words = _numbered_inputs(rows)
    view.meta.records = int(view.words["n"].sum())
    view.meta.twice.compared = int(view.origins["n"].sum())


def _numbered_inputs(rows: Sequence[Sequence[object]]) -> Rows:
    """Return the bit words of the inputs for which there is a number of outputs."""
    tokens = [str(row[0]) for row in rows if row[0] is not None]
    columns = {
        name: np.array([int(token[place]) for token in tokens], np.int64) for name, place in _PLACES.items()
    }
    seq = columns.pop("seq")
    more = {"word": seq // WORD_SEQS, "bits": single_bits(seq), "n": np.ones(len(seq), np.int64)}
    merged = merge([columns | more], ("producer", "lane", "word"))
    table = np.zeros(len(merged["word"]), WORD)
    for name, column in merged.items():
        table[name] = column
    return table


def required_rows(rows: Sequence[Sequence[object]]) -> Rows:
    """Return the bit words of the outputs that inputs must have, from pairs of token and number.

    A row with part number `r` marks the inputs that must have more than `r` outputs. Raise RequiredError for
    a number that is not whole, negative or too large.
    """
    rows = [row for row in rows if row[0] is not None]
    tokens, required = [], np.zeros(len(rows), np.int64)
    for i, (token, number) in enumerate(rows):
        if not isinstance(number, int | float) or int(number) != number or not 0 <= number <= MOST_REQUIRED:
            raise RequiredError(f"it is {number!r} for input {token}, not a number from 0 to {MOST_REQUIRED}")
        tokens.append(str(token))
        required[i] = int(number)
    columns = {
        name: np.array([int(token[place]) for token in tokens], np.int64) for name, place in _PLACES.items()
    }
    parts = []
    for rank in range(int(required.max(initial=0))):
        some = {name: column[required > rank] for name, column in columns.items()}
        seq = some.pop("seq")
        more = {"part": np.full(len(seq), rank), "word": seq // WORD_SEQS, "bits": single_bits(seq)}
        parts.append(some | more | {"n": np.ones(len(seq), np.int64)})
    keys = ("producer", "lane", "part", "word")
    merged = merge(parts, keys) if parts else {}
    table = np.zeros(len(merged["word"]) if parts else 0, ORIGIN)
    for name, column in merged.items():
        table[name] = column
    return table
