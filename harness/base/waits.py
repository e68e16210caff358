"""The only way to wait here: for a condition, within a limit, saying what it waited for and last saw."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from harness.base.errors import WaitTimeoutError, describe_error

T = TypeVar("T")

NOT_YET_ERRORS = (OSError, TimeoutError, EOFError)


def wait_until(
    condition: Callable[[], T],
    limit: float,
    describe: str,
    *,
    hint: str = "look at the nodes' logs with `eos logs`",
    not_yet: tuple[type[BaseException], ...] = NOT_YET_ERRORS,
    every: float = 0.05,
) -> T:
    """Return the first truthy value of `condition`; an error that says what was last seen if none came.

    An exception of a `not_yet` type counts as not yet: a node that is starting refuses connections.
    """
    start = time.monotonic()
    seen: object = None
    while True:
        try:
            value = condition()
            if value:
                return value
            seen = value
        except not_yet as error:
            seen = describe_error(error)
        elapsed = time.monotonic() - start
        if elapsed >= limit:
            raise WaitTimeoutError(f"waited {elapsed:.1f} s for {describe}; last seen: {seen}", hint)
        time.sleep(min(every, max(0.0, limit - elapsed)))
