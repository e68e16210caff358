"""A run: one execution of a scenario, its phases, its events, healed on every way out."""

from harness.run.flow import make_run
from harness.run.run import Outcome, Run

__all__ = ["Outcome", "Run", "make_run"]
