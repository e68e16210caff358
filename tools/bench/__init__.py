"""Benchmarks, each a command: `python -m tools.bench.NAME`."""
