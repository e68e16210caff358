"""The plan: the timetable of injections, drawn from the scenario and a seed.

The same scenario and seed give the same plan on every machine and with every version of Python. They do not
give the same run, because the timing of the cluster and the network decides which requests a fault affects.
"""

from __future__ import annotations

import itertools
import random
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from harness.base.errors import UsageError
from harness.base.units import exact
from harness.cluster.layout import BROKER_IDS
from harness.scenario import FaultEntry, Scenario, make_fault
from harness.scenario.scenario_checks import BROKERS_HINT

MOST_STEPS: Final = 100_000
"""Maximum number of drawn faults. More than this cannot be injected in 30 days."""


_MOST_LISTED: Final = 3


class PlannedFault(msgspec.Struct, frozen=True, kw_only=True):
    """One planned injection: its time, fault, target and duration. `seed` is used to resolve the target."""

    at: float  # earliest start, in seconds since the start of the plan
    lasts: float
    entry: FaultEntry
    seed: int

    @property
    def text(self) -> str:
        """One line of text that describes the injection."""
        parameters = "".join(f" {name}={value}" for name, value in self.entry.parameters.items())
        when = "throughout" if self.entry.throughout else f"{self.at:6.1f} s  for {self.lasts:.1f} s"
        return f"{when}  {self.entry.fault} on {self.entry.target}{parameters}"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of a run: its seed, its duration and its injections.

    `throughout` lists the injections that last for the whole plan. `steps` lists those that follow one
    another.
    """

    seed: int
    duration: float
    throughout: list[PlannedFault]
    steps: list[PlannedFault]

    @property
    def injections(self) -> list[PlannedFault]:
        """All injections of the plan in one list: first those of `throughout`, then those of `steps`."""
        return [*self.throughout, *self.steps]

    @property
    def delayed(self) -> str:
        """Faults whose time comes before the one before them is healed; "" if there are none."""
        late = [
            f"{second.entry.fault} at {second.at:g} s"
            for first, second in itertools.pairwise(self.steps)
            if second.at < first.at + first.lasts
        ]
        if not late:
            return ""
        return (
            f"late: {', '.join(late)}, because faults without `throughout` are carried out one by one: "
            "use other times"
        )

    @property
    def waiting(self) -> str:
        """Faults whose wait for a time-out of the application is not in `duration`; "" if there are none."""
        waiting = sum(make_fault(step.entry).needs_frames for step in self.injections)
        if not waiting:
            return ""
        faults = "1 fault waits" if waiting == 1 else f"{waiting} faults wait"
        return f"{faults} for a time-out of the application, which is not part of the {self.duration:g} s"


def brokers_of_others(scenario: Scenario) -> str:
    """Name the brokers in targets that only an external cluster can have; an empty text if there are none."""
    named = sorted({str(e.target) for e in scenario.fault if e.target.broker not in (None, *BROKER_IDS)})
    return f"note: `eos run` refuses {', '.join(named)} without --cluster; {BROKERS_HINT}" if named else ""


def faults_left_out(scenario: Scenario, plan: Plan) -> str:
    """Describe the faults of a scenario that its plan does not contain; "" if it contains all of them."""
    planned = [step.entry for step in plan.injections]
    names = [f"{entry.fault} on {entry.target}" for entry in scenario.fault if entry not in planned]
    if not names:
        return ""
    more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
    return (
        f"not in this plan: {', '.join(names[:_MOST_LISTED])}{more}. Faults without a time are drawn from "
        "the seed: give each fault an `at`, or use a longer duration or another seed"
    )


def format_replay_command(
    scenario: str,
    seed: int,
    changes: Mapping[str, str] | None = None,
    duration: float | None = None,
    more: Sequence[str] = (),
) -> str:
    """Return the shell command that runs a scenario with the same plan again."""
    arguments = ["eos", "run", scenario, "--seed", str(seed)]
    for key, value in (changes or {}).items():
        arguments += ["--set", f"{key}={value}"]
    if duration is not None:
        arguments += ["--duration", f"{exact(duration)}s"]
    return shlex.join([*arguments, *more])


def draw(scenario: Scenario, seed: int, duration: float | None = None) -> Plan:
    """Draw the plan of a scenario with a seed.

    If `duration` is given, it replaces the duration in the scenario.
    """
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
    for step in fixed:
        if step.at >= length:
            key = f"fault[{scenario.fault.index(step.entry)}].at"
            raise UsageError(
                f"{key}: {step.entry.fault} at {step.at:g} s lies after the end of the plan ({length:g} s)",
                f"use --duration {step.at + step.lasts:g}s or more, or another time in the scenario",
            )
    fixed.sort(key=lambda step: step.at)
    steps = sorted([*fixed, *_drawn(scenario, rng, length, fixed)], key=lambda step: step.at)
    return Plan(seed=seed, duration=length, throughout=throughout, steps=steps)


def _drawn(
    scenario: Scenario, rng: random.Random, length: float, fixed: Sequence[PlannedFault]
) -> list[PlannedFault]:
    """Draw injections, with gaps between them, until the next one would end after `length` seconds.

    Draw only from the faults that have no fixed time and do not last for the whole plan. An injection that
    would overlap one of `fixed`, which are in the order of their times, begins after it, because faults are
    carried out one after another.
    """
    entries = [entry for entry in scenario.fault if not entry.throughout and entry.at is None]
    steps: list[PlannedFault] = []
    at = _between(rng, scenario.plan.gap)
    while entries:
        entry = rng.choices(entries, [entry.weight for entry in entries])[0]
        lasts = _between(rng, entry.lasts)
        for other in fixed:
            if at < other.at + other.lasts and other.at < at + lasts:
                at = round(other.at + other.lasts + _between(rng, scenario.plan.gap), 1)
        # Draw the first injection even if it would end after `length` seconds, because a scenario with faults
        # must inject at least one.
        if steps and at + lasts > length:
            break
        if len(steps) == MOST_STEPS:
            raise UsageError(
                f"the plan would have more than {MOST_STEPS} faults",
                "use a shorter duration, or a longer gap between the faults",
            )
        steps.append(PlannedFault(at=at, lasts=lasts, entry=entry, seed=rng.randrange(1 << 32)))
        at = round(at + lasts + _between(rng, scenario.plan.gap), 1)
    return steps


def _between(rng: random.Random, span: tuple[float, float]) -> float:
    return round(rng.uniform(*span), 1)
