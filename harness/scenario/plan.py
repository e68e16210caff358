"""The plan: the timetable of injections, drawn from the seed alone.

The same scenario and seed give the same plan, on every machine and with every version of Python. They do
not give the same run: cluster and network decide which request a fault hits.
"""

from __future__ import annotations

import random

import msgspec

from harness.scenario import FaultEntry, Scenario


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True):
    """One injection: time, fault, target, duration, and the seed that resolves the target."""

    at: float  # seconds after the start of the phase; a step waits for the one before it
    lasts: float
    entry: FaultEntry
    seed: int

    @property
    def text(self) -> str:
        """The injection as one line of text."""
        parameters = "".join(f" {name}={value}" for name, value in self.entry.parameters.items())
        when = "throughout" if self.entry.throughout else f"{self.at:6.1f} s  for {self.lasts:.1f} s"
        return f"{when}  {self.entry.fault} on {self.entry.target}{parameters}"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The injections that last throughout, and those that follow one another."""

    seed: int
    duration: float
    throughout: list[PlannedFault]
    steps: list[PlannedFault]

    @property
    def injections(self) -> list[PlannedFault]:
        """Every injection."""
        return [*self.throughout, *self.steps]


def draw(scenario: Scenario, seed: int, duration: float | None = None) -> Plan:
    """Draw the plan of a scenario; `duration` replaces the duration that the scenario gives."""
    rng = random.Random(f"{scenario.name}/{seed}")
    length = float(duration if duration is not None else scenario.plan.duration)
    throughout = [
        PlannedFault(at=0.0, lasts=length, entry=entry, seed=rng.randrange(1 << 32))
        for entry in scenario.fault
        if entry.throughout
    ]
    fixed = [
        PlannedFault(
            at=float(entry.at), lasts=_between(rng, entry.lasts), entry=entry, seed=rng.randrange(1 << 32)
        )
        for entry in scenario.fault
        if entry.at is not None
    ]
    steps = sorted([*fixed, *_drawn(scenario, rng, length)], key=lambda step: step.at)
    return Plan(seed=seed, duration=length, throughout=throughout, steps=steps)


def _drawn(scenario: Scenario, rng: random.Random, length: float) -> list[PlannedFault]:
    """Draw injections with gaps between them until the time is used up."""
    entries = [entry for entry in scenario.fault if not entry.throughout and entry.at is None]
    steps: list[PlannedFault] = []
    at = _between(rng, scenario.plan.gap)
    while entries:
        entry = rng.choices(entries, [entry.weight for entry in entries])[0]
        lasts = _between(rng, entry.lasts)
        # At least one: a scenario that has faults and injects none would show nothing.
        if steps and at + lasts > length:
            break
        steps.append(PlannedFault(at=at, lasts=lasts, entry=entry, seed=rng.randrange(1 << 32)))
        at = round(at + lasts + _between(rng, scenario.plan.gap), 1)
    return steps


def _between(rng: random.Random, span: tuple[float, float]) -> float:
    return round(rng.uniform(*span), 1)
