"""Runs. A run is one execution of a scenario on a cluster, with its phases, events, outputs and healing."""

from harness.run.factory import make_run
from harness.run.run import Outcome, Run

__all__ = ["Outcome", "Run", "make_run"]
