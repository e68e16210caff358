"""Interface of the taps for tests, faults and runs.

Each cluster has a tap between clients and brokers, which starts at its first use. A cluster that was started
with `internal_tap` has a second one between its brokers.

This example holds an EndTxn request back and releases it later:

    tap = ensure_tap(cluster)
    tap.log_to(run_directory)
    tap.arm(Rule(id="late", verb="hold", api="EndTxn", transactional_id="t", drop_client=True))
    ...
    tap.release("late")
"""

from __future__ import annotations

import fcntl
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from harness.base import processes
from harness.base.errors import HarnessError
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import HOST, BrokerListener
from harness.cluster.tap_process import no_internal_tap, tap_command, tap_folder
from harness.tap.control_messages import (
    Ask,
    AskAccounts,
    AskArm,
    AskDisarm,
    AskFlush,
    AskLog,
    AskRelease,
    AskStatus,
    TapAnswer,
    TapStatus,
)
from harness.tap.frame_log import EXCHANGES_PER_S, MOST_BYTES
from harness.tap.hub import Accounts
from harness.tap.rules import Armed, Rule
from harness.tap.server import CONTROL_FILE

LOG_NAME = "frames.jsonl"
INTERNAL_LOG_NAME = "frames-internal.jsonl"
_LIMIT_S = 10.0
_START_LIMIT_S = 20.0


class TapError(HarnessError):
    """Error for a request that the tap refused."""


class Tap:
    """Client of the control channel of one tap. Every call has a time limit."""

    def __init__(self, folder: Path, listener: BrokerListener = BrokerListener.TAPPED) -> None:
        self.folder = folder
        self.listener = listener

    @property
    def log_name(self) -> str:
        """Name of the frame log of this tap in the directory of a run."""
        return LOG_NAME if self.listener is BrokerListener.TAPPED else INTERNAL_LOG_NAME

    def status(self) -> TapStatus:
        """Return ports, armed rules and counters."""
        status = self._ask(AskStatus()).status
        assert status is not None
        return status

    def accounts(self) -> list[Accounts]:
        """Return the byte counts of every connection through the tap."""
        return self._ask(AskAccounts()).accounts or []

    def arm(self, rule: Rule) -> None:
        """Arm a rule. From now on, it counts its matches."""
        rule.check()
        self._ask(AskArm(rule=rule))

    def disarm(self, rule_id: str) -> Armed | None:
        """Remove a rule and return it with its hits. Frames that the rule still holds back are dropped."""
        return self._ask(AskDisarm(id=rule_id)).armed

    def release(self, rule_id: str) -> int:
        """Forward the frames that a rule keeps back; return their number."""
        return self._ask(AskRelease(id=rule_id)).released

    def armed(self, rule_id: str) -> Armed | None:
        """Return an armed rule with its hits, or None if no rule has this id."""
        return next((a for a in self.status().rules if a.rule.id == rule_id), None)

    def wait_hit(self, rule_id: str, did: str | None = None, limit: float = 10.0) -> Armed:
        """Wait until a rule has hit a frame, and return the rule with its hits.

        If `did` is given, wait until the last hit of the rule has this outcome.
        """

        def hit() -> Armed | None:
            armed = self.armed(rule_id)
            last = armed.hits[-1] if armed and armed.hits else None
            return armed if last and did in (None, last.did) else None

        armed = wait_until(hit, limit, f"rule {rule_id} to have {did or 'hit'} a frame", hint=_NO_HIT)
        assert armed is not None
        return armed

    @contextmanager
    def rule(self, rule: Rule) -> Iterator[Rule]:
        """Arm a rule inside the block, and remove it afterwards."""
        self.arm(rule)
        try:
            yield rule
        finally:
            self.disarm(rule.id)

    def log_to(
        self, directory: Path, *, exchanges_per_s: int = EXCHANGES_PER_S, most_bytes: int = MOST_BYTES
    ) -> Path:
        """Start a frame log in a directory and return its file."""
        path = directory.resolve() / self.log_name
        self._ask(AskLog(path=str(path), exchanges_per_s=exchanges_per_s, most_bytes=most_bytes))
        return path

    def stop_log(self) -> None:
        """Write the queued lines of the frame log and close it."""
        self._ask(AskLog(path=None, exchanges_per_s=EXCHANGES_PER_S, most_bytes=MOST_BYTES))

    def flush(self) -> None:
        """Wait until the frame log contains everything that has passed the tap so far."""
        self._ask(AskFlush())

    def _ask(self, ask: Ask) -> TapAnswer:
        port = int((self.folder / CONTROL_FILE).read_text())
        with socket.create_connection((HOST, port), timeout=_LIMIT_S) as channel:
            channel.sendall(msgspec.json.encode(ask) + b"\n")
            with channel.makefile("rb") as lines:
                line = lines.readline()
        if not line:
            raise ConnectionError(f"the tap of {self.folder} closed the control channel without an answer")
        answer = msgspec.json.decode(line, type=TapAnswer)
        if answer.error:
            raise TapError(answer.error, answer.hint)
        return answer


_NO_HIT = "check that the client uses the TAPPED listener (`eos status` shows its ports), and the selectors"


def find_tap(cluster: Cluster, listener: BrokerListener = BrokerListener.TAPPED) -> Tap | None:
    """Return the tap of a listener, or None if it does not run or does not answer."""
    tap = Tap(tap_folder(cluster.state, listener), listener)
    try:
        tap.status()
    except (OSError, ValueError):
        return None
    return tap


def was_started(cluster: Cluster, listener: BrokerListener = BrokerListener.TAPPED) -> bool:
    """Return whether the tap of a listener was started, even if its process has ended since."""
    folder = tap_folder(cluster.state, listener)
    return (folder / "lock").exists() or (folder / "pid").exists()


def ensure_tap(cluster: Cluster, listener: BrokerListener = BrokerListener.TAPPED) -> Tap:
    """Return the tap of a listener. If it does not answer, start it first.

    Raise RefusedError if the listener is INTERNAL, and the cluster was started without a tap between its
    brokers.
    """
    if listener is BrokerListener.INTERNAL and not cluster.record.internal_tap:
        raise no_internal_tap(cluster.state)
    folder = tap_folder(cluster.state, listener)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return find_tap(cluster, listener) or _start(cluster, listener)


def running_taps(cluster: Cluster) -> list[Tap]:
    """Return the taps whose frames a run records: that of the clients, and that of the brokers if any."""
    internal = [BrokerListener.INTERNAL] if cluster.record.internal_tap else []
    return [ensure_tap(cluster, listener) for listener in (BrokerListener.TAPPED, *internal)]


def stop_tap(cluster: Cluster, listener: BrokerListener = BrokerListener.TAPPED) -> None:
    """Stop the tap of a listener. Its connections are cut, and the frames that it keeps back are lost."""
    folder = tap_folder(cluster.state, listener)
    processes.end_all(f"{folder} ")
    (folder / CONTROL_FILE).unlink(missing_ok=True)


def _start(cluster: Cluster, listener: BrokerListener) -> Tap:
    stop_tap(cluster, listener)
    folder = tap_folder(cluster.state, listener)
    processes.start_supervised(tap_command(cluster.state, cluster.record, listener), folder)
    tap = Tap(folder, listener)
    wait_until(
        tap.status,
        _START_LIMIT_S,
        "the wire tap to answer",
        not_yet=(OSError, ValueError),
        hint=f"look at {folder / 'log'}",
    )
    return tap
