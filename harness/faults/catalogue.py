"""Catalogue of all faults: every dataclass with a `name` in a module of this package is a fault."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import harness.faults
from harness.base.errors import UsageError
from harness.base.strict_toml import nearest
from harness.cluster.backend import Capability

if TYPE_CHECKING:
    from harness.faults.injection import Fault


@cache
def import_fault_modules() -> tuple[ModuleType, ...]:
    """Import every module of the package `harness.faults`, and return the modules."""
    modules = pkgutil.iter_modules(harness.faults.__path__, "harness.faults.")
    return tuple(import_module(module.name) for module in modules)


@cache
def fault_classes() -> dict[str, type[Fault[Any]]]:
    """Return all fault classes as a dict. The key is the name of the fault, such as `jitter`."""
    return {kind.name: kind for kind in _classes()}


def fault_class(name: object) -> type[Fault[Any]]:
    """Return the fault class with this name.

    If there is none, raise UsageError, which suggests the most similar name.
    """
    classes = fault_classes()
    if not isinstance(name, str) or name not in classes:
        raise UsageError(f"{name!r} is not a fault", nearest(str(name), list(classes), "faults are"))
    return classes[name]


def external_faults() -> dict[str, Capability]:
    """Return the faults that a cluster file may allow on an external cluster.

    The dict maps the name of each fault to the capability that the fault needs.
    """
    return {name: kind.capability for name, kind in fault_classes().items() if kind.allowed_on_external}


def _classes() -> Iterator[type[Fault[Any]]]:
    for module in import_fault_modules():
        for item in vars(module).values():
            if isinstance(item, type) and is_dataclass(item) and isinstance(getattr(item, "name", None), str):
                yield cast("type[Fault[Any]]", item)
