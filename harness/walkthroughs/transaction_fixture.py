"""What the steps of the transactional flow share: the application, its places, what was seen so far."""

from __future__ import annotations

import time

from harness.base.errors import UsageError
from harness.base.partition_id import PartitionId
from harness.base.waits import wait_until
from harness.clients.scripted.source_actor import SourceActor
from harness.clients.scripted.transactional_actor import TransactionalActor
from harness.kafka.group_offsets import CommittedOffset, committed_offset
from harness.kafka.log.coordinator_log import OFFSETS_TOPIC
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from harness.tap.coordinator_entries import CoordinatorEntry
from harness.walkthroughs import transaction_evidence as seen
from harness.walkthroughs.stage import Stage
from harness.walkthroughs.transaction_evidence import Exchange, ReaderView

TRANSACTIONAL_ID = "my-txn-app"
TXN_COORDINATOR, GROUP_COORDINATOR = 3, 1
A, B = 0, 1
APP, SUCCESSOR, SOURCE = "app", "app-2", "app-source"
READERS = ("reader-committed", "reader-uncommitted")
INPUTS = 6
"""Records that one transaction takes from the source."""
STATE_LIMIT_S = 15.0


class Scene:
    """The application and the cluster around it."""

    def __init__(self, stage: Stage) -> None:
        if not stage.source:
            raise UsageError("this flow reads from a topic", "name flow.source and flow.group")
        self.stage = stage
        self.cluster = stage.cluster
        self.a, self.b = (stage.topic, A), (stage.topic, B)
        self.input = (stage.source, 0)
        self.since = time.time_ns()
        self.app: TransactionalActor
        self.source: SourceActor
        self.pid = self.epoch = -1
        self.txn_home = self._place(TRANSACTION_TOPIC, TRANSACTIONAL_ID, TXN_COORDINATOR)
        self.group_home = self._place(OFFSETS_TOPIC, stage.group, GROUP_COORDINATOR)
        self.offsets: PartitionId = (OFFSETS_TOPIC, self.group_home.partition)
        self.views: dict[str, ReaderView] = {}

    def _place(self, topic: str, ident: str, broker: int) -> seen.CoordinatorHome:
        """Let a broker lead the partition that an id hashes to: that makes it the coordinator."""
        home = seen.coordinator_home(self.cluster, topic, ident)
        self.cluster.move_leader(topic, home.partition, broker)
        return seen.coordinator_home(self.cluster, topic, ident)

    @property
    def places(self) -> list[PartitionId]:
        """Everything that a transaction of the application touches."""
        return [self.a, self.b, self.offsets]

    def exchanges(self, *apis: str, client: str = APP, since: int = 0) -> list[Exchange]:
        """What the application asked, and was answered."""
        return seen.exchanges(self.stage.frames(), client, *apis, since=since)

    def states(self) -> list[CoordinatorEntry]:
        """The states of its transactional id, so far."""
        return seen.states(self.cluster, TRANSACTIONAL_ID, self.since)

    def wait_state(self, name: str, known: int) -> list[CoordinatorEntry]:
        """The states that came after so many known ones, once the last is this."""
        return wait_until(
            lambda: found if (found := self.states()[known:]) and found[-1].what == name else [],
            STATE_LIMIT_S,
            f"{TRANSACTIONAL_ID} to be {name}",
        )

    def position(self, *, stable: bool) -> CommittedOffset:
        """The group's position in the source, as its coordinator tells it."""
        return committed_offset(
            self.cluster.admin, GROUP_COORDINATOR, self.stage.group, self.input, stable=stable
        )

    def look(self, name: str) -> ReaderView:
        """Let both kinds of reader read everything, and keep what they were given."""
        found = seen.view(self.cluster, self.stage.topic, self.stage.partitions, READERS)
        self.views[name] = found
        return found
