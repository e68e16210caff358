"""The silence of an application after which it has finished is learned from its own silences."""

from __future__ import annotations

import pytest

from harness.run.output_growth import LEAST_QUIET_S, OutputGrowth

NEVER_S = 75.0
Seen = list[tuple[float, int]]
"""Time, and number of outputs, of each look."""


def learned(looks: Seen) -> tuple[float, float]:
    """Return the time to wait, and for how long the outputs have not grown at the last look."""
    now = [0.0]
    growth = OutputGrowth(lambda: now[0])
    growth.begin()
    silent = 0.0
    for at, outputs in looks:
        now[0] = at
        silent = growth.note([{("out", 0): outputs}])
    return growth.quiet_s(0, NEVER_S), silent


@pytest.mark.parametrize(
    ("looks", "quiet"),
    [
        ([], NEVER_S),
        ([(1, 0), (2, 3), (3, 9)], LEAST_QUIET_S),
        ([(1, 0), (21, 1), (22, 2)], 42),
        ([(1, 0), (2, 1), (3, 2), (33, 5), (34, 6)], 60),
        ([(1, 0), (2, 1), (100, 1)], LEAST_QUIET_S),
        ([(1, 0), (100, 0)], NEVER_S),
    ],
    ids=["no look", "steady", "slow start", "slow restart", "silent to the end", "never"],
)
def test_twice_the_longest_silence_is_awaited(looks: Seen, quiet: float) -> None:
    assert learned(looks)[0] == quiet


def test_a_silence_ends_when_an_output_grows() -> None:
    assert learned([(1, 0), (2, 1), (9, 1)])[1] == 7
    assert learned([(1, 0), (2, 1), (9, 2)])[1] == 0


@pytest.mark.parametrize(("longest", "timeout", "quiet"), [(5, 30, 40), (20, 30, 40), (25, 30, 50)])
def test_a_silence_outlives_a_request_that_was_lost(longest: float, timeout: float, quiet: float) -> None:
    now = [0.0]
    growth = OutputGrowth(lambda: now[0])
    growth.begin()
    growth.note(0)
    now[0] = longest
    growth.note(1)
    assert growth.quiet_s(timeout, NEVER_S) == quiet


def test_a_start_is_not_part_of_the_silence_after_it() -> None:
    now = [0.0]
    growth = OutputGrowth(lambda: now[0])
    growth.note(0)
    now[0] = 20.0
    growth.begin()
    now[0] = 27.0
    assert growth.note(0) == 7
