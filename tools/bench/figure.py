"""Figures of benchmarks: measured values, their target, and the form in which all benchmarks print them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import click

from harness.report.text_format import format_table
from tools.bench.interleaved_runs import Spread


@dataclass
class Figure:
    """A measured quantity with one value per round, and the target for the median of the values.

    The target is a maximum (`most`) or a minimum (`least`). A figure without a target has neither.
    """

    name: str
    unit: str
    values: list[float] = field(default_factory=list)
    most: float | None = None
    least: float | None = None

    @property
    def held(self) -> bool:
        """Whether the median is within the target. A figure without a target is always within."""
        median = Spread.over(self.values).median
        return (self.most is None or median <= self.most) and (self.least is None or median >= self.least)

    @property
    def target(self) -> str:
        """The target as text. It is empty for a figure without a target."""
        if self.most is not None:
            return f"at most {self.most:g} {self.unit}".rstrip()
        return "" if self.least is None else f"at least {self.least:g} {self.unit}".rstrip()

    @property
    def measured(self) -> str:
        """The median with its unit. If there are several values, also the quartiles and their number."""
        spread = Spread.over(self.values)
        median = f"{spread.median:.3g} {self.unit}".rstrip()
        return (
            median if spread.of == 1 else f"{median} ({spread.low:.3g} to {spread.high:.3g} of {spread.of})"
        )

    def cells(self) -> tuple[str, str, str, str]:
        """Return a row of a printed table: name, measured values, target, and whether it was met."""
        return self.name, self.measured, self.target, ("held" if self.held else "missed") * bool(self.target)

    def plain(self) -> dict[str, Any]:
        """Return the figure as a dict for JSON, with its median and quartiles."""
        spread = Spread.over(self.values)
        return {
            "name": self.name,
            "unit": self.unit,
            "values": [round(value, 6) for value in self.values],
            "median": round(spread.median, 6),
            "low": round(spread.low, 6),
            "high": round(spread.high, 6),
            "most": self.most,
            "least": self.least,
            "held": self.held,
        }

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Figure:
        """Return the figure that `plain` described."""
        return cls(plain["name"], plain["unit"], plain["values"], plain["most"], plain["least"])


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


class Part(NamedTuple):
    """A measured part of a benchmark: its lines for people, and its figures."""

    lines: Sequence[str]
    figures: Sequence[Figure] = ()


def format_figures(figures: Iterable[Figure]) -> list[str]:
    """Return the table of figures as lines."""
    return format_table(
        [figure.cells() for figure in figures], ("figure", "median (quartiles)", "target", "")
    )


def show(parts: Iterable[Part], *, as_json: bool) -> None:
    """Print the lines and the figures of some parts. With `as_json`, print the figures as one JSON object."""
    figures: list[Figure] = []
    for part in parts:
        figures += part.figures
        if part.lines and not as_json:
            click.echo("\n".join(part.lines))
    if as_json:
        click.echo(json.dumps({"figures": [figure.plain() for figure in figures]}))
    elif figures:
        click.echo("\n".join(format_figures(figures)))
