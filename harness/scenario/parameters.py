"""The parameters of a fault: fields of its class in Python, keys with units in a scenario file."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from harness.base.units import Duration, Rate
from harness.faults.catalogue import FAULTS
from harness.scenario.model import FaultEntry

# A parameter is written with its unit; its field carries the unit that the fault counts in.
_UNITS: dict[str, tuple[type[Duration] | type[Rate], float]] = {
    "_ms": (Duration, 1000),
    "_us": (Duration, 1_000_000),
    "_kb_s": (Rate, 0.001),
}


def make_fault(entry: FaultEntry) -> Any:
    """The fault of an entry, with its parameters."""
    return FAULTS[entry.fault](**entry.parameters)


def parameters_of(fault: str) -> dict[str, str]:
    """The parameters of a fault as they are written, and the fields that they set."""
    return {_written(field.name): field.name for field in fields(FAULTS[fault])}


def missing_parameter(entry: FaultEntry) -> str | None:
    """A parameter that this fault cannot do without and that the entry does not give."""
    needed = (field.name for field in fields(FAULTS[entry.fault]) if field.default is MISSING)
    return next((_written(name) for name in needed if name not in entry.parameters), None)


def in_units_of(field: str, value: object) -> object:
    """The value as the field counts it; a ValueError says which units are allowed."""
    for suffix, (unit, factor) in _UNITS.items():
        if field.endswith(suffix):
            return round(unit.parse(value) * factor)
    return value


def written(field: str, value: object) -> tuple[str, object]:
    """A parameter as it stands in a file: its key, and its value with the unit."""
    for suffix, (unit, factor) in _UNITS.items():
        if field.endswith(suffix) and isinstance(value, int | float):
            return _written(field), unit(value / factor)
    return field, value


def _written(field: str) -> str:
    """A parameter's name in a file: its unit stands with the value."""
    return field.removesuffix(next((unit for unit in _UNITS if field.endswith(unit)), ""))
