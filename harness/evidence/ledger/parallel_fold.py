"""Fold of several large history files by several processes: this one, and helpers that it starts.

numpy holds the interpreter's lock during most steps of a fold, so threads do not help. A helper is a new
Python process. It receives the path of a file, and returns what the file adds to the ledger. This process
folds the first files, the helpers fold the last ones, until they meet. The ledger is the same, whichever
process folded a file.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from threading import Lock, Thread
from typing import Any, BinaryIO, Final, cast

import msgspec
import numpy as np

import harness
from harness.base.errors import HarnessError
from harness.evidence.history import HistoryFile
from harness.evidence.ledger.own_pages import empty
from harness.evidence.ledger.tables import LedgerPart

WORTH_BYTES: Final = 128 << 20
"""Total size of the histories in bytes from which on helpers are started.

Smaller histories are folded before a helper has imported numpy.
"""

MOST_FILE_BYTES: Final = 256 << 20
"""Size of the largest history in bytes up to which helpers are started.

A process that folds a file needs memory of more than the file's size.
"""

MOST_HELPERS: Final = 3
"""Maximum number of helpers."""

_SIZE: Final = Struct("<Q")

FoldFile = Callable[[HistoryFile, Collection[str]], LedgerPart]
Folded = LedgerPart | HarnessError


class Request(msgspec.Struct):
    """A line that a helper receives: the path of a history, and the clients that ended normally."""

    path: str
    finished: list[str]


def fold_each(
    fold_file: FoldFile, histories: Sequence[HistoryFile], finished: Collection[str]
) -> Iterator[LedgerPart]:
    """Yield what each history adds to the ledger, in the order of the histories."""
    helpers = min((os.cpu_count() or 1) - 1, len(histories) - 1, MOST_HELPERS)
    if helpers < 1 or not _are_worth_helpers(histories):
        yield from (fold_file(history, finished) for history in histories)
        return
    work = _Work(histories, list(finished))
    threads = [Thread(target=work.run_helper, name=f"fold-{number}") for number in range(helpers)]
    try:
        for thread in threads:
            thread.start()
        while (index := work.take_first()) is not None:
            yield fold_file(histories[index], finished)
        for thread in threads:
            thread.join()
        for index in range(work.first, len(histories)):
            folded = work.folded.pop(index, None)
            if isinstance(folded, HarnessError):
                raise folded
            # Without a result, the helper has died, so fold its file here.
            yield folded or fold_file(histories[index], finished)
    finally:
        work.stop()
        for thread in threads:
            thread.join()


def _are_worth_helpers(histories: Sequence[HistoryFile]) -> bool:
    sizes = [history.size for history in histories]
    is_stored = all(history.is_stored for history in histories)
    return is_stored and sum(sizes) >= WORTH_BYTES and max(sizes) <= MOST_FILE_BYTES


class _Work:
    """The files that are still to be folded, and what the helpers returned.

    This process takes the files before `first`, and the helpers take files from the end. `folded` contains
    the results of the helpers by the indices of the files.
    """

    def __init__(self, histories: Sequence[HistoryFile], finished: list[str]) -> None:
        self._histories = histories
        self._finished = finished
        self._lock = Lock()
        self.first = 0
        self._end = len(histories)
        self.folded: dict[int, Folded] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._is_stopped = False

    def take_first(self) -> int | None:
        """Take the first of the remaining files; return its index, or None if no file remains."""
        with self._lock:
            if self.first == self._end:
                return None
            self.first += 1
            return self.first - 1

    def _take_last(self) -> int | None:
        with self._lock:
            if self.first == self._end:
                return None
            self._end -= 1
            return self._end

    def run_helper(self) -> None:
        """Start a helper, let it fold files until all are taken, and keep what it returns."""
        # A helper must run this program, and not another version in the working directory.
        command = [sys.executable, "-P", "-m", "harness.evidence.ledger.fold_helper"]
        paths = [str(Path(harness.__file__).parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        with self._lock:
            if self._is_stopped:
                return
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._processes.append(process)
        requests, results = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
        # A helper may have died, or may have been stopped.
        with suppress(OSError, EOFError):
            while (index := self._take_last()) is not None:
                request = Request(str(self._histories[index].path.absolute()), self._finished)
                requests.write(msgspec.json.encode(request) + b"\n")
                requests.flush()
                self.folded[index] = receive(results)
        with suppress(OSError):
            requests.close()
        results.close()
        process.wait()

    def stop(self) -> None:
        """Kill the helpers that still work: their results are not needed."""
        with self._lock:
            self._is_stopped = True
            self._end = self.first
            for process in self._processes:
                process.kill()


def send(result: Folded, file: BinaryIO) -> None:
    """Write a result: its description, and then the bytes of its large columns, as they are in memory."""
    columns: list[pickle.PickleBuffer] = []
    head = pickle.dumps(result, protocol=5, buffer_callback=columns.append)
    parts = [memoryview(head), *(column.raw() for column in columns)]
    file.write(_SIZE.pack(len(parts)))
    for part in parts:
        file.write(_SIZE.pack(part.nbytes))
        file.write(part)
    file.flush()


def receive(file: BinaryIO) -> Folded:
    """Read a result. Raise EOFError if the file ends before it."""
    parts = [_read(file, _size_from(file)) for _ in range(_size_from(file))]
    # The helper is this program, and no other process writes to its pipe.
    return cast(Folded, pickle.loads(parts[0], buffers=parts[1:]))  # noqa: S301


def _size_from(file: BinaryIO) -> int:
    return int(_SIZE.unpack(_read(file, _SIZE.size))[0])


def _read(file: BinaryIO, size: int) -> Any:
    column = empty((size,), np.uint8)
    rest = memoryview(column)
    while rest:
        count = file.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            raise EOFError
        rest = rest[count:]
    return column
