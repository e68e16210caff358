"""Scenario files that are part of the harness."""
