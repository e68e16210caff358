"""Whether a live job keeps up: which looks count, and what becomes of a writer that fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.base.errors import HarnessError
from tools.bench.streaming import Look, Steady, halves


def test_the_warm_up_is_in_seconds_and_not_in_looks() -> None:
    looks = [Look(at, at) for at in (1.0, 9.0, 11.0, 12.0, 13.0, 14.0)]
    assert halves(looks, 10) == ([11.0, 12.0], [13.0, 14.0])


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_looks_say_nothing(count: int) -> None:
    with pytest.raises(HarnessError, match="say nothing"):
        halves([Look(20.0, 1.0)] * count, 10)


def test_what_goes_wrong_in_the_writer_is_handed_on() -> None:
    def fail(_: int) -> None:
        raise ConnectionError("the broker is gone")

    writer: Any = SimpleNamespace(plan=SimpleNamespace(aborted=[False] * 4), transaction=fail)
    writing = Steady(writer, 10**9)
    writing.start()
    with pytest.raises(ConnectionError, match="the broker is gone"):
        writing.end()
