"""Measurements of our own speed, each a command that prints what it measured."""
