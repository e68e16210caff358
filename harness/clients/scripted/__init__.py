"""Clients that make one call at a time on request, for walkthroughs and tests; each writes a history."""
