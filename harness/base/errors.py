"""Every error that a user may meet, each with what happened and what to do about it.

HarnessError
├── UsageError       bad argument or bad file                      exit 4
├── RefusedError     we could, but will not: an interlock          exit 5
│   └── CapabilityError  this back end cannot do it                exit 5
├── WaitTimeoutError a condition did not come true within its limit
├── NoBiteError      a fault was injected and nothing changed      exit 2
└── HealError        a fault was healed and something is still wrong

Everything else that escapes is a bug of ours (exit 70).
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the tool tells the shell; where several apply the worst wins."""

    VALID = 0
    ANOMALY = 1
    UNKNOWN = 2
    LIMIT = 3
    USAGE = 4
    REFUSED = 5
    BUG = 70
    INTERRUPTED = 130


class HarnessError(Exception):
    """An error that the user can act on: a message, and a hint with what to do."""

    exit_code = ExitCode.UNKNOWN

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint)  # both: else it could not come back from another process
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}"


class UsageError(HarnessError):
    """An argument, a setting or a file says something that it may not say."""

    exit_code = ExitCode.USAGE


class RefusedError(HarnessError):
    """The request is understood and possible, and refused because it could do harm or mislead."""

    exit_code = ExitCode.REFUSED


class CapabilityError(RefusedError):
    """The back end of this cluster cannot do what was asked."""


class WaitTimeoutError(HarnessError):
    """A condition did not come true within its limit; the message says what was last seen."""


class NoBiteError(HarnessError):
    """A fault was injected and its effect could not be measured: the run proves nothing."""


class HealError(HarnessError):
    """A fault was healed and its effect is still there."""


def describe_error(error: BaseException) -> str:
    """Return the error as one line without its hint."""
    return error.message if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
