"""Output of runs: console, tables, HTML pages, JUnit, GitHub annotations and sequence diagrams."""
