"""Clients that make one call at a time, for walkthroughs and tests; each writes a history."""
