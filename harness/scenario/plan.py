"""The timetable of injections, drawn from our own seed and from nothing else.

The same scenario and seed give the same plan, on every machine and with every version of Python. They do
not give the same run: which request meets which fault is decided by the cluster and the network.
"""

from __future__ import annotations

import random

import msgspec

from harness.scenario import FaultEntry, Scenario


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True):
    """One injection: when, what, on what, for how long, and the seed that resolves its target."""

    at: float  # seconds after the faults begin; a step waits for the one before it
    lasts: float
    entry: FaultEntry
    seed: int

    @property
    def text(self) -> str:
        """One line for a person."""
        parameters = "".join(f" {name}={value}" for name, value in self.entry.parameters.items())
        when = "throughout" if self.entry.throughout else f"{self.at:6.1f} s  for {self.lasts:.1f} s"
        return f"{when}  {self.entry.fault} on {self.entry.target}{parameters}"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is injected: throughout, and one after the other."""

    seed: int
    duration: float
    throughout: list[PlannedFault]
    steps: list[PlannedFault]


def draw(scenario: Scenario, seed: int, duration: float | None = None) -> Plan:
    """Draw the plan of a scenario."""
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
    """Injections one after the other with gaps between, until the time is used up."""
    entries = [entry for entry in scenario.fault if not entry.throughout and entry.at is None]
    steps: list[PlannedFault] = []
    at = _between(rng, scenario.plan.gap)
    while entries:
        entry = rng.choices(entries, [entry.weight for entry in entries])[0]
        lasts = _between(rng, entry.lasts)
        # At least one: a scenario that names a fault and injects none would show nothing.
        if steps and at + lasts > length:
            break
        steps.append(PlannedFault(at=at, lasts=lasts, entry=entry, seed=rng.randrange(1 << 32)))
        at = round(at + lasts + _between(rng, scenario.plan.gap), 1)
    return steps


def _between(rng: random.Random, span: tuple[float, float]) -> float:
    return round(rng.uniform(*span), 1)
