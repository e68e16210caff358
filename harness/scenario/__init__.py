"""Scenarios. Each is one TOML file that describes clients, faults and the expected verdict."""

from harness.scenario.find import find, shipped
from harness.scenario.loader import load
from harness.scenario.model import FaultEntry, Scenario, WalkthroughPart, Workload
from harness.scenario.parameters import make_fault

__all__ = ["FaultEntry", "Scenario", "WalkthroughPart", "Workload", "find", "load", "make_fault", "shipped"]
