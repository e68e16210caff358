"""Scenarios. Each is one TOML file that describes clients, faults and the expected verdict.

The loader and the model import faults and clients. They are therefore imported when one of their names is
used, so that a list of scenarios, or the completion of their names, needs only `find`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from harness.scenario.find import find, shipped

if TYPE_CHECKING:
    from harness.scenario.loader import load
    from harness.scenario.model import FaultEntry, Scenario, WalkthroughPart, Workload
    from harness.scenario.parameters import make_fault

__all__ = ["FaultEntry", "Scenario", "WalkthroughPart", "Workload", "find", "load", "make_fault", "shipped"]

_MODULES = dict.fromkeys(("FaultEntry", "Scenario", "WalkthroughPart", "Workload"), "model")
_MODULES |= {"load": "loader", "make_fault": "parameters"}


def __getattr__(name: str) -> Any:
    """Import a name of the loader or of the model when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
