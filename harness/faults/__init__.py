"""Faults of links, nodes and clients.

Each fault measures that it took effect, and after heal that its effect ended.
"""

from __future__ import annotations

from typing import Any

from harness.faults.frame_faults import ArmedFrameFault, arm
from harness.faults.injection import Fault, FaultContext, Injection, inject

__all__ = ["ArmedFrameFault", "Fault", "FaultContext", "Injection", "arm", "inject"]


def __getattr__(name: str) -> Any:
    """Return a class of this package by its name, so that callers can import it from the package.

    The class may be in any module of the package. A new fault therefore needs no import in this file.
    """
    from harness.faults.catalogue import import_fault_modules

    for module in import_fault_modules():
        value = vars(module).get(name)
        if isinstance(value, type) and value.__module__ == module.__name__:
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
