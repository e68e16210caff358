"""Supervisor of the application under test: it starts the instances, restarts them, and stops them.

A fault that ends an instance holds it first. The supervisor then does not restart the instance until the
fault is healed, so the fault determines how long the instance is down.
"""

from __future__ import annotations

import random
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from harness.app.app_spec import AppSpec
from harness.app.instance import START_LIMIT_S, AppInstance, Names
from harness.app.keeper import Exit
from harness.app.limited_log import last_lines
from harness.base.errors import HarnessError, UsageError, WaitTimeoutError, describe_error
from harness.base.processes import ProcessState
from harness.base.waits import wait_until
from harness.evidence.app_list import AppEnd, AppListWriter

LOOK_S: Final = 0.2
PROBE_LIMIT_S: Final = 5.0
"""Time limit of one connection, request or command that checks whether an instance is ready."""

Log = Callable[[str], None]


class _Supervised:
    """An instance with what the supervisor has to remember about it."""

    def __init__(self, instance: AppInstance) -> None:
        self.instance = instance
        self.held_by = ""
        """Id of the fault that ends the instance; the instance is not restarted while it is set."""
        self.seen = 0
        """Number of the latest start whose end was handled."""
        self.started = 0
        """Monotonic time of the latest start, in nanoseconds."""
        self.restart_at: float | None = None
        self.restarts: list[float] = []
        self.gave_up = ""
        self.retired = False
        """Whether the instance was stopped because fewer instances are wanted."""


class AppSupervisor:
    """Supervisor of all instances. `start` starts them and a thread that restarts those that end."""

    def __init__(
        self,
        spec: AppSpec,
        folder: Path,
        names: Names,
        *,
        starts: AppListWriter,
        log: Log,
        group_ready: Callable[[], bool] = lambda: True,
        fetch_ready: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self.spec = spec
        self._folder = folder
        self._names = names
        self._fetch_ready = fetch_ready
        self._log = log
        self._starts = starts
        self._group_ready = group_ready
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="app", daemon=True)
        self._all = {name: self._supervised(name, index) for index, name in enumerate(spec.names, 1)}

    @property
    def instances(self) -> list[AppInstance]:
        """All instances, in the order of their numbers."""
        return [each.instance for each in self._all.values()]

    def _supervised(self, name: str, index: int) -> _Supervised:
        return _Supervised(AppInstance(self.spec, name, self._folder / name, self._names, index))

    def start(self) -> None:
        """Start every instance, and restart instances from now on according to the restart policy."""
        for each in self._all.values():
            self._start(each)
        self._thread.start()

    def wait_ready(self, enough: Callable[[], bool] = lambda: False, limit: float | None = None) -> None:
        """Wait until every instance is ready.

        The wait also ends when `enough` returns True. Raise HarnessError if an instance is not restarted any
        more, and WaitTimeoutError with its last lines if it is not ready in time.
        """
        limit = float(self.spec.limits.start) if limit is None else limit
        not_ready: list[str] = []

        def is_ready() -> bool:
            with self._lock:
                wanted = [name for name, each in self._all.items() if not each.retired]
            not_ready[:] = [name for name in wanted if not self._is_ready(name)]
            return enough() or (not not_ready and self._are_partitions_ready())

        try:
            wait_until(is_ready, limit, f"{self.spec.name} to be ready", every=LOOK_S)
        except WaitTimeoutError as error:
            lines = "; ".join(last_lines(self._all[(not_ready or list(self._all))[0]].instance.log_path, 3))
            waiting = f"not ready: {', '.join(not_ready) or self._unready_partitions}"
            raise WaitTimeoutError(
                f"{error.message}; {waiting}; its last lines: {lines or 'none'}",
                "check the command, or set [app] ready or limits.start",
            ) from error

    def choose(self, pattern: str, seed: int) -> AppInstance:
        """Return a running instance whose name matches `pattern`; `seed` chooses if several match."""
        running = [
            name
            for name, each in self._all.items()
            if fnmatchcase(name, pattern)
            and each.instance.exit() is None
            and each.instance.state() is ProcessState.RUNNING
        ]
        if not running:
            names = ", ".join(self._all)
            raise UsageError(
                f"no running instance of the application matches {pattern!r}", f"they are {names}"
            )
        return self._all[random.Random(seed).choice(sorted(running))].instance

    def hold(self, name: str, fault: str) -> None:
        """Do not restart an instance until `release`, because a fault is about to end it."""
        with self._lock:
            self._all[name].held_by = fault or "a fault"

    def unhold(self, name: str) -> None:
        """Restart an instance according to the restart policy again, because no fault has ended it."""
        with self._lock:
            self._all[name].held_by = ""

    def release(self, name: str) -> None:
        """Let the supervisor start a held instance again, at once and whatever the restart policy is."""
        with self._lock:
            each = self._all[name]
            each.held_by = ""
            if each.instance.exit() is not None:
                self._note_end(each, "by a fault")
                each.restart_at = time.monotonic()

    def note_fault(self, name: str, fault: str) -> None:
        """Record that a fault has ended an instance."""
        with self._lock:
            each = self._all[name]
            each.held_by = fault
            self._note_end(each, "by a fault")

    @property
    def running(self) -> list[str]:
        """Names of the instances that run or are about to be restarted, without those that were retired."""
        with self._lock:
            return [name for name, each in self._all.items() if not each.retired and not each.gave_up]

    def is_ready(self) -> bool:
        """Return whether every instance that is wanted to run is ready."""
        return all(self._is_up(self._all[name]) for name in self.running) and self._are_partitions_ready()

    def instance(self, name: str) -> AppInstance:
        """Return the instance with this name."""
        return self._all[name].instance

    def restart(self, name: str) -> str:
        """Stop an instance cleanly, and start it again. Return what was wrong with the stop, or ""."""
        self.hold(name, "")
        try:
            return self._stop(self._all[name])
        finally:
            self.release(name)

    def wait_started(self, name: str, number: int) -> None:
        """Wait until an instance was started this often."""
        wait_until(
            lambda: self._all[name].instance.number >= number, START_LIMIT_S, f"{name} to be started again"
        )

    def scale(self, count: int) -> None:
        """Start further instances, or stop the last ones, until `count` instances run."""
        with self._lock:
            names = [f"{self.spec.name}-{index}" for index in range(1, max(count, len(self._all)) + 1)]
            for index, name in enumerate(names, 1):
                each = self._all.setdefault(name, self._supervised(name, index))
                started = each.instance.number > 0 and not each.retired
                each.retired = index > count
                if not each.retired and not started:
                    each.seen = each.instance.number
                    self._start(each)
            leaving = [each for each in self._all.values() if each.retired and each.instance.exit() is None]
            leaving = [each for each in leaving if each.instance.number]
        for each in leaving:
            problem = self._stop(each)
            if problem:
                self._log(problem)

    def stop(self) -> list[str]:
        """Ask every instance to stop, and wait. Return what was wrong: instances that had to be killed."""
        self._end_thread()
        with ThreadPoolExecutor(len(self._all)) as pool:
            return [problem for problem in pool.map(self._stop, self._all.values()) if problem]

    def kill(self) -> None:
        """End every instance by SIGKILL."""
        self._end_thread()
        for each in self._all.values():
            if each.instance.number and each.instance.exit() is None:
                each.instance.kill()
                self._note_end(each, "killed")

    def _end_thread(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(30)

    def _stop(self, each: _Supervised) -> str:
        if each.instance.number and each.instance.exit() is not None:
            self._note_end(each, "by a fault" if each.held_by else "by itself")
            return ""
        problem = each.instance.stop()
        self._note_end(each, "killed" if problem else "stopped")
        return problem

    def _start(self, each: _Supervised) -> None:
        self._starts.add(each.instance.name, each.instance.number + 1)
        each.restart_at = None
        each.started = time.monotonic_ns()
        each.instance.start()

    def _loop(self) -> None:
        while not self._stopped.wait(LOOK_S):
            for each in list(self._all.values()):
                try:
                    with self._lock:
                        self._look(each)
                except (HarnessError, OSError) as error:
                    self._log(f"{each.instance.name}: {describe_error(error)}")

    def _look(self, each: _Supervised) -> None:
        """Notice that an instance has ended, and restart it when its back-off is over."""
        if each.held_by or each.gave_up or each.retired or self._stopped.is_set():
            return
        if each.restart_at is not None:
            if time.monotonic() >= each.restart_at:
                self._start(each)
            return
        ended = each.instance.exit()
        if ended is None or each.seen == each.instance.number:
            return
        self._note_end(each, "by itself")
        self._plan_restart(each, ended)

    def _plan_restart(self, each: _Supervised, ended: Exit) -> None:
        name, now = each.instance.name, time.monotonic()
        line = each.instance.last_line()
        what = f"{name} ended with exit code {ended.code}"
        what += f" ({ended.reason})" if ended.reason else ""
        what += f"; its last line: {line}" if line else ""
        if self.spec.restart == "never" or (self.spec.restart == "on-failure" and ended.code == 0):
            self._give_up(each, f"{what}, and restart = {self.spec.restart!r}")
            return
        limit = self.spec.most_restarts
        each.restarts = [at for at in each.restarts if now - at < limit.within]
        if len(each.restarts) >= limit.most:
            self._give_up(each, f"{what}, and it was restarted {limit} already")
            return
        least, most = self.spec.backoff
        delay = min(float(most), float(least) * 2 ** len(each.restarts))
        each.restarts.append(now)
        each.restart_at = now + delay
        self._log(f"{what}; restart in {delay:g} s")

    def _give_up(self, each: _Supervised, why: str) -> None:
        each.gave_up = why
        self._starts.give_up(each.instance.name, why)
        self._log(why)

    def _note_end(self, each: _Supervised, how: AppEnd) -> None:
        instance = each.instance
        ended = instance.exit()
        if not instance.number or ended is None:
            return
        each.seen = instance.number
        self._starts.end(
            instance.name,
            instance.number,
            how,
            exit_code=ended.code,
            reason=ended.reason,
            fault=each.held_by if how == "by a fault" else "",
            last_line=instance.last_line(),
        )

    def _is_ready(self, name: str) -> bool:
        each = self._all[name]
        if each.gave_up:
            raise HarnessError(f"the application does not run: {each.gave_up}", "read its log in the run")
        return self._is_up(each)

    def _is_up(self, each: _Supervised) -> bool:
        """Return whether an instance runs and is ready by itself."""
        instance, ready = each.instance, self.spec.ready
        if each.restart_at is not None or instance.exit() is not None:
            return False
        if ready.log:
            return instance.has_logged_ready()
        if ready.port:
            return _accepts(instance.port(ready.port))
        if ready.http:
            return _answers(instance.text(ready.http))
        if ready.command:
            return _succeeds([instance.text(text) for text in ready.command])
        return True

    def _are_partitions_ready(self) -> bool:
        if self.spec.ready.fetch:
            with self._lock:
                latest = max(each.started for each in self._all.values())
            return self._fetch_ready(latest)
        wanted = self.spec.ready.group or (bool(self.spec.group) and not self.spec.ready.used)
        return not wanted or self._group_ready()

    @property
    def _unready_partitions(self) -> str:
        what = "was not fetched through the proxies" if self.spec.ready.fetch else "has no stable owner"
        by = "" if self.spec.ready.fetch else f" in group {self.spec.group}"
        return f"a partition of the inputs {what}{by}"


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), PROBE_LIMIT_S).close()
    except OSError:
        return False
    return True


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=PROBE_LIMIT_S) as answer:  # noqa: S310 - checked when loaded
            return bool(answer.status < 400)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def _succeeds(command: list[str]) -> bool:
    try:
        ended = subprocess.run(command, capture_output=True, timeout=PROBE_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0
