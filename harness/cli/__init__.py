"""The `eos` command: one module per group of commands; each parses, calls and chooses the exit code."""
