"""SQLite connections with the functions that a contract may use, besides those that SQLite has itself."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

_NAMES: Final = """
abs avg ceil coalesce concat count dense_rank first_value floor greatest ifnull instr int lag last_value lead
least length like lower ltrim max min nullif rank replace round row_number rtrim sign substr substring sum
trim upper
"""
FUNCTIONS: Final = frozenset(_NAMES.split())
"""Functions that a contract may use: those that Spark and these connections have."""


def connect(path: Path | None = None) -> sqlite3.Connection:
    """Open a database, in memory without a path."""
    connection = sqlite3.connect(path or ":memory:", isolation_level=None)
    functions: dict[str, tuple[int, Callable[..., Any]]] = {
        "int": (1, lambda x: None if x is None else int(x)),
        "floor": (1, lambda x: None if x is None else math.floor(x)),
        "ceil": (1, lambda x: None if x is None else math.ceil(x)),
        "sign": (1, lambda x: None if x is None else (x > 0) - (x < 0)),
        "greatest": (-1, lambda *xs: max((x for x in xs if x is not None), default=None)),
        "least": (-1, lambda *xs: min((x for x in xs if x is not None), default=None)),
        "concat": (-1, _concat),
    }
    for name, (arguments, function) in functions.items():
        connection.create_function(name, arguments, function, deterministic=True)
    return connection


def _concat(*parts: object) -> str | None:
    """Join values as Spark does: a null makes the result null, and a float has a decimal point."""
    return None if None in parts else "".join(map(str, parts))
