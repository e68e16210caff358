"""The measurement of the streaming job: the samples that count, and the error of a writer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.base.errors import HarnessError
from tools.bench.streaming import Look, Steady, halves


def test_the_warm_up_is_in_seconds_and_not_in_samples() -> None:
    looks = [Look(at, at) for at in (1.0, 9.0, 11.0, 12.0, 13.0, 14.0)]
    assert halves(looks, 10) == ([11.0, 12.0], [13.0, 14.0])


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_samples_are_an_error(count: int) -> None:
    with pytest.raises(HarnessError, match="are too few"):
        halves([Look(20.0, 1.0)] * count, 10)


def test_an_error_of_the_writer_is_raised() -> None:
    def fail(_: int) -> None:
        raise ConnectionError("the broker is gone")

    writer: Any = SimpleNamespace(plan=SimpleNamespace(aborted=[False] * 4), transaction=fail)
    writing = Steady(writer, 10**9)
    writing.start()
    with pytest.raises(ConnectionError, match="the broker is gone"):
        writing.end()
