"""Errors with a message for the user. The message describes what happened, and a hint describes what to do.

    HarnessError         base class                                       exit 2, unless a subclass differs
    ├── UsageError       an argument or a file is wrong                   exit 4
    ├── RefusedError     the request could do harm or mislead             exit 5
    │   ├── CapabilityError  the request needs another kind of cluster    exit 5
    │   └── MachineError     this machine lacks a part, such as Java      exit 5
    ├── WaitTimeoutError a condition did not become true within its time limit
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
    """An error that the user can act on. `message` names the problem, and `hint` describes what to do."""

    exit_code = ExitCode.UNKNOWN

    def __init__(self, message: str, hint: str) -> None:
        # Pass both arguments to the base class. When an exception is sent to another process, Python creates
        # it there again from the arguments that the base class stored.
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}"


class UsageError(HarnessError):
    """An error in the user's input: a value in an argument, a setting or a file is not allowed."""

    exit_code = ExitCode.USAGE


class RefusedError(HarnessError):
    """An error for a request that the harness refuses, because it could do harm or mislead the user."""

    exit_code = ExitCode.REFUSED


class CapabilityError(RefusedError):
    """An error for a request that this kind of cluster (containers, processes, external) cannot fulfil."""


class MachineError(RefusedError):
    """An error for a part that this machine lacks, such as Java or a Docker engine.

    `eos doctor` reports it too.
    """


class WaitTimeoutError(HarnessError):
    """An error for a condition that did not become true within its time limit.

    The message contains the last value that the condition returned, or its last exception.
    """


class NoBiteError(HarnessError):
    """An error for a fault that was injected without a measurable effect, so the run proves nothing."""


class TargetEndedError(NoBiteError):
    """The process that a fault was to act on ended by itself before the fault was injected."""


class HealError(HarnessError):
    """An error for a fault whose effect persists after the fault was healed."""


def describe_error(error: BaseException) -> str:
    """Return the message of an error on one line, without its hint."""
    return error.message if isinstance(error, HarnessError) else f"{type(error).__name__}: {error}"
