"""The tap as tests, faults and runs see it: started when it is first wanted, one for a cluster.

tap = ensure_tap(cluster)
tap.log_to(run_directory)
tap.arm(Rule(id="late", verb="hold", api="EndTxn", transactional_id="t", drop_client=True))
...
tap.release("late")
"""

from __future__ import annotations

import fcntl
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from harness.base import processes
from harness.base.errors import HarnessError
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS, HOST
from harness.tap.control_messages import (
    Answer,
    Ask,
    AskAccounts,
    AskArm,
    AskDisarm,
    AskFlush,
    AskLog,
    AskRelease,
    AskStatus,
    Status,
)
from harness.tap.frame_log import EXCHANGES_PER_S, MOST_BYTES
from harness.tap.hub import Accounts
from harness.tap.rules import Armed, Rule
from harness.tap.server import CONTROL_FILE

LOG_NAME = "frames.jsonl"
_LIMIT_S = 10.0
_START_LIMIT_S = 20.0


class TapError(HarnessError):
    """The tap refused a request."""


class Tap:
    """The client of one tap's control channel; every call has a time limit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def status(self) -> Status:
        """Who listens where, what is armed, what was counted."""
        found = self._ask(AskStatus()).status
        assert found is not None
        return found

    def accounts(self) -> list[Accounts]:
        """The bytes of every connection."""
        return self._ask(AskAccounts()).accounts or []

    def arm(self, rule: Rule) -> None:
        """Arm a rule: it counts matches from now on."""
        rule.check()
        self._ask(AskArm(rule=rule))

    def disarm(self, rule_id: str) -> Armed | None:
        """Forget a rule and return what it did; what it still held is lost, and never delivered later."""
        return self._ask(AskDisarm(id=rule_id)).armed

    def release(self, rule_id: str) -> int:
        """Send what a rule keeps; return how many frames that were."""
        return self._ask(AskRelease(id=rule_id)).released

    def armed(self, rule_id: str) -> Armed | None:
        """A rule that is armed and what it has done so far; None if there is none of this id."""
        return next((a for a in self.status().rules if a.rule.id == rule_id), None)

    def wait_hit(self, rule_id: str, did: str | None = None, limit: float = 10.0) -> Armed:
        """Wait until a rule has hit a frame, or until `did` has become of the last one that it hit."""

        def hit() -> Armed | None:
            found = self.armed(rule_id)
            last = found.hits[-1] if found and found.hits else None
            return found if last and did in (None, last.did) else None

        found = wait_until(hit, limit, f"rule {rule_id} to have {did or 'hit'} a frame", hint=_NO_HIT)
        assert found is not None
        return found

    @contextmanager
    def rule(self, rule: Rule) -> Iterator[Rule]:
        """Arm a rule inside the block, forget it after."""
        self.arm(rule)
        try:
            yield rule
        finally:
            self.disarm(rule.id)

    def log_to(
        self, directory: Path, *, exchanges_per_s: int = EXCHANGES_PER_S, most_bytes: int = MOST_BYTES
    ) -> Path:
        """Write a frame log into this directory from now on; return its file."""
        path = directory.resolve() / LOG_NAME
        self._ask(AskLog(path=str(path), exchanges_per_s=exchanges_per_s, most_bytes=most_bytes))
        return path

    def stop_log(self) -> None:
        """Write what waits, and end the log."""
        self._ask(AskLog(path=None, exchanges_per_s=EXCHANGES_PER_S, most_bytes=MOST_BYTES))

    def flush(self) -> None:
        """Return when everything that passed so far stands in the log."""
        self._ask(AskFlush())

    def _ask(self, ask: Ask) -> Answer:
        port = int((self.folder / CONTROL_FILE).read_text())
        with socket.create_connection((HOST, port), timeout=_LIMIT_S) as channel:
            channel.sendall(msgspec.json.encode(ask) + b"\n")
            with channel.makefile("rb") as lines:
                line = lines.readline()
        if not line:
            raise ConnectionError(f"the tap of {self.folder} closed the control channel without an answer")
        answer = msgspec.json.decode(line, type=Answer)
        if answer.error:
            raise TapError(answer.error, answer.hint)
        return answer


_NO_HIT = "does the client use the TAPPED listener? `eos status` shows its ports; are the selectors right?"


def find_tap(cluster: Cluster) -> Tap | None:
    """The tap of this cluster if it runs and answers."""
    tap = Tap(_folder(cluster))
    try:
        tap.status()
    except (OSError, ValueError):
        return None
    return tap


def was_wanted(cluster: Cluster) -> bool:
    """Whether somebody started a tap for this cluster, even if it has died since."""
    return (_folder(cluster) / "lock").exists()


def ensure_tap(cluster: Cluster) -> Tap:
    """The tap of this cluster, started if none answers; one that is stuck is replaced."""
    folder = _folder(cluster)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return find_tap(cluster) or _start(cluster, folder)


def stop_tap(cluster: Cluster) -> None:
    """End the tap of this cluster; its clients are cut off, what it held is lost."""
    folder = _folder(cluster)
    processes.end_all(f"{folder} ")
    (folder / CONTROL_FILE).unlink(missing_ok=True)


def _folder(cluster: Cluster) -> Path:
    # Under the nodes' folder: whatever removes the cluster ends every process that names it.
    return cluster.state.nodes / "tap"


def _start(cluster: Cluster, folder: Path) -> Tap:
    stop_tap(cluster)
    ports = cluster.ports
    doors = [f"{b}:{ports.tapped(b)}:{ports.tap_upstream(b)}" for b in BROKER_IDS]
    command = [sys.executable, "-m", "harness.tap.server", str(folder), cluster.record.name, *doors]
    processes.start_supervised(command, folder)
    tap = Tap(folder)
    wait_until(
        tap.status,
        _START_LIMIT_S,
        "the wire tap to answer",
        not_yet=(OSError, ValueError),
        hint=f"look at {folder / 'log'}",
    )
    return tap
