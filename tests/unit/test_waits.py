"""A wait reports what it waited for and the last value, and never exceeds its limit."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from harness.base.errors import WaitTimeoutError
from harness.base.waits import wait_until


def test_a_true_condition_returns_at_once_after_one_call() -> None:
    asked: list[int] = []

    def condition() -> str:
        asked.append(1)
        return "leader 2"

    start = time.monotonic()
    assert wait_until(condition, 60, "a leader", every=30) == "leader 2"
    assert time.monotonic() - start < 5
    assert asked == [1]


def test_a_limit_of_zero_still_checks_the_condition_once() -> None:
    assert wait_until(lambda: 7, 0, "seven") == 7


def test_the_error_contains_what_was_waited_for_and_the_last_value() -> None:
    values = iter(range(1000))

    def condition() -> bool:
        raise ConnectionRefusedError(f"try {next(values)}")

    with pytest.raises(WaitTimeoutError) as raised:
        wait_until(condition, 0.1, "kafka-1 to serve", hint="see its log", every=0.01)

    message = raised.value.message
    assert message.startswith("waited 0.")
    assert f"for kafka-1 to serve; last seen: ConnectionRefusedError: try {next(values) - 1}" in message
    assert raised.value.hint == "see its log"


def test_a_false_value_is_shown_as_it_was_seen() -> None:
    with pytest.raises(WaitTimeoutError, match=r"for leaders; last seen: \[\]"):
        wait_until(list, 0.0, "leaders")


@pytest.mark.parametrize("error", [ConnectionRefusedError, TimeoutError, EOFError, OSError])
def test_an_error_of_a_starting_node_counts_as_not_yet(error: type[Exception]) -> None:
    def tries() -> Iterator[str]:
        yield ""
        yield "up"

    answers = tries()

    def condition() -> str:
        if not next(answers):
            raise error("not yet")
        return "up"

    assert wait_until(condition, 10, "the node", every=0.001) == "up"


def test_any_other_error_ends_the_wait() -> None:
    def condition() -> bool:
        raise KeyError("a bug of ours")

    with pytest.raises(KeyError):
        wait_until(condition, 60, "nothing")


def test_the_last_pause_does_not_outlast_the_limit() -> None:
    start = time.monotonic()
    with pytest.raises(WaitTimeoutError):
        wait_until(lambda: False, 0.1, "never", every=60)
    assert time.monotonic() - start < 10
