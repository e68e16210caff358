"""Creation, reassignment and deletion of topics, and moves of partition leaders.

The methods that create a topic or move a partition wait until the partition leaders accept requests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from harness.base.errors import UsageError
from harness.base.waits import wait_until
from harness.kafka.admin import Admin, EndOffsets, PartitionInfo
from harness.kafka.errors import ErrorCode, KafkaAnswerError

LIMIT_S: Final = 30.0
_NO_CONTROLLER: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)
"""Error codes that a broker returns while it still forwards requests to the previous controller.

A request that fails with one of these codes is repeated.
"""


class Topics(ABC):
    """Base class of the clusters, with the methods that create, move and inspect topics."""

    admin: Admin
    # Number of replicas of each partition if only the number of partitions is given.
    replication = 3

    @property
    @abstractmethod
    def broker_ids(self) -> tuple[int, ...]:
        """Ids of the brokers that can hold replicas."""

    def create_topic(
        self,
        name: str,
        placement: Sequence[Sequence[int]] | int = 3,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until its leaders and replicas are as requested.

        `placement` lists the broker ids of each partition's replicas, with the leader first. It can also be a
        number of partitions. The replicas of these partitions are then distributed over all brokers.
        """
        if isinstance(placement, int):
            ring, brokers = [*self.broker_ids, *self.broker_ids], len(self.broker_ids)
            placement = [ring[i % brokers : i % brokers + self.replication] for i in range(placement)]
        replicas, settings = placement, {**self._prepare_topic(name), **(settings or {})}
        existed = wait_until(lambda: [self._exists(name)], LIMIT_S, "a broker to list the topics")[0]

        def order() -> None:
            try:
                self.admin.create_topic(name, replicas, settings)
            except KafkaAnswerError as error:
                # The error TOPIC_ALREADY_EXISTS is harmless if the topic did not exist before this method. An
                # earlier attempt of this method, which timed out, has then created the topic.
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or existed:
                    raise

        _carried_out(order, f"topic {name} to be created")
        wanted = [(each[0], set(each)) for each in placement]

        def placed() -> bool:
            partitions = self.admin.metadata([name]).partitions
            return [(p.leader, set(p.isr)) for p in partitions] == wanted

        wait_until(placed, LIMIT_S, f"topic {name} to have its leaders and replicas")
        # The brokers receive the new metadata at different times, and a client may use any broker. Therefore
        # wait until every broker lists the topic.
        for broker in self.broker_ids:
            wait_until(
                lambda b=broker: len(self.admin.metadata([name], broker=b).partitions) == len(wanted),  # type: ignore[misc]
                LIMIT_S,
                f"broker {broker} to list topic {name}",
            )
        self._wait_led(name)

    def _prepare_topic(self, name: str) -> dict[str, str]:  # noqa: ARG002  # external clusters record it
        """Return settings for a new topic: none on a cluster that the harness started.

        ExternalCluster overrides this method. Its method records the topic's name, and returns the settings
        that the cluster file requires.
        """
        return {}

    def _exists(self, name: str) -> bool:
        try:
            return bool(self.admin.metadata([name]).partitions)
        except KafkaAnswerError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False
            raise

    def _wait_led(self, topic: str) -> None:
        """Wait until the leaders of a topic accept requests.

        The brokers' metadata may already name a leader that does not accept requests yet.
        """
        wait_until(lambda: self.end_offsets(topic), LIMIT_S, f"the leaders of {topic} to serve it")

    def delete_topics(self, names: Iterable[str]) -> None:
        wanted = list(names)
        if wanted:
            _carried_out(lambda: self.admin.delete_topics(wanted), f"{', '.join(wanted)} to be deleted")

    def reassign(self, topic: str, placement: Mapping[int, Sequence[int]], limit: float = 60) -> None:
        """Move partitions to new replicas, and wait until the move is complete.

        `placement` contains, for each partition, the brokers of its new replicas.
        """
        _carried_out(
            lambda: self.admin.reassign(topic, placement), f"the reassignment of {topic} to be accepted"
        )

        def moved() -> bool:
            partitions = {p.partition: p for p in self.admin.metadata([topic]).partitions}
            return all(
                partitions[p].replicas == tuple(replicas) and set(partitions[p].isr) == set(replicas)
                for p, replicas in placement.items()
            )

        wait_until(moved, limit, f"the reassignment of {topic}")
        self._wait_led(topic)

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Make a broker the leader of a partition of which it has a replica.

        The method first moves the broker to the front of the replica list, and then elects it.
        """
        replicas = self.partition(topic, partition).replicas
        if broker not in replicas:
            raise UsageError(f"broker {broker} has no replica of {topic}-{partition}", f"it is on {replicas}")
        self.reassign(topic, {partition: [broker, *(r for r in replicas if r != broker)]})
        _carried_out(
            lambda: self.admin.elect_preferred(topic, partition), f"an election for {topic}-{partition}"
        )
        wait_until(
            lambda: self.partition(topic, partition).leader == broker,
            LIMIT_S,
            f"broker {broker} to lead {topic}-{partition}",
        )
        self._wait_led(topic)

    def restore_leaders(self, topic: str) -> None:
        """Make the preferred leader of each partition of a topic its leader again."""

        def moved() -> list[PartitionInfo]:
            partitions = self.admin.metadata([topic]).partitions
            return [p for p in partitions if p.topic == topic and p.leader != p.replicas[0]]

        for info in moved():
            _carried_out(
                partial(self.admin.elect_preferred, topic, info.partition),
                f"an election for {topic}-{info.partition}",
            )
        wait_until(lambda: not moved(), LIMIT_S, f"the preferred leaders of {topic}")
        self._wait_led(topic)

    def end_offsets(self, topic: str) -> dict[int, EndOffsets]:
        """Return the high watermark and the last stable offset of each partition of a topic."""
        return self.admin.end_offsets(topic)

    def partition(self, topic: str, partition: int) -> PartitionInfo:
        """Return the leader, epoch, replicas and ISR of a partition."""
        return self.admin.partition(topic, partition)


def _carried_out(order: Callable[[], None], what: str) -> None:
    """Send a request by calling the function `order`. Repeat this until the controller accepts the request.

    The request is repeated while the controller is unreachable or has just changed. A second execution of the
    request must therefore be harmless. `what` describes the expected result in the time-out error.
    """

    def done() -> bool:
        try:
            order()
        except KafkaAnswerError as error:
            if error.code not in _NO_CONTROLLER:
                raise
            return False
        return True

    wait_until(done, LIMIT_S, what, not_yet=(ConnectionError, TimeoutError, EOFError))
