"""Toolkit of the walkthroughs in which transactions commit the positions of a consumer group."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from harness.base.waits import wait_until
from harness.clients.scripted.client_libraries import ConfluentClient, OffsetClient
from harness.clients.scripted.library_producer import End, LibraryProducer
from harness.clients.scripted.membership import membership
from harness.kafka.coordinators import java_hash
from harness.kafka.group_offsets import committed_offset
from harness.kafka.log.coordinator_log import OFFSETS_TOPIC
from harness.walkthroughs.late_request import LIMIT_S, SUFFIXES, LateRequests
from harness.walkthroughs.stage import Stage

FIRST, SECOND = 1, 4
"""The positions that transactions A and B commit, counted from the position before the attempt."""
STEP: Final = 10
"""How far the group's position is between the starts of two attempts."""


class GroupPositions(LateRequests):
    """Runner of attempts whose transactions commit positions of one group."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.group = ""
        self._member: Any = None

    @contextmanager
    def membership(self) -> Iterator[None]:
        """Let a member join the group whose positions the transactions commit, and leave it at the end.

        Another broker leads the partition of the walkthrough's topic than that of the group's positions.
        Therefore no request carries the markers of both.
        """
        stage = self.stage
        names = [f"{stage.topic}-group{suffix}" for suffix in SUFFIXES]
        leader = stage.cluster.leader_of(stage.topic, 0)
        self.group = next(name for name in names if stage.cluster.group_coordinator(name) != leader)
        with membership(stage.cluster.bootstrap("DIRECT"), self.group, stage.topic) as self._member:
            yield

    def avoided(self) -> int:
        """Return the group's coordinator, so that the faults of an attempt affect only the position."""
        return self.stage.cluster.group_coordinator(self.group)

    @property
    def base(self) -> int:
        """The group's position before the current attempt."""
        return self._made * STEP

    def commit_position(self, producer: LibraryProducer, position: int, outcome: End = "commit") -> None:
        """Begin a transaction, send records that are meant to end with `outcome`, and send a position."""
        producer.begin()
        producer.send(0, outcome)
        self.send_offset(producer, position)

    def send_offset(self, producer: LibraryProducer, position: int) -> None:
        """Add a position of the group to the open transaction."""
        client = producer.client
        assert isinstance(client, OffsetClient)
        # Other libraries cannot use the metadata of this member. They name the group only.
        member = self._member if isinstance(client, ConfluentClient) else None
        client.send_offset((self.stage.topic, 0), position, self.group, member)

    def positions_partition(self) -> int:
        """Return the partition of the log in which the group's positions are."""
        partitions = self.stage.cluster.admin.metadata([OFFSETS_TOPIC]).partitions
        return java_hash(self.group) % len(partitions)

    def committed(self) -> int:
        """Return the group's position, when no open transaction contains a position of it any more."""
        cluster = self.stage.cluster
        coordinator = cluster.group_coordinator(self.group)
        place = (self.stage.topic, 0)

        def stable() -> int | None:
            answer = committed_offset(cluster.admin, coordinator, self.group, place, stable=True)
            return None if answer.error != "NONE" else answer.offset

        position = wait_until(stable, LIMIT_S, f"a position of {self.group} without an open transaction")
        assert position is not None
        return position
