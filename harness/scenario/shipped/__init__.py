"""The scenarios that ship with the harness, as data."""
