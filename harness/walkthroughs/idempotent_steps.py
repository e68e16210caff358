"""Walkthrough of the idempotent producer: ids, sequences, a retry, a fail-over, a second producer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from harness.base.waits import wait_until
from harness.clients.idempotent import Burst
from harness.clients.scripted.idempotent_producer import IdempotentProducer
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
from harness.walkthroughs.stage import Stage, Walkthrough

TITLES: Final = (
    "Producer 1 starts and gets a producer id",
    "The first batch to A",
    "A response is lost, and the batch is sent again",
    "The leader of A is killed",
    "The next batch goes to the new leader; the old leader returns",
    "Producer 2 starts",
    "Producer 1 sends its first batch to B",
)
A, B = 0, 1
RECORDS: Final = 3
"""Number of records per batch, which is also the difference between consecutive base sequences."""
LEAST_BURSTS: Final = 150
"""Minimum number of bursts that the producer sends while network jitter is injected."""
CUTS: Final = (3, 20)
"""Minimum and maximum number of injected connection cuts. After the minimum, cutting ends as soon as the
client has sent any batch a second time.
"""


class _IdempotentSteps:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.cluster = stage.cluster
        self.a = (stage.topic, A)
        self.b = (stage.topic, B)
        self.pid = -1
        self.epoch = -1
        self.leader = -1

    def steps(self) -> Iterator[WalkthroughStep]:
        methods = (
            self._get_id,
            self._send_first_batch,
            self._lose_response,
            self._kill_leader,
            self._send_next_batch,
            self._start_second_producer,
            self._send_first_batch_to_b,
        )
        for step, carry_out in zip(WalkthroughStep.numbered(TITLES), methods, strict=True):
            carry_out(step)
            yield step

    def _start(self, name: str) -> tuple[IdempotentProducer, int, int, int]:
        """Start a producer; return it with its id and epoch, and the broker that assigned them."""
        producer = self.stage.idempotent(name)
        producer.serve(0.05)
        ids = wait_until(lambda: producer_ids(self.stage.frames(), name), 30, f"the producer id of {name}")
        return producer, *ids[0]

    def _get_id(self, step: WalkthroughStep) -> None:
        self.one, self.pid, self.epoch, broker = self._start("producer-1")
        id_blocks = blocks(self.cluster)
        of_id = [block for block in id_blocks if self.pid in block]
        step.prove(
            "a broker assigns a producer id and epoch 0 (InitProducerId)",
            f"broker {broker} assigned producer id {self.pid}, epoch {self.epoch}",
            self.epoch == 0,
        )
        step.prove(
            f"the id is from a block of {PRODUCER_ID_BLOCK} that the controllers allocated to that broker",
            "; ".join(
                f"block {b.first}-{b.first + PRODUCER_ID_BLOCK - 1} belongs to broker {b.broker}"
                for b in of_id
            )
            or "it is in no block",
            [block.broker for block in of_id] == [broker],
        )
        step.prove(
            "blocks never overlap",
            f"the metadata log has {len(id_blocks)} blocks, {len(overlapping(id_blocks))} pairs overlap",
            id_blocks and not overlapping(id_blocks),
        )
        step.show(blocks=[[b.first, b.broker] for b in id_blocks])

    def _send_first_batch(self, step: WalkthroughStep) -> None:
        self.leader = self.cluster.partition(*self.a).leader
        delivery = self.one.send(A, RECORDS)
        copies = wait_until(lambda: self._copies(1), 15, "the batch on every replica")
        batches = {broker: log[0] for broker, log in copies.items()}
        step.prove(
            "the batch carries producer id, epoch and base sequence 0",
            _identity(batches[self.leader]) + f" at offset {delivery.offset}",
            batches[self.leader][2:5] == (self.pid, self.epoch, 0) and delivery.offset == 0,
        )
        step.prove(
            "leader and followers have the same batch",
            f"brokers {', '.join(map(str, batches))} have it, broker {self.leader} is the leader",
            len(batches) == 3 and len(set(batches.values())) == 1,
        )
        step.show(replicas={str(broker): _rows(log) for broker, log in copies.items()})

    def _lose_response(self, step: WalkthroughStep) -> None:
        fault = LoseResponseFrame(api="Produce", client_id=self.one.name, topic=self.stage.topic, partition=A)
        with self.stage.arm(fault, f"leader_of({self.stage.topic}, {A})"):
            delivery = self.one.send(A, RECORDS)
        frames, log = self.stage.frames(), leader_log(self.cluster, self.a)
        identity = (self.pid, self.epoch, RECORDS)
        sent = [s for s in sent_batches(frames, self.one.name, self.a) if s.identity == identity]
        answers = [a for a in answers_to(frames, self.one.name, self.a) if a.n in {s.n for s in sent}]
        stored = [b for b in log if b[2:5] == identity]
        step.prove(
            "the producer sends the same batch again: the same id, epoch and sequence",
            f"sequence {RECORDS} was sent {len(sent)} times, the first response was lost",
            len(sent) == 2 and answers[:1] and answers[0].fate == "lost",
        )
        step.prove(
            "the log contains it once",
            f"{len(stored)} batch of sequence {RECORDS} at offset {_offsets(stored)}",
            len(stored) == 1,
        )
        step.prove(
            "the producer's delivery report has the offset of that batch",
            f"offset {delivery.offset}, {'no error' if delivery.error is None else delivery.error.name()}",
            delivery.error is None and _offsets(stored) == str(delivery.offset),
        )
        step.compare(
            "the broker's response to the repeat is DUPLICATE_SEQUENCE_NUMBER",
            f"it is {answers[-1].error or 'NONE'} with offset {answers[-1].offset}"
            if answers
            else "no response",
            answers and answers[-1].error == "DUPLICATE_SEQUENCE_NUMBER",
        )
        step.show(sent=[s._asdict() for s in sent], answers=[a._asdict() for a in answers], log=_rows(log))
        self._send_under_jitter(step)

    def _send_under_jitter(self, step: WalkthroughStep) -> None:
        """Show that connection cuts cause retries too, without a fault on a chosen frame.

        The producer sends many batches under network jitter while connections are cut.
        """
        producer = self.stage.idempotent("shaken", linger_ms=5)
        bursts: list[Burst] = []
        leader = f"leader_of({self.stage.topic}, {A})"
        with self.stage.inject(Jitter(latency_ms=50, jitter_ms=40), leader), ThreadPoolExecutor(1) as pool:
            # Cut the connections in another thread while this thread sends. Each injection takes measurements
            # before it cuts a connection. A single thread could not send meanwhile, so no batch would be in
            # flight at the cut.
            cutting = pool.submit(self._cut, leader, producer.name)
            while not cutting.done() or len(bursts) < LEAST_BURSTS:
                bursts.append(producer.hand_over(A, 2))
                producer.serve(0.02)
            cutting.result()
            producer.finish()
        sent = sent_batches(self.stage.frames(), producer.name, self.a)
        again = sent_again(sent)
        pid = sent[0].producer_id if sent else -1
        stored = [b for b in leader_log(self.cluster, self.a) if b.producer_id == pid]
        numbers = [n for b in stored for n in range(b.base_sequence, b.base_sequence + len(b.values))]
        whole = numbers == list(range(2 * len(bursts)))
        step.prove(
            "by chance too: a batch that was cut off is sent again, and the log contains it once",
            f"{len(again)} of {len(stored)} batches were sent more than once; the log has sequences "
            f"0-{len(numbers) - 1} {'once each, in order' if whole else 'otherwise'}",
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

    def _kill_leader(self, step: WalkthroughStep) -> None:
        before = self.cluster.partition(*self.a)
        self.kill = self.stage.inject(Kill(), f"leader_of({self.stage.topic}, {A})").start()
        after = self.cluster.partition(*self.a)
        step.prove(
            "an in-sync follower becomes leader, in a higher leader epoch",
            f"broker {before.leader} was leader in epoch {before.leader_epoch}, "
            f"broker {after.leader} is leader in epoch {after.leader_epoch}",
            after.leader in set(before.isr) - {before.leader} and after.leader_epoch > before.leader_epoch,
        )
        step.prove(
            "the partition has no leader for a time",
            f"{self.kill.bite['moved_after_s']} s from the kill to the next leader",
            self.kill.bite["moved_after_s"] > 0,
        )
        step.show(bite=self.kill.bite, isr={"before": before.isr, "after": after.isr})
        self.leader = after.leader

    def _send_next_batch(self, step: WalkthroughStep) -> None:
        delivery = self.one.send(A, RECORDS)
        log = leader_log(self.cluster, self.a)
        sent = sent_batches(self.stage.frames(), self.one.name, self.a)[-1]
        stored = [b for b in log if b[2:5] == (self.pid, self.epoch, 2 * RECORDS)]
        step.prove(
            "the new leader accepts the next sequence",
            f"broker {sent.broker} wrote sequence {sent.base_sequence} at offset {delivery.offset}; the log "
            f"contains it {len(stored)} time",
            sent.broker == self.leader and len(stored) == 1 and stored[0].base_offset == delivery.offset,
        )
        self._resend_to_new_leader(step, log)
        self.kill.heal()
        copies = wait_until(
            lambda: self._copies(len(log)), 30, "the same log on every replica, broker 1 included"
        )
        now = self.cluster.partition(*self.a)
        step.prove(
            "the broker that was killed catches up: its log is the same, batch by batch",
            f"{len(log)} batches on brokers {', '.join(map(str, copies))}; the ISR is {sorted(now.isr)}",
            len({tuple(each) for each in copies.values()}) == 1 and set(now.isr) == set(BROKER_IDS),
        )
        step.show(offset=delivery.offset, log=_rows(log)[-2:], served_again=self.kill.health)

    def _resend_to_new_leader(self, step: WalkthroughStep, log: list[Batch]) -> None:
        """Send the batch of step 3 again, this time to the new leader.

        The new leader was a follower when the batch was first written.
        """
        old = next(b for b in log if b[2:5] == (self.pid, self.epoch, RECORDS))
        values = [value for _, value in old.values if value is not None]
        batch = encode_batch(self.pid, self.epoch, RECORDS, values)
        answer = produce((HOST, self.cluster.ports.direct(self.leader)), self.a, batch)
        after = leader_log(self.cluster, self.a)
        step.prove(
            "the follower that became leader recognises an old batch: producer state comes with the log",
            f"sent to broker {self.leader}: {answer.error}, offset {answer.offset}; "
            f"{len(after) - len(log)} batches written",
            answer.code == 0 and answer.offset == old.base_offset and after == log,
        )

    def _start_second_producer(self, step: WalkthroughStep) -> None:
        self.two, pid, epoch, broker = self._start("producer-2")
        step.prove(
            "another producer gets another id",
            f"broker {broker} assigned producer id {pid}, epoch {epoch}",
            pid != self.pid and epoch == 0,
        )
        delivery = self.two.send(B, RECORDS)
        log = leader_log(self.cluster, self.b)
        step.prove(
            "its sequences start at 0",
            f"{_identity(log[0])} at offset {delivery.offset} of B" if log else "B is empty",
            [b[2:5] for b in log] == [(pid, epoch, 0)],
        )
        step.show(log=_rows(log))
        self.second = pid

    def _send_first_batch_to_b(self, step: WalkthroughStep) -> None:
        delivery = self.one.send(B, RECORDS)
        self.two.send(B, RECORDS)
        log = leader_log(self.cluster, self.b)
        of_first = [b for b in log if b.producer_id == self.pid]
        step.prove(
            "sequences are counted for each partition: they start at 0 in B",
            f"{_identity(of_first[0])} at offset {delivery.offset} of B"
            if of_first
            else "B has no such batch",
            [b.base_sequence for b in of_first] == [0] and of_first[0].base_offset == delivery.offset,
        )
        others = [b.base_sequence for b in log if b.producer_id == self.second]
        step.prove(
            "the other producer is not affected",
            f"producer id {self.second} continued: sequences {others}",
            others == [0, RECORDS],
        )
        step.show(log=_rows(log))

    def _copies(self, batches: int) -> dict[int, list[Batch]]:
        """Return each broker's log of partition A.

        Return {} if the log of any broker does not have exactly `batches` batches yet.
        """
        copies = {broker: replica_log(self.cluster, broker, self.a) for broker in BROKER_IDS}
        return copies if all(len(log) == batches for log in copies.values()) else {}


def _identity(batch: Batch) -> str:
    return f"producer id {batch.producer_id}, epoch {batch.epoch}, base sequence {batch.base_sequence}"


def _offsets(batches: list[Batch]) -> str:
    return ", ".join(str(batch.base_offset) for batch in batches)


def _rows(log: list[Batch]) -> list[list[int]]:
    """Return a row for each batch: first and last offset, producer id, epoch and base sequence."""
    return [[b.base_offset, b.last_offset, b.producer_id, b.epoch, b.base_sequence] for b in log]


WALKTHROUGH: Final = Walkthrough(
    titles=TITLES,
    placement=((1, 2, 3), (2, 3, 1)),
    drawn=("producer-1", "producer-2"),
    steps=lambda stage: _IdempotentSteps(stage).steps(),
)
