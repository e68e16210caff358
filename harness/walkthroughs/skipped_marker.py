"""Walkthrough of a commit that is acknowledged while a partition has no leader: its marker is never written.

Every transaction has records on two partitions. One partition keeps its leader. The other loses its leader
before the commit, because the broker with its only replica is killed. On that partition the transaction stays
open. The role of a producer determines what happens to the open transaction later:

    freed     an operator writes a commit marker, as the coordinator had decided
    aborted   an operator writes an abort marker, as Kafka's tool does
    again     the same producer makes another transaction on that partition
    double    nothing happens later; here the partition has two replicas, and both their brokers are killed

`ONE_LIBRARY` shows all roles with confluent-kafka. `EVERY_LIBRARY` shows `freed` and `again` with each client
library of the scenario; Kafka's Java client uses transaction version 2 where the cluster does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from harness.base.errors import UsageError
from harness.base.partition_id import PartitionId
from harness.base.waits import wait_until
from harness.clients.scripted import java_client
from harness.clients.scripted.client_libraries import RefusedCallError
from harness.clients.scripted.library_producer import RECORDS, LibraryProducer
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS
from harness.evidence.history import HistoryWriter
from harness.evidence.step_report import WalkthroughStep
from harness.faults.node_faults import Kill
from harness.faults.replica_placement import Placement
from harness.kafka import features
from harness.kafka.admin import EndOffsets
from harness.kafka.coordinators import java_hash
from harness.kafka.hanging_transactions import BlockingTransaction, find_hanging, write_marker
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from harness.provision.kafka_versions import KafkaFeature
from harness.tap.coordinator_entries import decisions, markers
from harness.tap.frame_lines import Frame
from harness.walkthroughs.open_transaction_reader import OpenTransactionReader
from harness.walkthroughs.stage import Stage, Walkthrough

LIVES: Final = 0
"""The partition that keeps its leader. Every producer writes to this partition, and to another one, which
loses its leader.
"""
DIES: Final = 3
TWO: Final = 2
"""The partition with two replicas. All partitions of a new topic have the same number of replicas, so the
second replica is added later.
"""
TWO_REPLICAS: Final = {TWO: (3, 2)}
ONE_TIMEOUT_MS: Final = 10_000
EVERY_TIMEOUT_MS: Final = 60_000
"""Transaction time-out in milliseconds. It is long enough to open a transaction of every producer, kill a
broker, and commit.
"""
SWEEP_S: Final = 15.0
"""Extra seconds after the transaction time-out. A transaction that is still open after this extra time
counts as hanging.
"""
STATE_LIMIT_S: Final = 30.0

FREED, ABORTED, AGAIN, DOUBLE = "freed", "aborted", "again", "double"
Steps = list[tuple[str, Callable[[WalkthroughStep], None]]]


@dataclass
class _Commit:
    """A producer whose commit is acknowledged while one of its partitions, number `lost`, has no leader."""

    role: str
    library: str
    client: LibraryProducer
    lost: int
    earlier: int
    """Number of the producer's earlier transactions. All their markers were written."""
    refused: list[str] = field(default_factory=list)
    """Errors of calls that should have succeeded."""
    producer_id: int = -1

    @property
    def transactional_id(self) -> str:
        return self.client.transactional_id


class _SkippedMarker:
    def __init__(self, stage: Stage, libraries: Sequence[str], timeout_ms: int) -> None:
        self.stage = stage
        self.cluster = stage.cluster
        self.libraries = libraries
        self.timeout_ms = timeout_ms
        self.since = time.time_ns()
        self.commits: list[_Commit] = []
        self.readers = 0
        self.healed_at = 0.0
        self.found: dict[str, BlockingTransaction] = {}

    def steps(self, roles: Sequence[str], steps: Steps) -> Iterator[WalkthroughStep]:
        """Open the producers, then carry out the steps."""
        with ExitStack() as closing:
            if java_client.NAME in self.libraries:
                closing.enter_context(java_client.running())
            for attempt in range(1, self.stage.tries + 1):
                for lost, library in enumerate(self.libraries, 1):
                    for role in roles:
                        name = f"{role}-{library}" if self.stage.libraries else role
                        name += f"-{attempt}" if attempt > 1 else ""
                        commit = self._open(name, role, library, lost, [DIES])
                        closing.callback(commit.client.close)
                        commit.client.init()
                        # Commit a transaction on partition `lost` while all leaders are up, so that this
                        # partition contains one marker from the start.
                        commit.client.whole("commit", 0)
                        commit.earlier = 1
            for number, (title, carry_out) in enumerate(steps, 1):
                step = WalkthroughStep(number=number, title=title)
                carry_out(step)
                yield step

    def _open(self, name: str, role: str, library: str, lost: int, killed: Sequence[int]) -> _Commit:
        """Return a producer. Its transactional id is chosen so that no killed broker is its coordinator."""
        ids = [f"{name}{suffix}.{self.stage.run}" for suffix in ("", *"abcdefghijklmnopqrst")]
        client = self.stage.clients.library(
            name,
            library,
            self.stage.topic,
            (lost, LIVES),
            transactional_id=next(i for i in ids if self.cluster.txn_coordinator(i) not in killed),
            transaction_timeout_ms=self.timeout_ms,
        )
        self.stage.transactional_ids.append(client.transactional_id)
        self.commits.append(_Commit(role, library, client, lost, 0))
        return self.commits[-1]

    def _with_role(self, *roles: str) -> list[_Commit]:
        return [commit for commit in self.commits if commit.role in roles]

    def _by_library(self, commits: Sequence[_Commit]) -> Iterator[tuple[str, list[_Commit]]]:
        for library in self.libraries:
            yield library, [commit for commit in commits if commit.library == library]

    # Steps that commit while a partition has no leader. The partition has one replica in the first step, and
    # two in the second.

    def one_replica(self, step: WalkthroughStep) -> None:
        commits = self.commits
        # All transactions must be open when the broker is killed. Begin them only now: opening the producers
        # is slow, and transactions begun earlier could time out before their commit.
        for commit in commits:
            commit.client.begin()
            commit.client.send(0, "commit")
            commit.client.send(1, "commit")
        survivors = [broker for broker in BROKER_IDS if broker != DIES]
        with self.stage.inject(Kill(), f"kafka-{DIES}"):
            for lost in sorted({commit.lost for commit in commits}):
                wait_leaderless(self.cluster, (self.stage.topic, lost), survivors)
            for commit in commits:  # commit every transaction before one of them times out
                self._end(commit)
            for commit in commits:
                self._wait_complete(commit)
        self._show_versions(step)
        for library, of_library in self._by_library(commits):
            self._check_skipped(step, library, of_library)

    def two_replicas(self, step: WalkthroughStep) -> None:
        """Kill both brokers that have a replica of the partition.

        The coordinator of the transactional id must survive on the third broker. So first move one partition
        of __transaction_state, to which the transactional id hashes, so that only the third broker has a
        replica.
        """
        double = self._open(DOUBLE, DOUBLE, self.libraries[0], TWO, [])
        partitions = self.cluster.admin.metadata([TRANSACTION_TOPIC]).partitions
        kept = partitions[java_hash(double.transactional_id) % len(partitions)]
        alone = Placement(topic=TRANSACTION_TOPIC, partition=kept.partition, on=(1,), back=kept.replicas)
        placement = self.stage.inject(alone, "all").start()
        double.client.init()
        double.client.begin()
        double.client.send(0, "commit")
        double.client.send(1, "commit")
        kills = [self.stage.inject(Kill(), f"kafka-{broker}").start() for broker in (2, 3)]
        wait_leaderless(self.cluster, (self.stage.topic, TWO), (1,))
        self._end(double)
        # Start both brokers before either kill is healed. A heal waits until the partition serves requests
        # again, and that is possible only when its last leader is up.
        for broker in (2, 3):
            self.cluster.node(broker).start()
        for kill in kills:
            kill.heal()
        placement.heal()
        self.healed_at = time.monotonic()
        self._wait_complete(double)
        self._check_skipped(step, double.library, [double])

    @staticmethod
    def _end(commit: _Commit) -> None:
        try:
            commit.client.end("commit")
        except RefusedCallError as refused:
            commit.refused.append(str(refused))

    def _wait_complete(self, commit: _Commit) -> None:
        """Wait until the transaction log has CompleteCommit for each transaction of the producer."""

        def complete() -> bool:
            entries = list(decisions(self.cluster, commit.transactional_id, self.since))
            commit.producer_id = entries[-1].producer_id
            states = [what for what, _ in groupby(entry.what for entry in entries)]
            return states.count("CompleteCommit") == commit.earlier + 1

        wait_until(complete, STATE_LIMIT_S, f"CompleteCommit of {commit.client.name}")

    def _check_skipped(self, step: WalkthroughStep, library: str, commits: Sequence[_Commit]) -> None:
        acknowledged = sum(not commit.refused for commit in commits)
        step.prove(
            "the client reports that its commit succeeded, and the coordinator has completed it",
            f"{library}: {acknowledged} of {len(commits)}{_errors(commits)}",
            acknowledged == len(commits),
        )
        step.compare(
            "an acknowledged commit is carried out on every partition of its transaction",
            f"{library}: {acknowledged} of {len(commits)} were acknowledged while a partition had no leader",
            False,
        )
        found = list(markers(self.cluster, self.stage.topic, self.since))
        written = []
        for commit in commits:
            partitions = [
                marker.partition
                for marker in found
                if marker.producer_id == commit.producer_id and marker.what == "commit"
            ]
            written.append((partitions.count(LIVES), partitions.count(commit.lost) - commit.earlier))
        step.prove(
            "the marker is written on the partition with a leader, and skipped on the partition without",
            f"{library}: {written.count((1, 0))} of {len(commits)}",
            set(written) == {(1, 0)},
        )
        end = self._end_offsets(commits[0].lost)
        step.prove(
            "the last stable offset stays behind",
            f"{library}: it is {end.last_stable}, the high watermark is {end.high_watermark}",
            end.last_stable < end.high_watermark,
        )

    def _show_versions(self, step: WalkthroughStep) -> None:
        """Show each broker's transaction version, and the EndTxn versions that each library has sent."""
        sent = {
            (frame.client_id, frame.version)
            for frame in self.stage.frames()
            if isinstance(frame, Frame) and frame.api == "EndTxn" and frame.side == "request"
        }
        step.show(
            levels={
                broker: features.levels(self.cluster.admin, broker).get(features.TRANSACTION_VERSION, 0)
                for broker in BROKER_IDS
            },
            versions={
                library: sorted({v for name, v in sent if name in {c.client.name for c in commits}})
                for library, commits in self._by_library(self.commits)
            },
        )

    # Steps that show what readers and operators see

    def readers_wait(self, step: WalkthroughStep) -> None:
        """Show that read_committed readers wait at the last stable offset, which does not move.

        Sample the end offsets for longer than any transaction may stay open.
        """
        watched_s = self.timeout_ms / 1000 + SWEEP_S + 1
        last_stable: dict[int, set[int]] = {commit.lost: set() for commit in self.commits}
        path = self.stage.histories / "looks.jsonl"
        with HistoryWriter(path, run=self.stage.run, client="looks", role="observer") as observer:

            def over() -> bool:
                ends = self.cluster.end_offsets(self.stage.topic)
                observer.sample(
                    [(self.stage.topic, p, 0, e.last_stable, e.high_watermark) for p, e in ends.items()]
                )
                for partition, offsets in last_stable.items():
                    offsets.add(ends[partition].last_stable)
                return time.monotonic() > self.healed_at + watched_s

            wait_until(over, watched_s + 30, "the end of the observation", every=0.5)
        for partition, offsets in last_stable.items():
            step.prove(
                "a read_committed reader waits there until the partition is freed",
                f"partition {partition}: the last stable offset was {sorted(offsets)} for {watched_s:.0f} s",
                len(offsets) == 1,
            )
        (freed,), (double,) = self._with_role(FREED), self._with_role(DOUBLE)
        self._check_read(step, freed, RECORDS, "records committed before can be read, others cannot")
        self._check_read(step, double, 0, "no record of the acknowledged transaction can be read there")

    def operator_finds(self, step: WalkthroughStep) -> None:
        self.found = self._hanging()
        for library, commits in self._by_library(self.commits):
            held = [self.found.get(commit.transactional_id) for commit in commits]
            right = [
                f"{commit.client.name}: open on partition {h.open.partition} from offset "
                f"{h.open.first_offset} on, last write {h.open.age_s:.0f} s ago, epoch {h.open.epoch}; "
                f"coordinator {h.last.coordinator}: {h.last.state}, epoch {h.last.epoch}"
                for commit, h in zip(commits, held, strict=True)
                if h and h.last and h.open.partition == commit.lost and h.last.state == "CompleteCommit"
            ]
            step.prove(
                "the leader lists the transaction as open (DescribeProducers), the coordinator as complete "
                "(DescribeTransactions)",
                f"{library}: {len(right)} of {len(commits)}; " + "; ".join(right),
                len(right) == len(commits),
            )
        step.show(hanging=[[*h.open, *(h.last or ())[:5]] for h in self.found.values()])

    def not_freed(self, step: WalkthroughStep) -> None:
        (freed,), (aborted,) = self._with_role(FREED), self._with_role(ABORTED)
        before = self._end_offsets(aborted.lost).last_stable
        aborted.client.init()
        after = self._end_offsets(aborted.lost).last_stable
        last = self._hanging()[aborted.transactional_id].last
        step.prove(
            "a new producer with the same transactional id does not free it, and the decision is lost",
            f"last stable offset {before}, then {after}; coordinator: {last.state if last else 'forgotten'}",
            before == after and last and last.state == "Empty",
        )
        answer = self._write_marker(freed, commit=True, coordinator_epoch=-1)
        step.prove(
            "a marker with the default coordinator epoch of tools is refused",
            f"WriteTxnMarkers with coordinator epoch -1: {answer}",
            answer != "NONE",
        )

    def operator_frees(self, step: WalkthroughStep) -> None:
        freed = self._with_role(FREED)
        for library, commits in self._by_library(freed):
            answers = {self._write_marker(commit, commit=True) for commit in commits}
            left = self._hanging().keys() & {commit.transactional_id for commit in commits}
            step.prove(
                "a commit marker with the epochs of DescribeProducers ends the transaction there",
                f"{library}: {len(commits) - len(left)} of {len(commits)}; WriteTxnMarkers: "
                f"{', '.join(sorted(answers))}",
                not left and answers == {"NONE"},
            )
            first = self.found[commits[0].transactional_id].open.first_offset
            end = self._end_offsets(commits[0].lost)
            step.prove(
                "the last stable offset advances",
                f"{library}: it was {first} and is {end.last_stable}",
                end.last_stable > first,
            )
            self._check_read(step, commits[0], 2 * RECORDS, "its records can be read")
        others = {c.transactional_id: c.client.name for c in self.commits if c not in freed}
        hang = self._hanging().keys()
        step.prove(
            "the other transactions still hang",
            ", ".join(sorted(others.get(i, i) for i in hang)),
            hang == others.keys(),
        )

    def operator_aborts(self, step: WalkthroughStep) -> None:
        """Write an abort marker, as `kafka-transactions abort` does.

        That tool cannot write a commit marker, and it does not ask the coordinator.
        """
        (aborted,) = self._with_role(ABORTED)
        answer = self._write_marker(aborted, commit=False)
        hang = self._hanging()
        step.prove(
            "it ends the transaction there",
            f"WriteTxnMarkers abort: {answer}; {len(hang)} transactions still hang",
            answer == "NONE" and aborted.transactional_id not in hang,
        )
        self._check_read(step, aborted, RECORDS, "the acknowledged records are lost there")
        self._check_read(step, aborted, RECORDS, "they can be read where the marker was written", LIVES)

    def next_transaction(self, step: WalkthroughStep) -> None:
        """Let each producer with the role `again` make two more transactions and abort them.

        The first one writes only to another partition. The second one writes to the partition with the
        hanging transaction. The abort marker of the second one also ends the hanging transaction, whose own
        commit marker was never written. Finally, show that the records of the `freed` producers can be read.
        """
        for library, commits in self._by_library(self._with_role(AGAIN)):
            self._abort_next(commits, lane=1)
            held = self._hanging()
            states = [h.last.state for c in commits if (h := held.get(c.transactional_id)) and h.last]
            step.prove(
                "after the next transaction on another partition, DescribeTransactions describes that one",
                f"{library}: {states.count('CompleteAbort')} of {len(commits)}{_errors(commits)}",
                states == ["CompleteAbort"] * len(commits),
            )
            self._abort_next(commits, lane=0)
            left = self._hanging().keys() & {commit.transactional_id for commit in commits}
            read = [self._count_read(commit, commit.lost) for commit in commits]
            step.prove(
                "an abort of the next transaction on this partition also aborts the acknowledged one",
                f"{library}: {read.count(RECORDS)} of {len(commits)}{_errors(commits)}"
                + (f"; still open: {len(left)}" if left else ""),
                read == [RECORDS] * len(commits) and not left and not any(c.refused for c in commits),
            )
            wait_until(
                lambda lost=commits[0].lost: self._is_stable(lost),  # type: ignore[misc]
                STATE_LIMIT_S,
                "the last stable offset to reach the high watermark",
            )
            end = self._end_offsets(commits[0].lost)
            step.prove(
                "its marker frees the partition",
                f"{library}: last stable offset {end.last_stable}, high watermark {end.high_watermark}",
                end.last_stable == end.high_watermark,
            )
        for library, commits in self._by_library(self._with_role(FREED)):
            read = [self._count_read(commit, commit.lost) for commit in commits]
            step.prove(
                "records that the right marker freed can be read",
                f"{library}: {read.count(2 * RECORDS)} of {len(commits)}",
                read == [2 * RECORDS] * len(commits),
            )

    def _abort_next(self, commits: Sequence[_Commit], lane: int) -> None:
        """Make one more transaction with records in one lane, abort it, and wait for CompleteAbort."""
        for commit in commits:
            try:
                commit.client.whole("abort", lane)
            except RefusedCallError as refused:
                commit.refused.append(str(refused))
                continue
            ident = commit.transactional_id
            wait_until(
                lambda i=ident: list(decisions(self.cluster, i, self.since))[-1].what == "CompleteAbort",  # type: ignore[misc]
                STATE_LIMIT_S,
                f"CompleteAbort of {commit.client.name}",
            )

    def _is_stable(self, partition: int) -> bool:
        end = self._end_offsets(partition)
        return end.last_stable == end.high_watermark

    def _write_marker(self, of: _Commit, *, commit: bool, coordinator_epoch: int | None = None) -> str:
        """Write a marker that commits or aborts a producer's hanging transaction.

        Return the answer of the partition's leader. By default, the marker has the coordinator epoch that the
        leader reported for the open transaction.
        """
        transaction = self.found[of.transactional_id].open
        epoch = transaction.coordinator_epoch if coordinator_epoch is None else coordinator_epoch
        return write_marker(self.cluster.admin, DIES, transaction, commit=commit, coordinator_epoch=epoch)

    def _hanging(self) -> dict[str, BlockingTransaction]:
        found = find_hanging(self.cluster.admin, [self.stage.topic])
        return {held.last.transactional_id: held for held in found if held.last}

    def _end_offsets(self, partition: int) -> EndOffsets:
        return self.cluster.end_offsets(self.stage.topic)[partition]

    def _check_read(
        self, step: WalkthroughStep, commit: _Commit, expected: int, claim: str, partition: int | None = None
    ) -> None:
        partition = commit.lost if partition is None else partition
        count = self._count_read(commit, partition)
        step.prove(
            claim,
            f"{commit.library}: {count} records of {commit.client.name} on partition {partition}",
            count == expected,
        )

    def _count_read(self, commit: _Commit, partition: int) -> int:
        """Return how many of a producer's records a new read_committed reader receives from a partition."""
        self.readers += 1
        place = (self.stage.topic, partition)
        reader = OpenTransactionReader(self.stage, f"reader-{self.readers}", place, commit.client.number)
        try:
            return reader.look()
        finally:
            reader.close()


def _errors(commits: Sequence[_Commit]) -> str:
    errors = sorted({error for commit in commits for error in commit.refused})
    return f"; refused: {', '.join(errors)}" if errors else ""


def wait_leaderless(cluster: Cluster, place: PartitionId, survivors: Sequence[int]) -> None:
    """Wait until the metadata of every surviving broker shows that a partition has no leader."""
    topic, partition = place

    def leaderless(broker: int) -> bool:
        partitions = cluster.admin.metadata([topic], broker=broker).partitions
        return any(p.leader < 0 for p in partitions if p.partition == partition)

    for broker in survivors:
        wait_until(
            lambda b=broker: leaderless(b),  # type: ignore[misc]
            30,
            f"broker {broker} to report that {topic}-{partition} has no leader",
        )


_ONE_TITLES: Final = (
    "One replica: its broker is killed, then three transactions commit",
    "Two replicas: both brokers are killed, then a transaction commits",
    "All brokers are back, and readers wait",
    "An operator finds the open transactions",
    "What does not free a partition",
    "What frees a partition: the marker that was decided",
    "What Kafka's own tool does: an abort",
    "What the producer itself does: its next transaction there",
)


def _one_library(stage: Stage) -> Iterator[WalkthroughStep]:
    shown = _SkippedMarker(stage, ["confluent-kafka"], ONE_TIMEOUT_MS)
    stage.cluster.reassign(stage.topic, TWO_REPLICAS)
    methods = (
        shown.one_replica,
        shown.two_replicas,
        shown.readers_wait,
        shown.operator_finds,
        shown.not_freed,
        shown.operator_frees,
        shown.operator_aborts,
        shown.next_transaction,
    )
    return shown.steps((FREED, ABORTED, AGAIN), list(zip(_ONE_TITLES, methods, strict=True)))


ONE_LIBRARY: Final = Walkthrough(
    titles=_ONE_TITLES, placement=((1,), (DIES,), (DIES,)), drawn=(FREED, ABORTED), steps=_one_library
)

_EVERY_TITLES: Final = (
    "One replica: its broker is killed, then transactions of each client commit",
    "The broker is back, and an operator finds the open transactions",
    "The marker that was decided frees a partition",
    "The next transaction of the same producer decides the open one",
)


def _every_library(stage: Stage) -> Iterator[WalkthroughStep]:
    most = len(EVERY_LIBRARY.placement) - 1
    if not 0 < len(stage.libraries) <= most:
        raise UsageError(
            f"{len(stage.libraries)} client libraries", f"walkthrough.libraries takes one to {most}"
        )
    shown = _SkippedMarker(stage, stage.libraries, EVERY_TIMEOUT_MS)
    methods = (shown.one_replica, shown.operator_finds, shown.operator_frees, shown.next_transaction)
    return shown.steps((FREED, AGAIN), list(zip(_EVERY_TITLES, methods, strict=True)))


EVERY_LIBRARY: Final = Walkthrough(
    titles=_EVERY_TITLES,
    placement=((1,), (DIES,), (DIES,), (DIES,)),
    drawn=("freed-java", "freed-kafka-python"),
    steps=_every_library,
    needs=frozenset({KafkaFeature.TRANSACTION_VERSION}),
)
