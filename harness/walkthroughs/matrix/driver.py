"""A process that drives one client library: one line for a command, one line for its answer."""

from __future__ import annotations

import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.base.errors import HarnessError
from harness.clients.scripted.client_libraries import NEVER_RETURNED, RefusedCallError

ANSWER_LIMIT_S: Final = 60.0
"""Time limit for an answer. The default time limits of most libraries for one call are 30 s or 60 s."""


UNNAMED: Final = "error"
"""Name of an error for which the library has no name."""


class UnsupportedCallError(Exception):
    """A command for which the client library has no call."""


class Driver:
    """A running driver. Close it to end the process, which drops its producers."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        self._silent = False
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=dict(environment),
                text=True,
                bufsize=1,
            )
        self._read()

    def call(self, *words: object) -> str:
        """Carry out a command, and return the value of its answer; most commands have none.

        Raise RefusedCallError if the library reported an error, and UnsupportedCallError if it has no such
        call. A call without an answer ends the driver: a late answer would look like that of the next call.
        """
        if self._silent:
            raise RefusedCallError(NEVER_RETURNED, "an earlier call has not returned")
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        return self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        # The driver prints one line per command, and each call reads its whole line. So the buffer of
        # `stdout` is empty here, and `select`, which cannot see that buffer, does not miss an answer.
        if not select.select([self._process.stdout], [], [], ANSWER_LIMIT_S)[0]:
            self._silent = True
            self.close()
            raise RefusedCallError(NEVER_RETURNED, f"no answer for {ANSWER_LIMIT_S:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise HarnessError("the driver of a client library has ended", f"see {self._log}")
        kind, _, rest = line.rstrip("\n").partition(" ")
        if kind == "unsupported":
            raise UnsupportedCallError(rest.removeprefix("unsupported: "))
        if kind == "error":
            name, _, message = rest.partition(" ")
            raise RefusedCallError(name, message)
        return rest

    def close(self) -> None:
        """Kill the process; closing twice is harmless."""
        self._process.kill()
        self._process.communicate()
