"""A commit is acknowledged while a partition has no leader: its marker is skipped, and never written.

Four transactions: three on a partition with one replica, one on a partition with two. All its brokers die
before the end is asked for. Each has records on a partition that goes on living, too. What is found is judged
while it lasts. Then an operator ends one of them rightly and one wrongly, one ends by its own producer's next
transaction, and one is left as it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from harness.base.waits import wait_until
from harness.clients.scripted.scripted_client import RECORDS, Scripted
from harness.evidence.history import HistoryWriter
from harness.evidence.step_report import WalkthroughStep
from harness.faults.node_faults import Kill
from harness.faults.replica_placement import Placement
from harness.kafka.admin import EndOffsets
from harness.kafka.coordinators import java_hash
from harness.kafka.hanging_transactions import BlockingTransaction, find_hanging, write_marker
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from harness.tap.coordinator_entries import decisions, markers
from harness.walkthroughs.leaderless_partition import TIMEOUT_MS, surviving_client, wait_leaderless
from harness.walkthroughs.open_transaction_reader import OpenTransactionReader
from harness.walkthroughs.stage import Stage

TITLES: Final = (
    "One replica: its broker is killed, then three transactions commit",
    "Two replicas: both brokers are killed, then a transaction commits",
    "All brokers are back, and readers wait",
    "An operator finds them",
    "What does not free a partition",
    "What frees it",
    "What Kafka's own remedy does: an abort",
    "What the producer itself does: its next transaction there",
)
ONE, LIVES, TWO = 0, 1, 2
PLACEMENT: Final[Sequence[Sequence[int]]] = ((3,), (1,), (3,))
SECOND: Final = {TWO: (3, 2)}
"""One partition is given its second replica afterwards: a topic is created with as many for each."""
DRAWN: Final = ("freed", "aborted")
SWEEP_S: Final = 15.0
"""How much longer than its time limit a transaction must be seen open before it counts as hanging."""


def steps(stage: Stage) -> Iterator[WalkthroughStep]:
    """Carry out the eight steps."""
    return _Flow(stage).steps()


class _Flow:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.cluster = stage.cluster
        self.since = time.time_ns()
        self.readers = 0
        self.clients: list[Scripted] = []
        self.healed = 0.0
        self.looks = HistoryWriter(
            stage.directory / "history" / "looks.jsonl", run=stage.run, client="looks", role="observer"
        )

    def steps(self) -> Iterator[WalkthroughStep]:
        made = WalkthroughStep.numbered(TITLES)
        self.cluster.reassign(self.stage.topic, SECOND)
        try:
            yield self._one_replica(made[0])
            yield self._two_replicas(made[1])
            yield self._readers_wait(made[2])
            yield self._found(made[3])
            yield self._not_freed(made[4])
            yield self._freed(made[5])
            yield self._aborted(made[6])
            yield self._next_one(made[7])
        finally:
            for client in self.clients:
                client.close()
            self.looks.close()

    def _client(self, name: str, lost: Sequence[int], lanes: Sequence[int]) -> Scripted:
        client = surviving_client(self.stage, name, len(self.clients) + 1, lost, lanes)
        self.clients.append(client)
        return client

    def _one_replica(self, step: WalkthroughStep) -> WalkthroughStep:
        mine = [self._client(name, [3], (ONE, LIVES)) for name in ("freed", "aborted", "again")]
        self.freed, self.wrong, self.again = mine
        for client in mine:
            client.init()
            client.begin()  # one that ends in order, so that the partition has seen a marker
            client.send(0, "commit")
            client.end("commit")
        for client in mine:  # what is slow is over: these must stay open until the broker is missed
            client.begin()
            client.send(0, "commit")
            client.send(1, "commit")
        kill = self.stage.inject(Kill(), "kafka-3").start()
        wait_leaderless(self.cluster, (self.stage.topic, ONE), (1, 2))
        for client in mine:
            client.end("commit")
            self._acknowledged(step, client)
        kill.heal()
        return self._skipped(step, mine, ONE, before=1)

    def _two_replicas(self, step: WalkthroughStep) -> WalkthroughStep:
        """The coordinator must live: its partition is kept on the third broker meanwhile."""
        self.double = self._client("double", [], (TWO, LIVES))
        partitions = self.cluster.admin.metadata([TRANSACTION_TOPIC]).partitions
        kept = partitions[java_hash(self.double.transactional_id) % len(partitions)]
        alone = Placement(topic=TRANSACTION_TOPIC, partition=kept.partition, on=(1,), back=kept.replicas)
        placement = self.stage.inject(alone, "all").start()
        self.double.init()
        self.double.begin()
        self.double.send(0, "commit")
        self.double.send(1, "commit")
        kills = [self.stage.inject(Kill(), f"kafka-{broker}").start() for broker in (2, 3)]
        wait_leaderless(self.cluster, (self.stage.topic, TWO), (1,))
        self.double.end("commit")
        self._acknowledged(step, self.double)
        # Neither serves before the other does: what both have waits for the one that led it last.
        for broker in (2, 3):
            self.cluster.node(broker).start()
        for kill in kills:
            kill.heal()
        placement.heal()
        self.healed = time.monotonic()
        return self._skipped(step, (self.double,), TWO, before=0)

    def _acknowledged(self, step: WalkthroughStep, client: Scripted) -> None:
        step.compare(
            "a commit that is acknowledged is carried out on every partition of its transaction",
            f"{client.name} was told that its commit is done while a partition of it had no leader",
            False,
        )

    def _skipped(
        self, step: WalkthroughStep, clients: Sequence[Scripted], partition: int, *, before: int
    ) -> WalkthroughStep:
        """Look for the markers; `before` stand there of transactions that ended in order."""
        for client in clients:
            decided = wait_until(lambda c=client: self._complete(c), 30, "the coordinator to be done")  # type: ignore[misc]
            found = [
                m.partition
                for m in markers(self.cluster, self.stage.topic, self.since)
                if m.producer_id == decided[-1][1] and m.what == "commit"
            ]
            noted = " ".join(what for what, _ in groupby(what for what, _ in decided))
            step.prove(
                "the coordinator is done with it: its log says complete",
                f"{client.name}: {noted}",
                decided[-1][0] == "CompleteCommit",
            )
            step.prove(
                "the marker is written where there was a leader, and skipped where there was none",
                f"{client.name}: {found.count(LIVES)} commit marker on partition {LIVES}, "
                f"{found.count(partition) - before} on partition {partition}",
                found.count(LIVES) == 1 and found.count(partition) == before,
            )
        end = self._end(partition)
        step.prove(
            "the last stable offset stays behind",
            f"partition {partition}: it is {end.last_stable}, the high watermark {end.high_watermark}",
            end.last_stable < end.high_watermark,
        )
        return step

    def _complete(self, client: Scripted) -> list[tuple[str, int]]:
        found = [
            (s.what, s.producer_id)
            for s in decisions(self.cluster, client.transactional_id, self.since)
            if s.what != "Empty"
        ]
        return found if found and found[-1][0].startswith("Complete") else []

    def _readers_wait(self, step: WalkthroughStep) -> WalkthroughStep:
        """Nothing moves for longer than any transaction may stay open, and it is written down."""
        watched = TIMEOUT_MS / 1000 + SWEEP_S + 1
        stood: dict[int, set[int]] = {ONE: set(), TWO: set()}

        def over() -> bool:
            ends = self.cluster.end_offsets(self.stage.topic)
            self.looks.sample(
                [(self.stage.topic, p, 0, e.last_stable, e.high_watermark) for p, e in ends.items()]
            )
            for partition, seen in stood.items():
                seen.add(ends[partition].last_stable)
            return time.monotonic() > self.healed + watched

        wait_until(over, watched + 30, "the watch to be over", every=0.5)
        for partition, seen in stood.items():
            step.prove(
                "a read_committed reader waits there until somebody frees the partition",
                f"partition {partition}: it stood at {sorted(seen)} for {watched:.0f} s",
                len(seen) == 1,
            )
        self._reads(step, self.freed, ONE, RECORDS, "what was committed before can be read, the rest cannot")
        self._reads(step, self.double, TWO, 0, "nothing of the acknowledged transaction can be read there")
        return step

    def _reads(
        self, step: WalkthroughStep, client: Scripted, partition: int, expected: int, said: str
    ) -> None:
        self.readers += 1
        place = (self.stage.topic, partition)
        reader = OpenTransactionReader(self.stage, f"reader-{self.readers}", place, client.number)
        seen = reader.look()
        reader.close()
        step.prove(said, f"{seen} records of {client.name} on partition {partition}", seen == expected)

    def _end(self, partition: int) -> EndOffsets:
        return self.cluster.end_offsets(self.stage.topic)[partition]

    def _hanging(self) -> dict[str, BlockingTransaction]:
        found = find_hanging(self.cluster.admin, [self.stage.topic])
        return {one.last.transactional_id.split(".")[0]: one for one in found if one.last}

    def _found(self, step: WalkthroughStep) -> WalkthroughStep:
        self.seen = self._hanging()
        places = {self.freed: ONE, self.wrong: ONE, self.again: ONE, self.double: TWO}
        for client, partition in places.items():
            one = self.seen.get(client.name)
            step.prove(
                "the leader has it open (DescribeProducers), the coordinator is done with it "
                "(DescribeTransactions)",
                f"{client.name}: open on partition {one.open.partition} from offset {one.open.first_offset} "
                f"on, last written to {one.open.age_s:.0f} s ago; coordinator {one.last.coordinator}: "
                f"{one.last.state}"
                if one and one.last
                else f"{client.name} was not found",
                one and one.last and one.open.partition == partition and one.last.state == "CompleteCommit",
            )
        step.show(hanging=[[*one.open, one.last.state if one.last else ""] for one in self.seen.values()])
        return step

    def _not_freed(self, step: WalkthroughStep) -> WalkthroughStep:
        before = self._end(ONE).last_stable
        self.wrong.init()
        after = self._end(ONE).last_stable
        last = self._hanging()[self.wrong.name].last
        step.prove(
            "a new producer with the same transactional id does not free it, and loses the decision",
            f"last stable offset {before}, then {after}; coordinator: {last.state if last else 'forgotten'}",
            before == after and last and last.state == "Empty",
        )
        one = self.seen[self.freed.name].open
        answer = write_marker(self.cluster.admin, 3, one, commit=True, coordinator_epoch=-1)
        step.prove(
            "a marker with the coordinator epoch that tools take by default is refused",
            f"WriteTxnMarkers with coordinator epoch -1: {answer}",
            answer != "NONE",
        )
        return step

    def _freed(self, step: WalkthroughStep) -> WalkthroughStep:
        one = self.seen[self.freed.name].open
        answer = write_marker(
            self.cluster.admin, 3, one, commit=True, coordinator_epoch=one.coordinator_epoch
        )
        end = self._end(ONE)
        step.prove(
            "the marker that was decided, with the coordinator epoch of DescribeProducers, frees it",
            f"WriteTxnMarkers commit with coordinator epoch {one.coordinator_epoch}: {answer}; the last "
            f"stable offset was {one.first_offset}, then {end.last_stable}",
            answer == "NONE" and end.last_stable > one.first_offset,
        )
        self._reads(step, self.freed, ONE, 2 * RECORDS, "its records can be read")
        step.prove(
            "the others hang on",
            ", ".join(sorted(self._hanging())),
            set(self._hanging()) == {self.wrong.name, self.again.name, self.double.name},
        )
        return step

    def _aborted(self, step: WalkthroughStep) -> WalkthroughStep:
        """What `kafka-transactions abort` sends: it cannot commit, and asks nobody what was decided."""
        one = self.seen[self.wrong.name].open
        answer = write_marker(
            self.cluster.admin, 3, one, commit=False, coordinator_epoch=one.coordinator_epoch
        )
        step.prove(
            "it ends the transaction there",
            f"WriteTxnMarkers abort: {answer}; hanging are now {', '.join(sorted(self._hanging()))}",
            answer == "NONE" and self.wrong.name not in self._hanging(),
        )
        self._reads(step, self.wrong, ONE, RECORDS, "what was acknowledged is lost there")
        self._reads(step, self.wrong, LIVES, RECORDS, "and stands where the marker had been written")
        return step

    def _next_one(self, step: WalkthroughStep) -> WalkthroughStep:
        """A producer that lives goes on with the same id and epoch: its next marker there is for both."""
        self.again.begin()
        self.again.send(0, "abort")
        self.again.end("abort")
        wait_until(lambda: (e := self._end(ONE)).last_stable == e.high_watermark, 10, "its marker")
        end = self._end(ONE)
        step.prove(
            "its marker frees the partition",
            f"an abort; last stable offset {end.last_stable}, high watermark {end.high_watermark}",
            end.last_stable == end.high_watermark,
        )
        self._reads(
            step, self.again, ONE, RECORDS, "and decides what was left open: what was acknowledged is lost"
        )
        return step
