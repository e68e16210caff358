"""Every fault by its name: a fault is found because it stands in a file of this package."""

from __future__ import annotations

import pkgutil
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any

import harness.faults
from harness.cluster.backend import Capability


def _found() -> dict[str, type[Any]]:
    classes: dict[str, type[Any]] = {}
    for module in pkgutil.iter_modules(harness.faults.__path__):
        if module.name == "catalogue":
            continue
        for item in vars(import_module(f"harness.faults.{module.name}")).values():
            if isinstance(item, type) and is_dataclass(item) and isinstance(getattr(item, "name", None), str):
                classes[item.name] = item  # type: ignore[attr-defined]
    return classes


_ALL = _found()
# Faults of clients are made by the run, which knows the processes; the others by their parameters alone.
CLIENT_FAULTS = {name: fault for name, fault in _ALL.items() if fault.capability is Capability.CLIENT}
FAULTS = {name: fault for name, fault in _ALL.items() if name not in CLIENT_FAULTS}
