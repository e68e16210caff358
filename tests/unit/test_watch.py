"""What a run's watch credits to which phase."""

from __future__ import annotations

from typing import Any, cast

from harness.run.fleet import Totals
from harness.run.watch import Watch


class Done:
    """A fleet that has done so much."""

    def __init__(self) -> None:
        self.acknowledged = 0

    def totals(self) -> Totals:
        return Totals(acknowledged=self.acknowledged)


def test_a_phase_that_is_shorter_than_a_look_has_what_was_done_in_it() -> None:
    fleet: Any = Done()
    watch = Watch(cast(Any, None), fleet, cast(Any, None), lambda _: None, cast(Any, None))

    for phase, acknowledged in (("settle", 0), ("steady", 5), ("faults", 12), ("drain", 12)):
        fleet.acknowledged = acknowledged
        watch.enter(phase)
    fleet.acknowledged = 20
    watch.enter("verify")

    assert watch.phase == "verify"
    assert {p: n for p, n in watch.acknowledged_in.items() if n} == {"settle": 5, "steady": 7, "drain": 8}
    assert not watch.acknowledged_in.get("faults")
