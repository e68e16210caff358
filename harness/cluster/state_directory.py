"""What is on disk of a cluster, so that any later command finds it and nothing is left behind.

<state>/cluster.json   what was started, written before anything is started
<state>/lock           held by the command that changes the cluster
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

BackendName = Literal["compose", "process", "live"]
BackendChoice = Literal["auto", "compose", "process"]


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a cluster was started as."""

    schema: Literal[1] = 1
    name: str
    backend: BackendName
    profile: Profile
    cluster_id: str
    port_base: int
    # Whole once every node answered; a record that is not whole belongs to a start that was cut short.
    whole: bool = False
    images: dict[str, str] = {}


class State:
    """The state directory of one cluster."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    @property
    def intents(self) -> Path:
        """The folder where injections are noted before they are made."""
        return self.path / "intents"

    @property
    def nodes(self) -> Path:
        """The folder of the nodes' own folders."""
        return self.path / "nodes"

    @property
    def client_mark(self) -> str:
        """What stands in the command line of every client that a run started on this cluster."""
        return f"{self.path / 'clients'}/"

    def end_clients(self) -> None:
        """SIGKILL every client that is left of a run, and remove their folders."""
        processes.end_all(self.client_mark)
        shutil.rmtree(self.path / "clients", ignore_errors=True)

    @property
    def _record(self) -> Path:
        return self.path / "cluster.json"

    def load(self) -> ClusterRecord | None:
        """What was started here, None if nothing was."""
        try:
            return msgspec.json.decode(self._record.read_bytes(), type=ClusterRecord)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise UsageError(
                f"{self._record}: {error}",
                "it was written by another version or damaged; `eos down --force` removes what it left",
            ) from error

    def save(self, record: ClusterRecord) -> None:
        """Write the record; a crash leaves the old one or the new one, never half."""
        self.path.mkdir(parents=True, exist_ok=True)
        new = self._record.with_suffix(".new")
        new.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
        new.replace(self._record)

    def forget(self) -> None:
        """Remove the record: nothing of the cluster is left."""
        self._record.unlink(missing_ok=True)

    @contextmanager
    def locked(self, doing: str) -> Iterator[None]:
        """Hold the cluster for a change; refused while another command holds it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                holder = lock.read().strip() or "another command"
                raise RefusedError(
                    f"{holder} is changing the cluster of {self.path}",
                    "wait until it is done, or give this one a state directory of its own: --state DIR",
                ) from None
            lock.truncate(0)
            lock.write(f"`eos {doing}` (process {os.getpid()})")
            lock.flush()
            yield


def default_state() -> Path:
    """Return the state directory named by EOS_STATE, or else the default one."""
    named = os.environ.get("EOS_STATE")
    return Path(named) if named else state_dir("eos")
