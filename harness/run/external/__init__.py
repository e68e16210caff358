"""A run on an external cluster: preflight checks, guard, write budget."""
