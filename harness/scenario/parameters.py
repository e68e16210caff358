"""Parameters of faults. In Python they are fields of the fault's class; in a scenario file they are keys."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any, get_type_hints

from harness.base.units import Duration, Rate
from harness.faults.catalogue import fault_class
from harness.faults.injection import Fault
from harness.scenario.model import FaultEntry

# In a scenario file, the unit is part of the value (latency = "50ms"). In Python, the unit is part of the
# field's name (latency_ms).
_UNITS: dict[str, tuple[type[Duration] | type[Rate], float]] = {
    "_ms": (Duration, 1000),
    "_us": (Duration, 1_000_000),
    "_kb_s": (Rate, 0.001),
    "_s": (Duration, 1),
}


def make_fault(entry: FaultEntry) -> Fault[Any]:
    """Return the fault that a [[fault]] entry of a scenario describes."""
    return fault_class(entry.fault)(**entry.parameters)


def parameters_of(fault: str) -> dict[str, str]:
    """Return a dict of a fault's parameters.

    It maps each key in a scenario file to the name of the Python field.
    """
    return {_key(field.name): field.name for field in _fields(fault)}


def missing_parameter(entry: FaultEntry) -> str | None:
    """Return the key of a required parameter that a [[fault]] entry lacks; None if it has all of them."""
    needed = (field.name for field in _fields(entry.fault) if field.default is MISSING)
    return next((_key(name) for name in needed if name not in entry.parameters), None)


def kind_of_parameter(fault: str, field: str) -> Any:
    """Return the type that a parameter has in a scenario file: that of the field, or a duration or a rate."""
    for suffix, (unit, _) in _UNITS.items():
        if field.endswith(suffix):
            return unit
    return get_type_hints(fault_class(fault))[field]


def in_units_of(field: str, value: object) -> object:
    """Convert a value from a scenario file to the unit of a Python field.

    Raise ValueError if the value's unit is not allowed. The value of a field without a unit is returned
    unchanged.
    """
    for suffix, (unit, factor) in _UNITS.items():
        if field.endswith(suffix):
            return float(unit.parse(value)) if factor == 1 else round(unit.parse(value) * factor)
    return value


def key_and_value(field: str, value: object) -> tuple[str, object]:
    """Return a parameter as key and value for a scenario file.

    The value contains the unit if the field has one.
    """
    for suffix, (unit, factor) in _UNITS.items():
        if field.endswith(suffix) and isinstance(value, int | float):
            return _key(field), unit(value / factor)
    return field, value


def _key(field: str) -> str:
    return field.removesuffix(next((unit for unit in _UNITS if field.endswith(unit)), ""))


def _fields(fault: str) -> tuple[Field[Any], ...]:
    return fields(fault_class(fault))  # type: ignore[arg-type]
