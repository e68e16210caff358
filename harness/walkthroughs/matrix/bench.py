"""What a case works with: one cluster, one driver of a client library, and names that nothing else uses."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from harness.base.errors import HarnessError
from harness.base.partition_id import PartitionId
from harness.base.waits import wait_until
from harness.clients.scripted.client_libraries import RefusedCallError
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.faults import ArmedFrameFault, Fault, arm
from harness.kafka.admin import LATEST
from harness.kafka.group_offsets import committed_offset
from harness.kafka.read_to_end import read_to_end
from harness.tap.frame_lines import Frame
from harness.tap.tap_client import ensure_tap
from harness.walkthroughs.broker_evidence import leader_log
from harness.walkthroughs.matrix.driver import Driver
from harness.walkthroughs.matrix.libraries import Launch

TRANSACTION_TIMEOUT_MS: Final = 30_000
END_LIMIT_S: Final = 60.0
"""Longer than the transaction time-out: by then, the coordinator has aborted an abandoned transaction."""
READ_LIMIT_S: Final = 30.0
_COMMIT: Final = 1
_APIS: Final = ("InitProducerId", "AddPartitionsToTxn", "Produce", "TxnOffsetCommit", "EndTxn")


class Bench:
    """One attempt of a case with one client library. Close it to end the driver."""

    def __init__(self, cluster: Cluster, launch: Launch, folder: Path) -> None:
        self.cluster = cluster
        self.name = f"matrix-{uuid.uuid4().hex[:8]}"
        self._numbers = itertools.count(1)
        folder.mkdir(parents=True, exist_ok=True)
        self._tap = ensure_tap(cluster)
        self._frames = self._tap.log_to(folder)
        self.driver: Driver = launch.start(folder / "driver.log")

    def close(self) -> None:
        """End the driver and the frame log."""
        self.driver.close()
        self._tap.stop_log()

    def topic(self) -> PartitionId:
        """Create a topic with one partition, and return this partition."""
        name = f"{self.name}-{next(self._numbers)}"
        self.cluster.create_topic(name, 1)
        return name, 0

    def producer(self, transactional_id: str = "") -> Producer:
        """Open and initialise a producer through the wire tap, by default with a new transactional id."""
        name = f"{self.name}-{next(self._numbers)}"
        producer = Producer(self.driver, name, transactional_id or f"{name}-id")
        servers = self.cluster.bootstrap(BrokerListener.TAPPED)
        self.driver.call(
            "open", name, servers, producer.transactional_id, producer.name, TRANSACTION_TIMEOUT_MS
        )
        producer.call("init")
        return producer

    def former_member(self, name: str, *words: str) -> None:
        """Join a group with the driver, and leave it. If that fails, the attempt shows nothing."""
        try:
            self.driver.call("join", name, *words)
            self.driver.call("leave", name)
        except RefusedCallError as refused:
            raise HarnessError(f"no membership: {refused}", "is the cluster healthy?") from refused

    @contextmanager
    def armed(self, fault: Fault[Any]) -> Iterator[ArmedFrameFault]:
        """Arm a fault of the wire tap for the block. The block must contain the frame that it hits."""
        with arm(self.cluster, fault) as armed:
            yield armed

    def committed(self, partition_id: PartitionId) -> list[str]:
        """Return the committed values of a partition, as two independent readers report them."""
        self._wait_ended(partition_id)
        consumed, stored = self._consumed(partition_id), self._stored(partition_id)
        if consumed != stored:
            raise HarnessError(
                f"a consumer reads {consumed} from {partition_id[0]}, and its log contains {stored}",
                "the readers of the harness disagree; please report it with the run",
            )
        return consumed

    def position(self, group: str, partition_id: PartitionId) -> int:
        """Return the group's committed position in a partition, -1 if there is none."""
        coordinator = self.cluster.group_coordinator(group)

        def stable() -> list[int]:
            found = committed_offset(self.cluster.admin, coordinator, group, partition_id, stable=True)
            return [found.offset] if found.error == "NONE" else []

        return wait_until(stable, END_LIMIT_S, f"a position of {group} without an open transaction")[0]

    def versions(self) -> dict[str, int]:
        """Return the highest version of each transactional request that passed the wire tap."""
        from harness.report.diagram.sequence import read_log

        self._tap.flush()
        found: dict[str, int] = {}
        for line in read_log(self._frames):
            if isinstance(line, Frame) and line.api in _APIS and line.side == "request":
                found[line.api] = max(line.version, found.get(line.api, 0))
        return {api: found[api] for api in _APIS if api in found}

    def _wait_ended(self, partition_id: PartitionId) -> None:
        """Wait until no transaction is open in a partition."""
        topic, number = partition_id

        def ended() -> bool:
            ends = self.cluster.admin.list_offsets(topic, LATEST)
            return self.cluster.admin.list_offsets(topic, LATEST, "read_committed")[number] == ends[number]

        wait_until(ended, END_LIMIT_S, f"no open transaction in {topic}")

    def _consumed(self, partition_id: PartitionId) -> list[str]:
        values: list[str] = []
        config = {
            "bootstrap.servers": self.cluster.bootstrap(BrokerListener.DIRECT),
            "group.id": self.name,
            "isolation.level": "read_committed",
        }
        unread = read_to_end(
            config,
            {partition_id: 0},
            lambda _, message: values.append((message.value() or b"").decode()),
            time.monotonic() + READ_LIMIT_S,
        )
        if unread:
            raise HarnessError(f"{partition_id[0]} was not read to its end", "is the cluster healthy?")
        return values

    def _stored(self, partition_id: PartitionId) -> list[str]:
        """Return the values of the partition's log whose transaction has a commit marker."""
        pending: dict[int, list[tuple[int, str]]] = {}
        committed: list[tuple[int, str]] = []
        for batch in leader_log(self.cluster, partition_id):
            of_producer = pending.setdefault(batch.producer_id, [])
            if batch.control is None:
                of_producer += [(offset, (value or b"").decode()) for offset, value in batch.values]
                continue
            if batch.control == _COMMIT:
                committed += of_producer
            of_producer.clear()
        return [value for _, value in sorted(committed)]


class Producer:
    """A producer of the driver. Each call raises RefusedCallError if the library reported an error."""

    def __init__(self, driver: Driver, name: str, transactional_id: str) -> None:
        self._driver = driver
        self.name = name
        self.transactional_id = transactional_id

    def call(self, command: str, *words: object) -> str:
        """Carry out a command of this producer, and return the value of its answer."""
        return self._driver.call(command, self.name, *words)

    def begin(self, partition_id: PartitionId, *values: str) -> None:
        """Begin a transaction, send these values and wait for their acks."""
        self.call("begin")
        self.send(partition_id, *values)

    def send(self, partition_id: PartitionId, *values: str) -> None:
        """Send values and wait for their acks."""
        self.call("send", *partition_id, *values)
