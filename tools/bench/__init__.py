"""Benchmarks. Each module is a command: `python -m tools.bench.NAME --help`."""
