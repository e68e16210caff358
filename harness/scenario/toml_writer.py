"""Writer of scenario files.

It writes values with units, and omits default values. `load` can read the result.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from harness.base.units import Duration, Rate, Size, Span
from harness.scenario.model import FaultEntry, Scenario
from harness.scenario.parameters import key_and_value

_TABLES: Final = ("scenario", "cluster", "walkthrough", "app", "plan", "limits", "verify")
_LISTS: Final = ("workload", "input", "output")


def text_of(scenario: Scenario) -> str:
    """Return the text of the scenario file for a scenario."""
    parts = []
    for name in _TABLES:
        table = getattr(scenario, name)
        if table is not None and (lines := _lines(_changed(table))):
            parts.append([f"[{name}]", *lines])
    for name in _LISTS:
        parts += [[f"[[{name}]]", *_lines(_changed(entry))] for entry in getattr(scenario, name)]
    parts += [["[[fault]]", *_lines(_fault(entry))] for entry in scenario.fault]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _changed(table: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a table whose value differs from the default, and those without a default."""
    defaults = {field.name: field for field in msgspec.structs.fields(table)}
    return {
        defaults[name].encode_name: value
        for name in table.__struct_fields__
        if (value := getattr(table, name)) != _default(defaults[name])
    }


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


def _fault(entry: FaultEntry) -> dict[str, Any]:
    fields = _changed(entry)
    parameters = fields.pop("parameters", {})
    if entry.throughout:
        fields.pop("lasts", None)
    return fields | dict(key_and_value(name, value) for name, value in parameters.items())


def _lines(table: dict[str, Any]) -> list[str]:
    return [f"{name} = {_value(value)}" for name, value in table.items()]


def _value(value: object) -> str:
    """Return one value as TOML text. Strings are encoded as JSON, because a JSON string is valid TOML."""
    if isinstance(value, Span):
        return _value(value[0]) if value[0] == value[1] else _value(list(value))
    if isinstance(value, Duration | Size | Rate):
        return json.dumps(str(value))
    if isinstance(value, msgspec.Struct):
        return _value(_changed(value))
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(str(k))} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
