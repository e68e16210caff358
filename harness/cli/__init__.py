"""The command line: one module per group of commands. A command parses, calls, and sets the exit code."""
