"""Fields of a record's value: of a JSON object, or of a line of CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from typing import Any

Field = str | float | None


def fields_of(value: bytes | str | None, columns: Sequence[str] = ()) -> dict[str, Field]:
    """Return the fields of a value by name; none if it is not of the format.

    The value is a JSON object, or CSV if `columns` names its columns. Fields of nested objects have joined
    names. Lists are texts in JSON.
    """
    if value is None:
        return {}
    text = value if isinstance(value, str) else value.decode(errors="replace")
    if columns:
        row = next(csv.reader([text]), [])
        return dict(zip(columns, row, strict=False))
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return dict(_flat(decoded, "")) if isinstance(decoded, dict) else {}


def _flat(value: Mapping[str, Any], prefix: str) -> list[tuple[str, Field]]:
    fields: list[tuple[str, Field]] = []
    for name, each in value.items():
        if isinstance(each, dict):
            fields += _flat(each, f"{prefix}{name}_")
        elif isinstance(each, list):
            fields.append((f"{prefix}{name}", json.dumps(each, separators=(",", ":"))))
        else:
            fields.append((f"{prefix}{name}", float(each) if isinstance(each, bool | int) else each))
    return fields
