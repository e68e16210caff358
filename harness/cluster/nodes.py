"""Interface of a node: its condition, and the methods that change it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

from harness.base.errors import UsageError

Role = Literal["broker", "controller", "proxy"]


class Condition(StrEnum):
    """Condition of a node's process."""

    RUNNING = "running"
    PAUSED = "paused"
    EXITED = "exited"


@dataclass(frozen=True)
class NodeStatus:
    """Condition of a node's process.

    After the process has ended, the status also has its exit code. This is 128 + n if signal n ended the
    process.
    """

    condition: Condition
    exit_code: int | None = None
    pid: int | None = None

    def __str__(self) -> str:
        return f"{self.condition} ({self.exit_code})" if self.exit_code is not None else str(self.condition)


class Node(Protocol):
    """One node: a broker, a controller or Toxiproxy.

    Each method that changes the node returns only after the operating system has completed the change.
    """

    @property
    def name(self) -> str:
        """Name of the node, such as `kafka-1`."""
        ...

    @property
    def node_id(self) -> int:
        """Kafka id of the node; 0 for Toxiproxy."""
        ...

    @property
    def role(self) -> Role:
        """Role of the node: broker, controller or proxy."""
        ...

    def status(self) -> NodeStatus:
        """Return the condition of the node's process."""
        ...

    def start(self) -> None:
        """Start the node with its existing data. Do nothing if it already runs."""
        ...

    def stop(self) -> None:
        """Send SIGTERM and wait until the process has ended."""
        ...

    def kill(self) -> None:
        """Send SIGKILL and wait until the process has ended."""
        ...

    def pause(self) -> None:
        """Freeze the process (SIGSTOP or the cgroup freezer).

        Its connections stay open, but it sends no responses.
        """
        ...

    def resume(self) -> None:
        """Resume a frozen process. Do nothing if it is not frozen."""
        ...

    def log(self, lines: int = 200) -> str:
        """Return the last lines of the node's output. `lines` is their number."""
        ...

    def segments(self, partition: str, scratch: Path) -> list[Path]:
        """Return the log segment files of a partition's replica on this node.

        If the host cannot read the files, they are first copied to the folder `scratch`.
        """
        ...


def segments_in(folder: Path, node: str, partition: str) -> list[Path]:
    """Return the log segment files in the folder of a replica, in the order of their offsets.

    `node` and `partition` are only used in the error message.
    """
    segments = sorted(folder.glob("*.log"))
    if not segments:
        raise UsageError(
            f"{node} has no replica of {partition}",
            "`eos tool topics --describe` shows which nodes have which partitions",
        )
    return segments
