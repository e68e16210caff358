"""Texts for messages."""

from __future__ import annotations

from typing import Final

LONGEST_VALUE: Final = 80
"""Maximum length of a value that a message repeats."""


def shorten(value: str, longest: int = LONGEST_VALUE) -> str:
    """Return a value for a message. A long one is cut."""
    return value if len(value) <= longest else f"{value[:longest]}... ({len(value)} characters)"


def count_of(number: int, noun: str, more: str = "") -> str:
    """Return a number with its noun, such as "1 fault" or "2 faults"; `more` is text behind the noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}{more}"
