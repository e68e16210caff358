"""A run: one execution of a scenario, its phases, its events, healed on every way out."""

from harness.run.run import Outcome, Run
from harness.run.walkthrough_run import make_run

__all__ = ["Outcome", "Run", "make_run"]
