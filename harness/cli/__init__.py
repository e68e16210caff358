"""The command line: one module per group of commands.

A command parses its options, calls the harness, and sets the exit code.
"""
