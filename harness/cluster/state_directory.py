"""The state directory of a cluster. Later commands find the cluster through it.

<state>/cluster.json   the cluster record, written before any node is started
<state>/lock           the lock file, locked by the command that changes the cluster
<state>/intents/       one intent for each injection, written before the injection (harness.faults.intents)
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
from harness.provision.app_processes import end_processes
from harness.provision.kafka_versions import DEFAULT_KAFKA
from harness.provision.paths import state_dir

BackendName = Literal["compose", "process", "external"]
BackendChoice = Literal["auto", "compose", "process"]


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cluster record: back end, Kafka version, profile, cluster id, ports and images of a cluster."""

    schema: Literal[1] = 1
    name: str
    backend: BackendName
    profile: Profile
    cluster_id: str
    port_base: int
    # True if the cluster became healthy after its start. False if the start is not complete or was
    # interrupted.
    whole: bool = False
    # True if the brokers reach each other through a wire tap, the one of the listener INTERNAL.
    internal_tap: bool = False
    images: dict[str, str] = {}
    kafka: str = DEFAULT_KAFKA


class State:
    """The state directory of one cluster."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    @property
    def intents(self) -> Path:
        """Folder of the intents. An intent is written before each injection."""
        return self.path / "intents"

    @property
    def nodes(self) -> Path:
        """Folder with one subfolder for each node."""
        return self.path / "nodes"

    @property
    def client_mark(self) -> str:
        """Text by which the harness finds the clients of this cluster.

        The command line of every client that a run starts contains this text.
        """
        return f"{self.path / 'clients'}/"

    def end_clients(self) -> None:
        """Send SIGKILL to all clients that runs have started on this cluster, and remove their folders."""
        processes.end_all(self.client_mark)
        shutil.rmtree(self.path / "clients", ignore_errors=True)

    @property
    def apps(self) -> Path:
        """Folder with one subfolder for each run that has an application under test."""
        return self.path / "apps"

    def end_apps(self) -> int:
        """End all processes and containers of applications that runs have started on this cluster.

        Remove their folders, and return how many processes and containers were found.
        """
        # The keepers first: they do not have the mark of the application in their environment.
        processes.end_all(f"{self.apps}/")
        ended = end_processes(f"{self.apps}/")
        shutil.rmtree(self.apps, ignore_errors=True)
        return ended

    @property
    def _record(self) -> Path:
        return self.path / "cluster.json"

    def load(self) -> ClusterRecord | None:
        """Return the cluster record, or None if no cluster was started from this state directory."""
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
        """Write the cluster record atomically: after a crash the file has the old or the new content."""
        self.path.mkdir(parents=True, exist_ok=True)
        new = self._record.with_suffix(".new")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
        new.replace(self._record)

    def forget(self) -> None:
        """Remove the cluster record. Call this last, after the rest of the cluster was removed."""
        self._record.unlink(missing_ok=True)

    def claim(self) -> None:
        """Create the directory with its lock file, by which later commands recognise a state directory."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "lock").touch()

    @contextmanager
    def locked(self, doing: str) -> Iterator[None]:
        """Hold the cluster's lock inside the block. Raise RefusedError if another command holds it.

        `doing` is the name of the command that changes the cluster.
        """
        self.claim()
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
    """Return the state directory that the environment variable EOS_STATE names, or else the default one."""
    named = os.environ.get("EOS_STATE")
    return Path(named) if named else state_dir("eos")
