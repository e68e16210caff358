"""The streaming benchmark: its warm-up, the minimum number of samples, and errors in its writer thread."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.base.errors import HarnessError
from tools.bench.streaming import LagSample, Steady, halves


def test_the_warm_up_is_measured_in_seconds() -> None:
    samples = [LagSample(at, at) for at in (1.0, 9.0, 11.0, 12.0, 13.0, 14.0)]
    assert halves(samples, 10) == ([11.0, 12.0], [13.0, 14.0])


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_samples_are_an_error(count: int) -> None:
    with pytest.raises(HarnessError, match="too few"):
        halves([LagSample(20.0, 1.0)] * count, 10)


def test_an_error_of_the_writer_is_raised_at_the_end() -> None:
    def fail(_: int) -> None:
        raise ConnectionError("the broker is gone")

    writer: Any = SimpleNamespace(plan=SimpleNamespace(aborted=[False] * 4), transaction=fail)
    writing = Steady(writer, 10**9)
    writing.start()
    with pytest.raises(ConnectionError, match="the broker is gone"):
        writing.end()
