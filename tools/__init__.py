"""Commands for developers of the harness: benchmarks and mutants. They are not part of the wheel."""
