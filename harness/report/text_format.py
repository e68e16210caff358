"""What was measured, in words: a value in a line, rows in columns."""

from __future__ import annotations

from collections.abc import Sequence


def flat(measured: object) -> str:
    """A value or a table of values in one line; lists of whole objects are for the files of the run."""
    if isinstance(measured, dict):
        shown = {name: value for name, value in measured.items() if not _objects(value)}
        return ", ".join(f"{name} {_words(value)}" for name, value in shown.items())
    return _words(measured)


def _words(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{k}={v}" for k, v in value.items())
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _objects(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(one, dict) for one in value)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of a table as lines whose cells stand under each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
