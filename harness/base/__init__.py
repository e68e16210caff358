"""Basics that every room may use: errors, waits, units, secrets, strict TOML, events, local processes."""
