"""Durations, sizes and rates that are written with a unit: "30s", "1MiB", "20kB/s"."""

from __future__ import annotations

import re

from harness.base.texts import shorten

_WRITTEN = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([A-Za-z/]+)\s*")
LONGEST_S = 30 * 86400.0
"""Longest duration that a file or an option may contain."""
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_BYTES = {"B": 1, "kB": 1000, "MB": 1000**2, "KiB": 1024, "MiB": 1024**2, "GB": 1000**3, "GiB": 1024**3}


def exact(number: float) -> str:
    """Format a number with up to six decimals and no exponent: the `parse` methods refuse exponents."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


class Duration(float):
    """A time in seconds. In files it is written with a unit."""

    allowed = '"500ms", "30s", "5m" or "1h"'

    @classmethod
    def parse(cls, text: object) -> Duration:
        """Parse a duration; raise ValueError with the allowed formats."""
        seconds = _number(text, _SECONDS, cls.allowed)
        if seconds > LONGEST_S:
            raise ValueError(f"{shorten(repr(text))} is longer than {LONGEST_S / 86400:g} days")
        return cls(seconds)

    def __str__(self) -> str:
        return f"{exact(self * 1000)}ms" if self < 1 else f"{exact(self)}s"


class Size(int):
    """A number of bytes. In files it is written with a unit."""

    allowed = '"100B", "64kB", "1KiB" or "1MiB"'

    @classmethod
    def parse(cls, text: object) -> Size:
        """Parse a size; raise ValueError with the allowed formats."""
        return cls(round(_number(text, _BYTES, cls.allowed)))

    def __str__(self) -> str:
        exact_units = (unit for unit in ("GB", "MB", "kB", "KiB") if self and self % _BYTES[unit] == 0)
        unit = next(exact_units, "B")
        return f"{self // _BYTES[unit]}{unit}"


class Rate(float):
    """A rate in bytes per second. In files it is written with a unit."""

    allowed = '"20kB/s" or "1MB/s"'

    @classmethod
    def parse(cls, text: object) -> Rate:
        """Parse a rate; raise ValueError with the allowed formats."""
        return cls(_number(text, {f"{unit}/s": factor for unit, factor in _BYTES.items()}, cls.allowed))

    def __str__(self) -> str:
        return f"{Size(self)}/s" if self.is_integer() else f"{float(self):g}B/s"


class Span(tuple[Duration, Duration]):
    """A range of durations. The plan draws one duration from it.

    The first value is the shortest duration, the second is the longest. Both may be equal.
    """

    allowed = '"5s" or ["2s", "5s"]'

    def __new__(cls, least: float, most: float) -> Span:
        return super().__new__(cls, (Duration(least), Duration(most)))

    @classmethod
    def parse(cls, written: object) -> Span:
        """Parse one duration or a list of two durations; raise ValueError with the allowed formats."""
        if isinstance(written, list):
            if len(written) != 2:
                raise ValueError(f"{written!r} is not {cls.allowed}")
            span = cls(Duration.parse(written[0]), Duration.parse(written[1]))
            if span[0] > span[1]:
                raise ValueError(f"the first of {written!r} is longer than the second")
            return span
        duration = Duration.parse(written)
        return cls(duration, duration)


def plain(value: object) -> object:
    """Return a duration, size, rate or text in the form in which a run's JSON files store it.

    Numbers have no unit there; they are seconds, bytes or bytes per second.
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Span):
        return [float(value[0]), float(value[1])]
    if isinstance(value, Size):
        return int(value)
    if isinstance(value, Duration | Rate):
        return float(value)
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _number(text: object, units: dict[str, float] | dict[str, int], allowed: str) -> float:
    match = (
        re.fullmatch(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([A-Za-z/]+)\s*", text)
        if isinstance(text, str)
        else None
    )
    if match is None or match[2] not in units:
        raise ValueError(f"{shorten(repr(text))} is not {allowed}")
    return float(match[1]) * units[match[2]]
