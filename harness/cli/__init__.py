"""The command line: one module per group of commands, which parse, call, and choose the exit code."""
