"""Headlines of scenario files: what a list of scenarios shows.

`read_headline` reads only the tables that it needs, and imports neither faults nor clients, so that
`eos list` answers at once. It is for the shipped files, which are valid; `load` checks a whole file.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from harness.base.units import Duration, Span

if TYPE_CHECKING:
    from harness.scenario.model import Scenario


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Table [scenario]: the name, a sentence about what the scenario shows, and the expected verdict."""

    name: str
    shows: str
    expect: Literal["valid", "invalid", "unknown"] = "valid"
    # Anomalies that the run must find. The list is empty unless the expected verdict is invalid.
    anomalies: list[str] = []


class PlanRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Table [plan]: the duration of the steady phase and of the plan, and the gaps between injections.

    The steady phase is the time without faults before the plan starts.
    """

    steady: Duration = Duration(5)
    duration: Duration = Duration(30)
    gap: Span = Span(2, 5)


class Headline(msgspec.Struct, frozen=True):
    """One line of the list of scenarios. A walkthrough has no planned seconds."""

    name: str
    kind: Literal["faults", "negative control", "walkthrough"]
    expect: str
    seconds: int | None
    shows: str


class _Tables(msgspec.Struct, frozen=True):
    scenario: Header
    plan: PlanRules = PlanRules()
    walkthrough: dict[str, Any] | None = None


def read_headline(path: Path) -> Headline:
    """Return the headline of a valid scenario file."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    return headline_of(msgspec.convert(data, _Tables, dec_hook=lambda kind, text: kind.parse(text)))


def headline_of(scenario: Scenario | _Tables) -> Headline:
    """Return the headline of a scenario."""
    header, plan = scenario.scenario, scenario.plan
    control: Literal["negative control", "faults"] = (
        "negative control" if header.expect == "invalid" else "faults"
    )
    walkthrough = scenario.walkthrough is not None
    return Headline(
        name=header.name,
        kind="walkthrough" if walkthrough else control,
        expect=header.expect,
        seconds=None if walkthrough else round(plan.steady + plan.duration),
        shows=" ".join(header.shows.split()),
    )
