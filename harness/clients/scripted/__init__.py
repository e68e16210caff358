"""Clients that make one call at a time, as a walkthrough or a test asks for it."""
