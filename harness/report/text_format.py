"""Plain text for measured values and tables."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_WIDEST = 1_000_000
"""Width in characters of the canvas for tables, so that no row is cut or wrapped."""


def format_value(measured: object) -> str:
    """Format a value or a dict of values in one line. Leave out the values that are lists of objects."""
    if isinstance(measured, dict):
        shown = {name: value for name, value in measured.items() if not _holds_objects(value)}
        return ", ".join(f"{name} {_format_cell(value)}" for name, value in shown.items())
    return _format_cell(measured)


def _format_cell(value: object) -> str:
    if isinstance(value, dict):
        return " ".join(f"{k}={v}" for k, v in value.items())
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _holds_objects(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def format_table(
    rows: Sequence[Sequence[str]],
    head: Sequence[str] = (),
    *,
    right: Sequence[int] = (),
    markdown: bool = False,
) -> list[str]:
    """Return a table as lines of plain text, one line per row, independent of the terminal's width.

    `right` names the columns that are aligned to the right. `markdown` draws the borders of a Markdown table.
    """
    if not (head or rows):
        return []
    if markdown:
        table = Table(box=box.MARKDOWN, show_header=bool(head))
    else:
        # Put two spaces between the columns and none outside.
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=bool(head))
    for number in range(len(head or rows[0])):
        name = Text(head[number]) if head else ""
        table.add_column(name, justify="right" if number in right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    canvas = io.StringIO()
    Console(file=canvas, width=_WIDEST, color_system=None, force_terminal=False).print(table, crop=False)
    lines = [line.rstrip() for line in canvas.getvalue().splitlines()]
    return [line for line in lines if line] if markdown else lines
