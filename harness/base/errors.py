"""All errors that have a message for the user: what happened, and what to do.

    HarnessError         base class                                    exit 2, unless a subclass differs
    ├── UsageError       bad argument or bad file                      exit 4
    ├── RefusedError     possible, but refused because it could harm   exit 5
    │   └── CapabilityError  not possible with this back end           exit 5
    ├── WaitTimeoutError a condition did not become true within its limit
    ├── NoBiteError      a fault was injected but had no effect
    └── HealError        a fault was healed but its effect persists

Every other exception that reaches the command line is a bug in the harness (exit 70).
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the command line tool, as listed in README.md."""

    VALID = 0
    ANOMALY = 1
    UNKNOWN = 2
    LIMIT = 3
    USAGE = 4
    REFUSED = 5
    BUG = 70
    INTERRUPTED = 130


class HarnessError(Exception):
    """An error that the user can act on: a message, and a hint that describes what to do."""

    exit_code = ExitCode.UNKNOWN

    def __init__(self, message: str, hint: str) -> None:
        # Pass both, because an exception that arrives from another process is rebuilt from its arguments.
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}"


class UsageError(HarnessError):
    """A value that is not allowed, in an argument, a setting or a file."""

    exit_code = ExitCode.USAGE


class RefusedError(HarnessError):
    """A request that is possible but refused, because it could do harm or mislead."""

    exit_code = ExitCode.REFUSED


class CapabilityError(RefusedError):
    """A request that the back end of this cluster does not support."""


class WaitTimeoutError(HarnessError):
    """A condition that did not become true within its limit. The message contains the last value."""


class NoBiteError(HarnessError):
    """A fault that was injected without a measurable effect, so the run proves nothing."""


class HealError(HarnessError):
    """A fault whose effect persists after the fault was healed."""


def describe_error(error: BaseException) -> str:
    """Return the error as one line without its hint."""
    return error.message if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
