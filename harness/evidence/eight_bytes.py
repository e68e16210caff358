"""Decimal digits in words of eight bytes, for many words at once and without a loop over bytes.

Spark's workers import this module, so it may import only numpy and bit_words.
"""

from __future__ import annotations

import numpy as np

from harness.evidence.bit_words import Ints, Words


def not_digits(number: Words) -> Words:
    """Return one number for each word. It is zero if the word's eight bytes are all ASCII digits.

    Otherwise the highest bit is set in the first byte that is not a digit, and in none before it.
    """
    above = number + np.uint64(0x4646464646464646)
    below = number - np.uint64(0x3030303030303030)
    return (above | below | number) & np.uint64(0x8080808080808080)


def leading_digits(number: Words) -> Ints:
    """Return how many of the first bytes of each word are ASCII digits."""
    found = not_digits(number)
    lowest = found & (~found + np.uint64(1))
    # Without any other byte, `lowest` is zero, and one less has all 64 bits.
    return (np.bitwise_count(lowest - np.uint64(1)) >> 3).astype(np.int64)


def eight_digits(number: Words) -> Ints:
    """Decode eight ASCII digits per word. Zero bytes count as the digit 0.

    It takes three steps: digits are joined to pairs, pairs to groups of four, and these to one number.
    """
    n = number & np.uint64(0x0F0F0F0F0F0F0F0F)
    n *= np.uint64(2561)
    n >>= np.uint64(8)
    n &= np.uint64(0x00FF00FF00FF00FF)
    n *= np.uint64(6553601)
    n >>= np.uint64(16)
    n &= np.uint64(0x0000FFFF0000FFFF)
    n *= np.uint64(42949672960001)
    n >>= np.uint64(32)
    return n.view(np.int64)
