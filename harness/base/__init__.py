"""Basics that every package may use: errors, waits, units, secrets, strict TOML, events, local processes."""
