"""Progress of a client, in a small file beside its spec; the run's monitor reads it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

EVERY_S: Final = 1.0


class ClientProgress(msgspec.Struct, kw_only=True):
    """Counts since the client's start, for display only; the history is the evidence."""

    kind: str = ""
    client: str = ""
    state: str = "starting"  # later "running", "done" or "gave up"
    sent: int = 0
    acknowledged: int = 0  # records that were delivered or are in committed transactions
    read: int = 0
    foreign: int = 0  # records read that carry no identity of this run
    committed: int = 0  # transactions that the client saw committed
    aborted: int = 0
    unknown: int = 0
    reinits: int = 0  # producers that were created after the first one
    resent: int = 0  # records that an idempotent client sent more than once; set at its end
    resent_ends: int = 0  # EndTxn requests in excess of one per transaction
    rewinds: int = 0
    request_retries: int = 0  # requests of a producer that librdkafka sent again
    request_timeouts: int = 0  # requests of a producer without an answer in time
    broken_connections: int = 0  # of a producer to brokers and coordinators
    in_flight: int = 0
    last_error: str = ""
    wall: float = 0.0  # wall-clock time of this snapshot, seconds since the epoch

    def statistics(self) -> dict[str, float]:
        """Return what the client library counted, and the results of the client's operations."""
        return {
            "request retries": self.request_retries,
            "request timeouts": self.request_timeouts,
            "broken connections": self.broken_connections,
            "acknowledged": self.acknowledged,
            "committed": self.committed,
            "aborted": self.aborted,
        }


class ProgressFile:
    """File with the counts, written about once a second, even while the client waits in a call."""

    def __init__(self, path: Path, progress: ClientProgress) -> None:
        self._path = path
        self._progress = progress
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._write()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._write()

    def _run(self) -> None:
        while not self._over.wait(EVERY_S):
            self._write()

    def _write(self) -> None:
        self._progress.wall = time.time()
        # Write without fsync, because progress is not needed after a crash of the host.
        beside = self._path.with_name(f".{self._path.name}")
        beside.write_bytes(msgspec.json.encode(self._progress))
        beside.replace(self._path)


def load_progress(path: Path) -> ClientProgress:
    """Read the last progress of a client; before the first write, all counts are zero."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClientProgress)
    except FileNotFoundError:
        return ClientProgress()
