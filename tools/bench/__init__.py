"""Benchmarks; each is a command: `python -m tools.bench.NAME --help`."""
