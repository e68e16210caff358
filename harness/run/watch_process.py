"""A round of a watch in a process of its own: what the round used is free when it has ended."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from harness.base.errors import ExitCode
from harness.run.shutdown import StopRequest, interruptible
from harness.run.watch import Round, failed_round

_POLL_S: Final = 0.2
_STOPPED: Final = (ExitCode.INTERRUPTED, "the watch was stopped in this round")


def make_round_in_process(arguments: Sequence[str], number: int, seed: int) -> Round:
    """Let `eos watch` with these arguments make one round in a new process. Return what it printed.

    Ctrl-C and SIGTERM are passed on. The process is in a session of its own, so that it gets each one once.
    """
    began, stop = time.monotonic(), StopRequest()
    command = [sys.executable, "-m", "harness", "watch", *arguments]
    with interruptible(stop):
        process = subprocess.Popen(
            [*command, "--only-round", str(number), str(seed)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output = _output(process, stop)
        finally:
            if process.poll() is None:  # a second Ctrl-C: ask again, which ends the process at once
                process.terminate()
                process.communicate()
    unexplained = _STOPPED if stop.is_set() else _unexplained(process.returncode)
    done = _printed(output) or failed_round(number, seed, began, *unexplained)
    done.interrupted = done.interrupted or stop.is_set()
    return done


def _printed(output: str) -> Round | None:
    """Return the round in the last line of this output; None if there is none."""
    try:
        return msgspec.json.decode(output.splitlines()[-1], type=Round)
    except (IndexError, msgspec.DecodeError):
        return None


def _unexplained(code: int) -> tuple[int, str]:
    """Return the exit code and the reason of a round whose process ended without a result."""
    known = code if code in set(ExitCode) and code != ExitCode.VALID else ExitCode.UNKNOWN
    return known, f"the process of the round ended with exit code {code} and without a result"


def _output(process: subprocess.Popen[str], stop: StopRequest) -> str:
    """Return what the process prints until it ends."""
    asked = False
    while True:
        try:
            return process.communicate(timeout=_POLL_S)[0]
        except subprocess.TimeoutExpired:
            if stop.is_set() and not asked:
                process.terminate()
                asked = True
