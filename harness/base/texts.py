"""Texts for messages."""

from __future__ import annotations

from typing import Final

LONGEST_VALUE: Final = 80
"""Maximum length of a value that a message repeats."""


def shorten(value: str, longest: int = LONGEST_VALUE) -> str:
    """Return a value for a message. A long one is cut."""
    return value if len(value) <= longest else f"{value[:longest]}... ({len(value)} characters)"
