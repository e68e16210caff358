"""The attempts of the matrix as tables: one row for each library, one column for each case."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from harness.base.errors import UsageError
from harness.report.text_format import format_table
from harness.walkthroughs.matrix.cases import CASES, NOT_SHOWN
from harness.walkthroughs.matrix.sweep import Attempt, Cell

Place = tuple[str, int]
"""A version of Kafka and a transaction version."""


def read_attempts(file: Path) -> list[Attempt]:
    """Return the attempts of a file of results: the cases of each library in their order in the matrix.

    An attempt replaces an earlier one with the same number that shows nothing. Raise UsageError if a line is
    no attempt, or if an attempt that shows something is in the file twice.
    """
    attempts: dict[tuple[Cell, int], Attempt] = {}
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        try:
            attempt = msgspec.json.decode(line, type=Attempt)
        except msgspec.MsgspecError as error:
            raise UsageError(
                f"{file}, line {number}: {error}", "`eos matrix --output` writes such lines"
            ) from error
        earlier = attempts.get((attempt.cell, attempt.number))
        if earlier is not None and earlier.mark != NOT_SHOWN:
            raise UsageError(
                f"{file}, line {number}: attempt {attempt.number} of this cell is in the file already",
                "remove one of the two lines, or write to another file",
            )
        attempts[attempt.cell, attempt.number] = attempt
    return _in_order(list(attempts.values()))


def _in_order(attempts: list[Attempt]) -> list[Attempt]:
    """Sort attempts by library, in the order of the file; by its version, the newest first; and by case."""
    libraries = {name: n for n, name in enumerate(dict.fromkeys(attempt.library for attempt in attempts))}
    cases = {case.name: n for n, case in enumerate(CASES)}

    def place(one: Attempt) -> tuple[int, list[int], int]:
        version = [-int(number) for number in re.findall(r"\d+", one.version)]
        return libraries[one.library], version, cases.get(one.case, len(cases))

    return sorted(attempts, key=place)


def _library(attempt: Attempt) -> tuple[str, str]:
    return attempt.library, attempt.version


def shown(attempts: Iterable[Attempt]) -> set[tuple[Cell, int]]:
    """Return cell and number of the attempts that show something."""
    return {(attempt.cell, attempt.number) for attempt in attempts if attempt.mark != NOT_SHOWN}


def append(file: Path, attempt: Attempt) -> None:
    """Append an attempt to a file of results."""
    with file.open("ab") as lines:
        lines.write(msgspec.json.encode(attempt) + b"\n")


def describe_attempt(attempt: Attempt) -> str:
    """Return one line that describes an attempt."""
    where = f"Kafka {attempt.kafka}, transaction.version {attempt.transaction_version}"
    return (
        f"{attempt.library} {attempt.version}, {where}, {attempt.case}: {attempt.mark} ({attempt.observed})"
    )


def differing_cells(attempts: Iterable[Attempt]) -> list[list[Attempt]]:
    """Return the cells whose attempts have different marks."""
    cells: dict[Cell, list[Attempt]] = {}
    for attempt in attempts:
        cells.setdefault(attempt.cell, []).append(attempt)
    return [cell for cell in cells.values() if len({attempt.mark for attempt in cell}) > 1]


def places(attempts: Iterable[Attempt]) -> list[Place]:
    """Return the versions of Kafka and of its transactions, the newest first."""
    found = {(attempt.kafka, attempt.transaction_version) for attempt in attempts}
    return sorted(found, key=lambda place: (tuple(map(int, place[0].split("."))), place[1]), reverse=True)


def describe_cell(attempts: Sequence[Attempt]) -> str:
    """Return the mark of a cell and its number of attempts; if attempts differ, each mark and its number."""
    if not attempts:
        return "not run"
    marks = Counter(attempt.mark for attempt in attempts)
    if len(marks) == 1:
        return f"{attempts[0].mark} ({len(attempts)})"
    return ", ".join(f"{mark} ({count})" for mark, count in sorted(marks.items()))


def format_place(attempts: Sequence[Attempt], place: Place, *, markdown: bool = False) -> list[str]:
    """Return the table of one version of Kafka."""
    here = [attempt for attempt in attempts if (attempt.kafka, attempt.transaction_version) == place]
    libraries = list(dict.fromkeys(map(_library, here)))
    cases = list(dict.fromkeys(attempt.case for attempt in here))
    rows = []
    for library in libraries:
        own = [attempt for attempt in here if _library(attempt) == library]
        cells = [describe_cell([attempt for attempt in own if attempt.case == case]) for case in cases]
        rows.append((" ".join(library), *cells))
    return format_table(rows, ("client", *cases), markdown=markdown)


def requests_of(attempts: Iterable[Attempt]) -> str:
    """Return the highest version of each request in these attempts, such as `Produce 13, EndTxn 5`."""
    highest: dict[str, int] = {}
    for attempt in attempts:
        for api, version in attempt.requests.items():
            highest[api] = max(version, highest.get(api, 0))
    return ", ".join(f"{api} {version}" for api, version in highest.items())
