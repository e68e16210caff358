"""The function `wait_until`, the only way to wait in this project.

Every wait has a condition, a time limit, and a clear error if the time limit passes.
"""

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
    """Wait until `condition` returns a truthy value, and return that value.

    Raise WaitTimeoutError after `limit` seconds. Its message contains the last value that `condition`
    returned, or its last exception. If `condition` raises an exception whose type is in `not_yet`, the wait
    continues. For example, a starting node refuses connections for some time.
    """
    start = time.monotonic()
    last: object = None
    while True:
        try:
            value = condition()
            if value:
                return value
            last = value
        except not_yet as error:
            last = describe_error(error)
        elapsed = time.monotonic() - start
        if elapsed >= limit:
            raise WaitTimeoutError(f"waited {elapsed:.1f} s for {describe}; last seen: {last}", hint)
        time.sleep(min(every, max(0.0, limit - elapsed)))
