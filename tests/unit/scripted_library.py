"""A scripted client library that replaces confluent_kafka's Producer and Consumer in tests of clients.

It returns what a test wrote into its script, and records the calls. It claims nothing about Kafka.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

TIMED_OUT = KafkaError(KafkaError._TIMED_OUT, "no answer")
RETRIABLE = KafkaError(KafkaError._TIMED_OUT, "no answer yet", False, True, False)
ABORTABLE = KafkaError(KafkaError._MSG_TIMED_OUT, "a record was lost", False, False, True)
FENCED = KafkaError(KafkaError._FENCED, "an old epoch", True, False, False)
UNDELIVERED = KafkaError(KafkaError._MSG_TIMED_OUT, "not delivered")
PURGED = KafkaError(KafkaError._PURGE_QUEUE, "purged")
FATAL = KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "a gap", True, False, False)

Step = KafkaError | BaseException | Callable[[], object]
"""A step of a script: an error that the library reports, an exception that it raises, or an action."""


class Message:
    """A delivered or received record."""

    def __init__(
        self, value: bytes, offset: int | None, topic: str = "t", partition: int = 0, key: bytes | None = None
    ) -> None:
        self._value, self._offset, self._topic, self._partition = value, offset, topic, partition
        self._key = key

    def value(self) -> bytes:
        return self._value

    def key(self) -> bytes | None:
        return self._key

    def offset(self) -> int | None:
        return self._offset

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def error(self) -> None:
        return None


class Script:
    """Steps by the name of the call; a call without a step succeeds. `calls` lists the names of all calls."""

    def __init__(self, **steps: list[Step | None]) -> None:
        self.steps: dict[str, list[Step | None]] = defaultdict(list, steps)
        self.calls: list[str] = []
        self.limits: list[float] = []
        """The time limits of the calls of `flush`."""
        self.logs: dict[int, list[bytes | None]] = defaultdict(list)
        """The records that the library delivered, by partition; None is a record that was aborted."""
        self.headers: list[dict[str, str | bytes | None]] = []
        self.positions: list[TopicPartition] = []
        self.inputs: list[list[Message]] = []

    def step(self, name: str) -> Any:
        """Record a call, and carry out the next step of its script."""
        self.calls.append(name)
        steps = self.steps[name]
        step = steps.pop(0) if steps else None
        if isinstance(step, KafkaError):
            raise KafkaException(step)
        if isinstance(step, BaseException):
            raise step
        return step() if callable(step) else step


class ScriptedProducer:
    """Stand-in for confluent_kafka's Producer. Records are delivered by `flush` and `poll`."""

    def __init__(self, config: dict[str, Any], script: Script) -> None:
        self.config, self.script = config, script
        self._queue: list[tuple[bytes, int, Callable[..., None] | None]] = []
        self._purged: list[tuple[bytes, int, Callable[..., None] | None]] = []
        self._open: list[tuple[int, int]] = []
        script.step("create")

    def init_transactions(self, _: float) -> None:
        self.script.step("init")

    def begin_transaction(self) -> None:
        self.script.step("begin")
        self._open.clear()

    def commit_transaction(self, _: float) -> None:
        self.script.step("commit")

    def abort_transaction(self, _: float) -> None:
        self.script.step("abort")
        for partition, offset in self._open:
            self.script.logs[partition][offset] = None

    def send_offsets_to_transaction(self, positions: list[TopicPartition], *_: object) -> None:
        self.script.step("send_offsets")
        self.script.positions += positions

    def produce(
        self,
        _: str,
        value: bytes,
        key: bytes | None = None,  # noqa: ARG002 - the stand-in keeps only values
        *,
        partition: int = 0,
        on_delivery: Callable[..., None] | None = None,
        headers: list[tuple[str, str | bytes | None]] | None = None,
    ) -> None:
        self.script.step("produce")
        self.script.headers += [dict(headers)] if headers else []
        self._queue.append((value, partition, on_delivery))

    def purge(self, *, in_queue: bool = False, **_: bool) -> None:
        """Drop the records. With `in_queue`, the next poll reports that they were not delivered."""
        self.script.step("purge")
        self._purged += self._queue if in_queue else []
        self._queue.clear()

    def poll(self, _: float) -> int:
        self.script.step("poll")
        purged, self._purged = self._purged, []
        for value, partition, on_delivery in purged:
            if on_delivery is not None:
                on_delivery(PURGED, Message(value, None, partition=partition))
        return 0

    def flush(self, limit: float = 0) -> int:
        """Deliver the records. A step of the script `delivery` is the error of one record's delivery."""
        self.script.limits.append(limit)
        left = self.script.step("flush")
        while self._queue and not left:
            value, partition, on_delivery = self._queue.pop(0)
            error = (self.script.steps["delivery"] or [None]).pop(0)
            log = self.script.logs[partition]
            offset = len(log)
            if error is None:
                log.append(value)
                self._open.append((partition, offset))
            if on_delivery is not None:
                on_delivery(error, Message(value, offset, partition=partition))
        return left or 0


class ScriptedConsumer:
    """Stand-in for confluent_kafka's Consumer of one partition."""

    def __init__(self, config: dict[str, Any], script: Script) -> None:
        self.config, self.script = config, script
        self.callbacks: dict[str, Callable[..., None]] = {}

    def subscribe(self, _: list[str], **callbacks: Callable[..., None]) -> None:
        self.callbacks = callbacks
        self.script.step("subscribe")

    def assign(self, _: list[TopicPartition]) -> None:
        self.script.step("assign")

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("in", 0)]

    def consume(self, most: int = 1, timeout: float = 0) -> list[Message]:  # noqa: ARG002 - as in the library
        step = self.script.step("consume")
        if step == "revoked":
            self.callbacks["on_revoke"](self, self.assignment())
        return self.script.inputs.pop(0) if self.script.inputs else []

    def committed(self, places: list[TopicPartition], **_: float) -> list[TopicPartition]:
        self.script.step("committed")
        return places

    def commit(self, offsets: list[TopicPartition], **_: object) -> list[TopicPartition]:
        self.script.step("commit_offsets")
        self.script.positions += offsets
        return offsets

    def seek(self, place: TopicPartition) -> None:
        self.script.step("seek")
        self.script.positions.append(place)

    def consumer_group_metadata(self) -> object:
        return "metadata"

    def close(self) -> None:
        self.script.step("close")
