"""Scenarios: what the clients do, what is done to the cluster, what must hold; one strict TOML file each."""

from harness.scenario.find import find, shipped
from harness.scenario.load import load
from harness.scenario.model import FaultEntry, FlowPart, Scenario, Workload
from harness.scenario.parameters import make_fault

__all__ = ["FaultEntry", "FlowPart", "Scenario", "Workload", "find", "load", "make_fault", "shipped"]
