"""Parameters of faults. In Python they are fields of the fault's class; in a scenario file they are keys."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any, get_args, get_type_hints

import msgspec

from harness.base.errors import UsageError
from harness.base.strict_toml import convert_value
from harness.base.texts import shorten
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


def parameter_value(fault: str, field: str, value: object) -> object:
    """Convert a value from a scenario file to the unit and the type of a fault's Python field.

    Raise UsageError with the allowed values if the declaration of the field does not allow it.
    """
    try:
        converted = _in_units_of(field, value)
    except ValueError as error:
        raise UsageError(str(error), "write it with its unit, such as 50ms or 1MiB/s") from None
    kind = _declared(fault, field)
    try:
        return convert_value(converted, kind, _key(field))
    except UsageError:
        if (allowed := bounds_of(fault, field)) and _has_type(converted, kind):
            problem = f"{shorten(repr(value))} is not allowed"
            raise UsageError(problem, f"allowed: {allowed}") from None
        raise


def bounds_of(fault: str, field: str) -> str:
    """Return the bounds of a parameter, such as "1 or more"; "" if its declaration has none."""
    found = (part for part in get_args(_declared(fault, field)) if isinstance(part, msgspec.Meta))
    bounds = next(found, msgspec.Meta())
    texts = (
        ("{} or more", bounds.ge),
        ("above {}", bounds.gt),
        ("up to {}", bounds.le),
        ("below {}", bounds.lt),
        ("{} or more entries", bounds.min_length),
    )
    written = [text.format(key_and_value(field, bound)[1]) for text, bound in texts if bound is not None]
    return " and ".join(written)


def _has_type(value: object, declared: Any) -> bool:
    """Whether a value has the type of a field with bounds, so that only a bound can be wrong."""
    try:
        msgspec.convert(value, get_args(declared)[0])
    except msgspec.ValidationError:
        return False
    return True


def _declared(fault: str, field: str) -> Any:
    """Return the type of a fault's Python field, with its bounds."""
    return get_type_hints(fault_class(fault), include_extras=True)[field]


def _in_units_of(field: str, value: object) -> object:
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
