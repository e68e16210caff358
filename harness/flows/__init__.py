"""Flows: a protocol shown step by step on the running cluster, each step with its evidence."""
