"""The state directory of a cluster, through which later commands find the cluster.

<state>/cluster.json   the cluster record, written before anything is started
<state>/lock           held by the command that changes the cluster
<state>/intents/       the intents: injections that must be healed (harness.faults.intents)
<state>/nodes/<name>/  configuration, data, log, pid and exit code of a node (process back end)
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from harness.base import processes
from harness.base.errors import RefusedError, UsageError
from harness.cluster.broker_settings import Profile
from harness.provision.paths import state_dir

BackendName = Literal["compose", "process", "external"]
BackendChoice = Literal["auto", "compose", "process"]


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cluster record: back end, profile, id, ports and images with which a cluster was started."""

    schema: Literal[1] = 1
    name: str
    backend: BackendName
    profile: Profile
    cluster_id: str
    port_base: int
    # Whether every node has answered. If not, the start was interrupted.
    whole: bool = False
    images: dict[str, str] = {}


class State:
    """The state directory of one cluster."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    @property
    def intents(self) -> Path:
        """Folder of the intents, which are written before each injection."""
        return self.path / "intents"

    @property
    def nodes(self) -> Path:
        """Folder that contains a folder for each node."""
        return self.path / "nodes"

    @property
    def client_mark(self) -> str:
        """Text in the command line of every client that a run starts on this cluster."""
        return f"{self.path / 'clients'}/"

    def end_clients(self) -> None:
        """Send SIGKILL to clients left by an earlier run, and remove their folders."""
        processes.end_all(self.client_mark)
        shutil.rmtree(self.path / "clients", ignore_errors=True)

    @property
    def _record(self) -> Path:
        return self.path / "cluster.json"

    def load(self) -> ClusterRecord | None:
        """Return the cluster record, or None if nothing was started."""
        try:
            return msgspec.json.decode(self._record.read_bytes(), type=ClusterRecord)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise UsageError(
                f"{self._record}: {error}",
                "it is damaged or was written by another version; `eos down --force` removes the cluster",
            ) from error

    def save(self, record: ClusterRecord) -> None:
        """Write the record atomically: after a crash the file has either the old or the new content."""
        self.path.mkdir(parents=True, exist_ok=True)
        new = self._record.with_suffix(".new")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
        new.replace(self._record)

    def forget(self) -> None:
        """Remove the record. Call this last, after the rest of the cluster is removed."""
        self._record.unlink(missing_ok=True)

    @contextmanager
    def locked(self, doing: str) -> Iterator[None]:
        """Hold the lock of the cluster during a change. Raise RefusedError if another command holds it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                holder = lock.read().strip() or "another command"
                raise RefusedError(
                    f"{holder} is changing the cluster of {self.path}",
                    "wait until it has ended, or use another state directory: --state DIR",
                ) from None
            lock.truncate(0)
            lock.write(f"`eos {doing}` (process {os.getpid()})")
            lock.flush()
            yield


def default_state() -> Path:
    """Return the state directory that EOS_STATE names, else the default one."""
    named = os.environ.get("EOS_STATE")
    return Path(named) if named else state_dir("eos")
