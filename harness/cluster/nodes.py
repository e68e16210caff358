"""What every node can do, whoever runs it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

from harness.base.errors import UsageError

Role = Literal["broker", "controller", "proxy"]


class Condition(StrEnum):
    """The condition of a node's process."""

    RUNNING = "running"
    PAUSED = "paused"
    EXITED = "exited"


@dataclass(frozen=True)
class NodeStatus:
    """The condition of a node's process, and how it ended if it has (128 + n if by signal n)."""

    condition: Condition
    exit_code: int | None = None
    pid: int | None = None

    def __str__(self) -> str:
        return f"{self.condition} ({self.exit_code})" if self.exit_code is not None else str(self.condition)


class Node(Protocol):
    """One broker, controller or proxy: each verb returns when the operating system has done it."""

    @property
    def name(self) -> str:
        """The node's name, such as `kafka-1`."""
        ...

    @property
    def node_id(self) -> int:
        """Kafka's id of the node; 0 for the proxy."""
        ...

    @property
    def role(self) -> Role:
        """What the node is."""
        ...

    def status(self) -> NodeStatus:
        """The condition of its process."""
        ...

    def start(self) -> None:
        """Start it with the data that it had; harmless if it runs."""
        ...

    def stop(self) -> None:
        """Ask it to end cleanly and wait until it has."""
        ...

    def kill(self) -> None:
        """SIGKILL it and wait until it is gone."""
        ...

    def pause(self) -> None:
        """Freeze it (SIGSTOP or the cgroup freezer): its sockets stay open and nobody answers."""
        ...

    def resume(self) -> None:
        """Let a frozen node go on; harmless if it is not frozen."""
        ...

    def log(self, lines: int = 200) -> str:
        """The end of what it wrote."""
        ...

    def segments(self, partition: str, scratch: Path) -> list[Path]:
        """The segment files of its replica of a partition, copied to `scratch` if they are out of reach."""
        ...


def segments_in(folder: Path, node: str, partition: str) -> list[Path]:
    """The segment files of a replica's folder, in the order of their offsets."""
    found = sorted(folder.glob("*.log"))
    if not found:
        raise UsageError(
            f"{node} has no replica of {partition}",
            "`eos tool topics --describe` shows which nodes have which partitions",
        )
    return found
