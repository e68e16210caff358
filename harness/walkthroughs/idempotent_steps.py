"""The idempotent producer in seven steps: ids, sequences, a retry, a fail-over, a second producer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from harness.base.waits import wait_until
from harness.clients.idempotent import Burst
from harness.clients.scripted.idempotent_actor import Actor
from harness.cluster.layout import BROKER_IDS, HOST
from harness.evidence.step_report import WalkthroughStep
from harness.faults.frame_faults import LoseResponseFrame
from harness.faults.link_faults import Jitter, Sever
from harness.faults.node_faults import Kill
from harness.kafka.log.batches import Batch
from harness.kafka.raw_produce import encode_batch, produce
from harness.tap.coordinator_entries import PRODUCER_ID_BLOCK
from harness.walkthroughs.broker_evidence import (
    answers_to,
    blocks,
    leader_log,
    overlapping,
    producer_ids,
    replica_log,
    sent_again,
    sent_batches,
)
from harness.walkthroughs.stage import Stage

TITLES: Final = (
    "Producer 1 starts and is given an id",
    "The first batch to A",
    "An answer is lost, and the batch is sent again",
    "The leader of A is killed",
    "The next batch, to the new leader; the old one comes back",
    "Producer 2 starts",
    "Producer 1 sends its first batch to B",
)
PLACEMENT: Final[Sequence[Sequence[int]]] = ((1, 2, 3), (2, 3, 1))
DRAWN: Final = ("producer-1", "producer-2")
A, B = 0, 1
RECORDS: Final = 3
"""Records of one batch: sequences go on by this."""
LEAST_BURSTS: Final = 150
"""How much the producer that is shaken sends at least."""
CUTS: Final = (3, 20)
"""Cuts of its leader's links meanwhile: at least, and at most until one met what was in flight."""


def steps(stage: Stage) -> Iterator[WalkthroughStep]:
    """Carry out the seven steps, each seen before the next begins."""
    return _Flow(stage).steps()


class _Flow:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.cluster = stage.cluster
        self.a = (stage.topic, A)
        self.b = (stage.topic, B)
        self.pid = -1
        self.epoch = -1
        self.leader = -1

    def steps(self) -> Iterator[WalkthroughStep]:
        made = WalkthroughStep.numbered(TITLES)
        yield self._gets_an_id(made[0])
        yield self._first_batch(made[1])
        yield self._sent_again(made[2])
        yield self._leader_killed(made[3])
        yield self._next_batch(made[4])
        yield self._second_producer(made[5])
        yield self._first_batch_to_b(made[6])

    def _started(self, name: str) -> tuple[Actor, int, int, int]:
        """A producer that has its id: the id, its epoch, and the broker that gave it, from the frames."""
        actor = self.stage.actor(name)
        actor.serve(0.05)
        given = wait_until(
            lambda: producer_ids(self.stage.frames(), name), 30, f"{name} to be given a producer id"
        )
        return actor, *given[0]

    def _gets_an_id(self, step: WalkthroughStep) -> WalkthroughStep:
        self.one, self.pid, self.epoch, giver = self._started("producer-1")
        found = blocks(self.cluster)
        mine = [block for block in found if self.pid in block]
        step.prove(
            "a producer is given an id and epoch 0 by a broker (InitProducerId)",
            f"broker {giver} gave producer id {self.pid}, epoch {self.epoch}",
            self.epoch == 0,
        )
        step.prove(
            f"the id is out of a block of {PRODUCER_ID_BLOCK} that the controllers gave to that broker",
            "; ".join(
                f"block {b.first}-{b.first + PRODUCER_ID_BLOCK - 1} was given to broker {b.broker}"
                for b in mine
            )
            or "it lies in no block",
            [block.broker for block in mine] == [giver],
        )
        step.prove(
            "blocks never overlap",
            f"{len(found)} blocks stand in the metadata log, {len(overlapping(found))} pairs overlap",
            found and not overlapping(found),
        )
        step.show(blocks=[[b.first, b.broker] for b in found])
        return step

    def _first_batch(self, step: WalkthroughStep) -> WalkthroughStep:
        self.leader = self.cluster.partition(*self.a).leader
        told = self.one.send(A, RECORDS)
        copies = wait_until(lambda: self._copies(1), 15, "the batch on every replica")
        batches = {broker: log[0] for broker, log in copies.items()}
        step.prove(
            "the batch carries producer id, epoch and base sequence 0",
            _identity(batches[self.leader]) + f" at offset {told.offset}",
            batches[self.leader][2:5] == (self.pid, self.epoch, 0) and told.offset == 0,
        )
        step.prove(
            "leader and followers have the same batch",
            f"brokers {', '.join(map(str, batches))} have it, broker {self.leader} leads",
            len(batches) == 3 and len(set(batches.values())) == 1,
        )
        step.show(replicas={str(broker): _rows(log) for broker, log in copies.items()})
        return step

    def _sent_again(self, step: WalkthroughStep) -> WalkthroughStep:
        fault = LoseResponseFrame(api="Produce", client_id=self.one.name, topic=self.stage.topic, partition=A)
        with self.stage.expect(fault, f"leader_of({self.stage.topic}, {A})"):
            told = self.one.send(A, RECORDS)
        frames, log = self.stage.frames(), leader_log(self.cluster, self.a)
        identity = (self.pid, self.epoch, RECORDS)
        sent = [s for s in sent_batches(frames, self.one.name, self.a) if s.identity == identity]
        answers = [a for a in answers_to(frames, self.one.name, self.a) if a.n in {s.n for s in sent}]
        stored = [b for b in log if b[2:5] == identity]
        step.prove(
            "the producer sends the same batch again: the same id, epoch and sequence",
            f"sequence {RECORDS} was sent {len(sent)} times, the first answer was lost",
            len(sent) == 2 and answers[:1] and answers[0].fate == "lost",
        )
        step.prove(
            "the log has it once",
            f"{len(stored)} batch of sequence {RECORDS} at offset {_offsets(stored)}",
            len(stored) == 1,
        )
        step.prove(
            "the producer is told the offset of that batch",
            f"told offset {told.offset}, without an error",
            told.error is None and _offsets(stored) == str(told.offset),
        )
        step.compare(
            "the broker answers the repeat with DUPLICATE_SEQUENCE_NUMBER",
            f"it answers {answers[-1].error or 'NONE'} with offset {answers[-1].offset}"
            if answers
            else "no answer",
            answers and answers[-1].error == "DUPLICATE_SEQUENCE_NUMBER",
        )
        step.show(sent=[s._asdict() for s in sent], answers=[a._asdict() for a in answers], log=_rows(log))
        self._shaken(step)
        return step

    def _shaken(self, step: WalkthroughStep) -> None:
        """The same by chance: many batches under jitter, whose links are cut now and then."""
        actor = self.stage.actor("shaken", linger_ms=5)
        bursts: list[Burst] = []
        leader = f"leader_of({self.stage.topic}, {A})"
        with self.stage.inject(Jitter(latency_ms=50, jitter_ms=40), leader), ThreadPoolExecutor(1) as pool:
            # Beside the sending: a fault measures before it acts, and then nothing would be in flight.
            cutting = pool.submit(self._cut, leader, actor.name)
            while not cutting.done() or len(bursts) < LEAST_BURSTS:
                bursts.append(actor.hand_over(A, 2))
                actor.serve(0.02)
            cutting.result()
            actor.finish()
        sent = sent_batches(self.stage.frames(), actor.name, self.a)
        again = sent_again(sent)
        pid = sent[0].producer_id if sent else -1
        stored = [b for b in leader_log(self.cluster, self.a) if b.producer_id == pid]
        numbers = [n for b in stored for n in range(b.base_sequence, b.base_sequence + len(b.values))]
        whole = numbers == list(range(2 * len(bursts)))
        step.prove(
            "by chance too: what is cut off is sent again and stands once",
            f"{len(again)} of {len(stored)} batches were sent more than once; sequences 0-{len(numbers) - 1} "
            f"stand {'once each, in order' if whole else 'otherwise'}",
            again and whole and all(burst.count == 2 and not burst.error for burst in bursts),
        )
        step.show(shaken={"requests": len(sent), "sent_again": sorted(i[2] for i in again), "pid": pid})

    def _cut(self, leader: str, client: str) -> None:
        least, most = CUTS
        for n in range(most):
            if n >= least and sent_again(sent_batches(self.stage.frames(), client, self.a)):
                return
            with self.stage.inject(Sever(), leader):
                pass

    def _leader_killed(self, step: WalkthroughStep) -> WalkthroughStep:
        before = self.cluster.partition(*self.a)
        self.kill = self.stage.inject(Kill(), f"leader_of({self.stage.topic}, {A})").start()
        after = self.cluster.partition(*self.a)
        step.prove(
            "a follower that is in sync becomes leader, in a higher leader epoch",
            f"broker {before.leader} led in epoch {before.leader_epoch}, "
            f"broker {after.leader} leads in epoch {after.leader_epoch}",
            after.leader in set(before.isr) - {before.leader} and after.leader_epoch > before.leader_epoch,
        )
        step.prove(
            "for a time there is no leader",
            f"{self.kill.bite['moved_after_s']} s from the kill to the next one",
            self.kill.bite["moved_after_s"] > 0,
        )
        step.show(bite=self.kill.bite, isr={"before": before.isr, "after": after.isr})
        self.leader = after.leader
        return step

    def _next_batch(self, step: WalkthroughStep) -> WalkthroughStep:
        told = self.one.send(A, RECORDS)
        log = leader_log(self.cluster, self.a)
        sent = sent_batches(self.stage.frames(), self.one.name, self.a)[-1]
        stored = [b for b in log if b[2:5] == (self.pid, self.epoch, 2 * RECORDS)]
        step.prove(
            "the new leader takes the next sequence",
            f"broker {sent.broker} took sequence {sent.base_sequence} at offset {told.offset}; it stands "
            f"{len(stored)} time",
            sent.broker == self.leader and len(stored) == 1 and stored[0].base_offset == told.offset,
        )
        self._resent_to_new_leader(step, log)
        self.kill.heal()
        copies = wait_until(
            lambda: self._copies(len(log)), 30, "the same log on every replica, broker 1's too"
        )
        now = self.cluster.partition(*self.a)
        step.prove(
            "the broker that was killed catches up: its log is the same, batch by batch",
            f"{len(log)} batches on brokers {', '.join(map(str, copies))}, in sync are {sorted(now.isr)}",
            len({tuple(each) for each in copies.values()}) == 1 and set(now.isr) == set(BROKER_IDS),
        )
        step.show(told=told.offset, log=_rows(log)[-2:], served_again=self.kill.health)
        return step

    def _resent_to_new_leader(self, step: WalkthroughStep, log: list[Batch]) -> None:
        """The batch of step 3 once more, now to the broker that was a follower when it was written."""
        old = next(b for b in log if b[2:5] == (self.pid, self.epoch, RECORDS))
        values = [value for _, value in old.values if value is not None]
        batch = encode_batch(self.pid, self.epoch, RECORDS, values)
        answer = produce((HOST, self.cluster.ports.direct(self.leader)), self.a, batch)
        after = leader_log(self.cluster, self.a)
        step.prove(
            "the follower that became leader recognises an old batch: its state comes with the log",
            f"sent to broker {self.leader}: {answer.error}, offset {answer.offset}; "
            f"{len(after) - len(log)} written",
            answer.code == 0 and answer.offset == old.base_offset and after == log,
        )

    def _second_producer(self, step: WalkthroughStep) -> WalkthroughStep:
        self.two, pid, epoch, giver = self._started("producer-2")
        step.prove(
            "another producer has another id",
            f"broker {giver} gave producer id {pid}, epoch {epoch}",
            pid != self.pid and epoch == 0,
        )
        told = self.two.send(B, RECORDS)
        log = leader_log(self.cluster, self.b)
        step.prove(
            "it begins at sequence 0",
            f"{_identity(log[0])} at offset {told.offset} of B" if log else "nothing is in B",
            [b[2:5] for b in log] == [(pid, epoch, 0)],
        )
        step.show(log=_rows(log))
        self.second = pid
        return step

    def _first_batch_to_b(self, step: WalkthroughStep) -> WalkthroughStep:
        told = self.one.send(B, RECORDS)
        self.two.send(B, RECORDS)
        log = leader_log(self.cluster, self.b)
        mine = [b for b in log if b.producer_id == self.pid]
        step.prove(
            "sequences are counted for each partition: B begins at 0",
            f"{_identity(mine[0])} at offset {told.offset} of B" if mine else "nothing of it is in B",
            [b.base_sequence for b in mine] == [0] and mine[0].base_offset == told.offset,
        )
        others = [b.base_sequence for b in log if b.producer_id == self.second]
        step.prove(
            "the other producer is not disturbed",
            f"producer id {self.second} went on: sequences {others}",
            others == [0, RECORDS],
        )
        step.show(log=_rows(log))
        return step

    def _copies(self, batches: int) -> dict[int, list[Batch]]:
        """A's log on each broker, once all of them have so many batches."""
        copies = {broker: replica_log(self.cluster, broker, self.a) for broker in BROKER_IDS}
        return copies if all(len(log) == batches for log in copies.values()) else {}


def _identity(batch: Batch) -> str:
    return f"producer id {batch.producer_id}, epoch {batch.epoch}, base sequence {batch.base_sequence}"


def _offsets(batches: list[Batch]) -> str:
    return ", ".join(str(batch.base_offset) for batch in batches)


def _rows(log: list[Batch]) -> list[list[int]]:
    """First and last offset, producer id, epoch and base sequence of each batch."""
    return [[b.base_offset, b.last_offset, b.producer_id, b.epoch, b.base_sequence] for b in log]
