"""Walkthrough of a reused sequence: an abort without an answer gives its sequence to the next transaction.

The answer to the record of transaction A is lost, and the application aborts. librdkafka gives the sequence
of that record to the record of transaction B. The broker takes it for a duplicate: the record of B is
acknowledged and committed, and it is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from harness.base.partition_id import partition_name
from harness.base.waits import wait_until
from harness.clients.scripted.java_client import NAME, running
from harness.clients.scripted.library_producer import LibraryProducer
from harness.evidence.step_report import WalkthroughStep
from harness.faults import LoseResponseFrame
from harness.faults.feature_level import FeatureLevel
from harness.faults.link_faults import LoseResponse
from harness.faults.node_faults import Kill, Pause
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from harness.walkthroughs.late_request import (
    KAFKA_PYTHON,
    LIMIT_S,
    Attempt,
    LateRequests,
    Outcome,
    define_walkthrough,
)
from harness.walkthroughs.stage import Stage

TITLES: Final = (
    "A is aborted while its record has no answer: the record of B is lost",
    "The cure: flush before the abort",
    "The cure: a new producer with the same transactional id after the abort",
    "kafka-python: the same fault",
    "Without the wire tap: the link of the leader loses its answers",
    "Without any proxy: the leader is killed before it answers",
)
CONTROL_TITLES: Final = (
    "Kafka's Java client with transaction version 2: the same fault",
    "Kafka's Java client with transaction version 1: the same fault",
)
LOST: Final = Outcome(found=("lost",), damage=("empty_commit",))
WHOLE: Final = Outcome()
MOST_REPEATS: Final = 5
LATE_S: Final = 5.0
"""An abort that takes longer waits for the answer to a retry. Others take milliseconds."""
PATIENCE_S: Final = 1.0
"""How long the application waits for the ack of a record before it aborts. A new leader needs longer."""


class ReusedSequences(LateRequests):
    """Runner of attempts in which the record of transaction A has no answer when A is aborted."""

    def avoided(self) -> int:
        """Return the partition's leader, because some attempts lose its links, or kill it."""
        return self.stage.cluster.leader_of(self.stage.topic, 0)

    def by_tap(
        self, attempt: Attempt, *, times: int | None = None, flush: bool = False, reinit: bool = False
    ) -> None:
        """Lose the answer to the record of A, abort A, and commit B with one record.

        The answers to the first `times` requests are lost (None: all of them until the abort). With `flush`,
        they arrive again before A is aborted.
        """
        producer = attempt.producer
        producer.whole("commit", 0, count=1)
        for _ in range(MOST_REPEATS):
            if self._aborted_in_time(producer, times, flush=flush):
                break
        if flush:
            producer.flush()
            producer.end("abort")
        if reinit:
            producer.init()
        producer.whole("commit", 0, count=1)

    def _aborted_in_time(self, producer: LibraryProducer, times: int | None, *, flush: bool) -> bool:
        """Send the record of A without an answer, and abort A. Leave the abort to the caller with `flush`.

        Return False if a retry of the record was under way at the moment of the abort. The library then waits
        for its answer, and the case is another one.
        """
        fault = LoseResponseFrame(api="Produce", transactional_id=producer.transactional_id, times=times)
        with ThreadPoolExecutor(1) as pool:
            with self.stage.arm(fault) as lost:
                producer.begin()
                producer.submit(0, "abort", 1)
                lost.wait("lost", LIMIT_S)
                aborting = None if flush else pool.submit(producer.end, "abort")
                in_time = times is not None or aborting is None or bool(wait_for([aborting], LATE_S).done)
            if aborting is not None:
                aborting.result()
        return in_time

    def by_link(self, attempt: Attempt) -> None:
        """Lose the answers of the leader on its link, abort A, and commit B with one record."""
        producer, stage = attempt.producer, self.stage
        leader = self.avoided()
        producer.whole("commit", 0, count=1)
        self.wait_complete(attempt)
        before = self._end()
        with stage.inject(LoseResponse(), stage.cluster.name_of(leader)):
            producer.begin()
            producer.submit(0, "abort", 1)
            wait_until(lambda: self._end() > before, LIMIT_S, "the record of A to be written")
            producer.end("abort")
        producer.whole("commit", 0, count=1)

    def by_kill(self, attempt: Attempt) -> None:
        """Kill the leader after its successor has copied A's last record, and before it can answer.

        The other follower is frozen in the meantime: without it, the leader may not acknowledge the record.
        The application gives up, aborts A, and commits B.
        """
        producer, stage = attempt.producer, self.stage
        cluster = stage.cluster
        partition = cluster.partition(stage.topic, 0)
        # The controller elects the first live replica of the list.
        successor, other = (b for b in partition.replicas if b != partition.leader)
        producer.begin()
        producer.send(0, "abort", 1)
        before = self._bytes_on(successor)
        killed = stage.inject(Kill(), cluster.name_of(partition.leader))
        try:
            with stage.arm_injection(Pause(), cluster.name_of(other)):
                producer.submit(0, "abort", 1)
                wait_until(
                    lambda: self._bytes_on(successor) > before,
                    LIMIT_S,
                    "the record of A to be copied",
                    every=0.01,
                )
                killed.start()
            producer.flush(PATIENCE_S)
            producer.end("abort")
            producer.whole("commit", 0, count=1)
        finally:
            killed.heal()
            for topic in (stage.topic, TRANSACTION_TOPIC):
                cluster.restore_leaders(topic)

    def _end(self) -> int:
        return self.stage.cluster.end_offsets(self.stage.topic)[0].high_watermark

    def _bytes_on(self, broker: int) -> int:
        """Return the size of the partition's log on a broker, which may be a follower."""
        name = partition_name((self.stage.topic, 0))
        with TemporaryDirectory() as scratch:
            segments = self.stage.cluster.node(broker).segments(name, Path(scratch))
            return sum(segment.stat().st_size for segment in segments)


def _steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race, steps = ReusedSequences(stage), WalkthroughStep.numbered(TITLES)
    lost = "the record of B is taken for a duplicate of A's: acknowledged, committed and lost"
    readable = "the record of B can be read"
    yield race.show(steps[0], ("abort", lost), race.by_tap, LOST)
    yield race.show(steps[1], ("flush", readable), lambda a: race.by_tap(a, flush=True), WHOLE)
    yield race.show(steps[2], ("re-init", readable), lambda a: race.by_tap(a, reinit=True), WHOLE)
    yield race.show(
        steps[3],
        ("kafka-python", f"the library waits for A's record before it aborts: {readable}"),
        _once(race),
        WHOLE,
        library=KAFKA_PYTHON,
    )
    yield race.show(steps[4], ("link", lost), race.by_link, LOST, listener="PROXIED")
    yield race.show(steps[5], ("kill", lost), race.by_kill, LOST, listener="DIRECT")


def _control_steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race, steps = ReusedSequences(stage), WalkthroughStep.numbered(CONTROL_TITLES)
    claim = "the library waits for A's record before it aborts: the record of B can be read"
    with running():
        yield race.show(steps[0], ("version-2", claim), _once(race), WHOLE, library=NAME)
        with stage.inject(FeatureLevel(level=1), "all") as lowered:
            steps[1].show(level=lowered.bite)
            yield race.show(steps[1], ("version-1", claim), _once(race), WHOLE, library=NAME)


def _once(race: ReusedSequences) -> Callable[[Attempt], None]:
    """Return an attempt in which one answer is lost. A library that waits gets the answer to its retry."""
    return lambda attempt: race.by_tap(attempt, times=1)


WALKTHROUGH: Final = define_walkthrough(TITLES, "abort-1", _steps)
CONTROL: Final = define_walkthrough(CONTROL_TITLES, "version-2-1", _control_steps)
