"""Somebody else's cluster, described by a file (docs/live.md) and behind interlocks."""
