"""The state directory of a cluster: any later command finds the cluster by it.

<state>/cluster.json   the cluster record, written before anything is started
<state>/lock           locked by the command that changes the cluster
<state>/intents/       injections that must be healed (harness.faults.intents)
<state>/nodes/<name>/  a node's configuration, data, log, pid and exit code (process back end)
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
    """How a cluster was started."""

    schema: Literal[1] = 1
    name: str
    backend: BackendName
    profile: Profile
    cluster_id: str
    port_base: int
    # True once every node has answered; otherwise the start was interrupted.
    whole: bool = False
    images: dict[str, str] = {}


class State:
    """The state directory of one cluster."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    @property
    def intents(self) -> Path:
        """Folder of the intents: injections recorded before they are made."""
        return self.path / "intents"

    @property
    def nodes(self) -> Path:
        """Folder with one folder for each node."""
        return self.path / "nodes"

    @property
    def client_mark(self) -> str:
        """Mark in the command line of every client that a run started on this cluster."""
        return f"{self.path / 'clients'}/"

    def end_clients(self) -> None:
        """Send SIGKILL to the clients that a run left, and remove their folders."""
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
        """Write the record atomically: after a crash the file has the old or the new content."""
        self.path.mkdir(parents=True, exist_ok=True)
        new = self._record.with_suffix(".new")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
        new.replace(self._record)

    def forget(self) -> None:
        """Remove the record, after everything else of the cluster."""
        self._record.unlink(missing_ok=True)

    @contextmanager
    def locked(self, doing: str) -> Iterator[None]:
        """Hold the lock of the cluster for a change. Refused while another command holds it."""
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
    """Return the state directory named by EOS_STATE, or else the default one."""
    named = os.environ.get("EOS_STATE")
    return Path(named) if named else state_dir("eos")
