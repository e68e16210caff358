"""Clusters that the harness did not start, behind the same interface as its own clusters."""
