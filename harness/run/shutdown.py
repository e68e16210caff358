"""The way out of a run: Ctrl-C, healing, logs that are kept; whatever fails here, the run is judged."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from harness.base.errors import HarnessError, describe_error
from harness.base.secrets import redact
from harness.clients.client_process import ClientProcess
from harness.cluster.cluster import Cluster
from harness.evidence.run_directory import RunDirectory
from harness.faults.heal import heal

Action = Callable[[], object]
FAILURES: Final = (HarnessError, OSError, EOFError)
"""What the world may do to a step; anything else is a bug of ours."""
_LOG_LINES: Final = 2000


class Shutdown:
    """The last steps of one run: each is tried, and a failure is told and ends nothing."""

    def __init__(self, cluster: Cluster, directory: RunDirectory, tell: Callable[[str, str], None]) -> None:
        self._cluster = cluster
        self._directory = directory
        self._tell = tell

    def heal(self, injected: Action) -> None:
        """Heal what is injected; what will not heal that way is healed from what can be seen."""
        try:
            injected()
        except FAILURES as error:
            self._tell("heal", f"{describe_error(error)}: healing everything that can be seen")
            self._heal_all()

    def _heal_all(self) -> None:
        try:
            heal(self._cluster, lambda line: self._tell("heal", line), spare_clients=True)
        except FAILURES as error:
            # The verdict counts a fault without its healing, and cannot be valid.
            self._tell("heal", f"NOT healed: {describe_error(error)}; `eos heal` tries again")

    def each(self, *steps: Action) -> None:
        """Take every step, also behind one that fails."""
        for step in steps:
            try:
                step()
            except FAILURES as error:
                self._tell("drain", f"{describe_error(error)}: judging what there is")

    def keep_logs(self, clients: list[ClientProcess]) -> None:
        """The logs of clients and nodes, beside the histories; one that cannot be had is told."""
        logs = self._directory.path / "logs"
        logs.mkdir(exist_ok=True)
        read: dict[str, Callable[[], str]] = {client.spec.client: client.log for client in clients}
        read |= {name: partial(node.log, _LOG_LINES) for name, node in self._cluster.nodes.items()}
        for name, log in read.items():
            try:
                (logs / f"{name}.log").write_text(redact(log()))
            except FAILURES as error:
                self._tell("drain", f"the log of {name} is not kept: {describe_error(error)}")


@contextmanager
def interruptible(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run in order; a second one gives up."""

    def on_signal(*_: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {what: signal.signal(what, on_signal) for what in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for what, handler in before.items():
            signal.signal(what, handler)
