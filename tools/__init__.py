"""Developer tools: benchmarks and mutants; not part of the shipped package."""
