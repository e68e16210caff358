"""Sequence diagrams drawn from the frame log of a run."""
