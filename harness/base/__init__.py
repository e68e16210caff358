"""What every room may use: errors, waits, units, secrets, strict TOML, events, processes of this host."""
