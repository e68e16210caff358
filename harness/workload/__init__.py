"""What clients do, one operating-system process each, with a history of its own (docs/workloads.md)."""
