"""A consume-transform-produce worker: one transaction contains outputs and the positions of their inputs.

The transform is deterministic. An input may have several outputs; `part` is the number of an output among
them. The partition of an output in the sink topic is (sequence of the input + part) modulo the number of
partitions. The output carries the input's identity and ends with the checksum of the input's value. A
stateful worker also counts and sums its inputs by key, and writes the changes to its changelog in the same
transaction.
"""

from __future__ import annotations

import random
import time
import zlib
from collections import defaultdict
from typing import Protocol

from harness.base.partition_id import PartitionId
from harness.clients.changelog_writer import Changelog
from harness.clients.client import Deadline
from harness.clients.client_settings import END_LIMIT_S
from harness.clients.client_spec import PipelineSpec
from harness.clients.group_consumer import GroupConsumer
from harness.clients.idempotent import BurstProducer
from harness.clients.poll_decoding import Given
from harness.clients.producer_lifecycle import BrokenTransactionError
from harness.clients.progress import ClientProgress
from harness.clients.transactor import Ended, Transactor
from harness.evidence.changelog_record import key_bytes, payload_of
from harness.evidence.history import HistoryWriter, Position
from harness.evidence.record import ABORT, COMMIT, NONE, LaneEncoder, Origin


class Outputs(Protocol):
    """Interface for writing outputs and positions, with or without transactions."""

    txn: int

    def settle(self) -> None:
        """Make sure that the last transaction is decided: committed or aborted."""
        ...

    def begin(self) -> None:
        """Begin a set of outputs that are committed or aborted together."""
        ...

    def next_of(self, lane: int) -> int:
        """Return the sequence of the next record of a lane."""
        ...

    def send(self, lane: int, values: list[bytes]) -> None:
        """Produce output records with these values in a lane."""
        ...

    def serve(self, seconds: float) -> None:
        """Wait up to this time and serve the library's callbacks."""
        ...

    def idle(self) -> None:
        """Serve callbacks while no transaction is open. Otherwise statistics would accumulate in memory."""
        ...

    def send_offsets(self, group: str, positions: list[Position], metadata: object) -> None:
        """Add the group's positions after the processed inputs; `commit` makes them effective."""
        ...

    def commit(self) -> Ended:
        """Commit the outputs and positions; return the result: committed, aborted or unknown."""
        ...

    def abort(self) -> Ended:
        """Discard the outputs and positions; return the result as `commit` does."""
        ...

    def close(self) -> None: ...


class NonTransactionalOutputs:
    """Writer of outputs without transactions, for a negative control.

    It commits the positions of the inputs after the outputs.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        source: GroupConsumer,
        history: HistoryWriter,
        progress: ClientProgress,
        stop: Deadline,
    ) -> None:
        self._producer = BurstProducer(spec, spec.sink, history, progress, idempotence=True)
        self._source = source
        self._progress = progress
        self._stop = stop
        self._positions: list[Position] = []
        self.txn = 0
        self.next_of = self._producer.next_of
        self.send = self._producer.send
        self.serve = self._producer.serve

    def settle(self) -> None:
        """Do nothing: without transactions, there is no undecided transaction."""

    def idle(self) -> None:
        """Serve the library's callbacks."""
        self.serve(0.0)

    def begin(self) -> None:
        """Start a new set of outputs: drop the input positions of the previous set."""
        self._positions = []

    def send_offsets(self, group: str, positions: list[Position], metadata: object) -> None:  # noqa: ARG002
        """Keep the positions until the outputs are delivered."""
        self._positions = positions

    def commit(self) -> Ended:
        """Wait for the delivery of the outputs, then commit the positions of their inputs."""
        self.abort()
        if self._positions and self._source.commit(self._positions):
            self._progress.committed += 1
            return Ended.COMMITTED
        self._progress.unknown += 1
        return Ended.UNKNOWN

    def abort(self) -> Ended:
        """Wait for the delivery of the outputs, which stay in the log: no transaction can discard them."""
        self._producer.flush(self._stop.limit(END_LIMIT_S))
        self._producer.complete(final=True)
        return Ended.ABORTED

    def close(self) -> None:
        """Wait for the records in flight."""
        self.abort()


def output_of(
    record: Given, encoder: LaneEncoder, seq: int, txn: tuple[int, str], *, processor: int, part: int = 0
) -> bytes:
    """Return the value of the output record for an input record.

    The value contains the identity of the output, the identity of the input, and the checksum of the input's
    value. `txn` is a pair: the number of the transaction and its intended outcome.
    """
    assert record.identity is not None
    identity = record.identity
    origin = Origin(identity.producer, identity.lane, identity.seq, part, processor)
    return encoder.output(seq, *txn, origin) + b"%08x" % zlib.crc32(record.value)


class PipelineClient:
    """A worker that writes the outputs and positions of inputs in one transaction, and then ends it.

    The end of the transaction is a commit or an abort.
    """

    def __init__(
        self, spec: PipelineSpec, history: HistoryWriter, progress: ClientProgress, stop: Deadline
    ) -> None:
        self._spec = spec
        self._stop = stop
        self._draw = random.Random(spec.seed)
        self._source = GroupConsumer(spec, history, progress, stop)
        self._encoders = [
            LaneEncoder(spec.run, spec.number, lane, b"x" * spec.payload) for lane in range(spec.partitions)
        ]
        self._outputs: Outputs = (
            NonTransactionalOutputs(spec, self._source, history, progress, stop)
            if spec.transactional_id is None
            else Transactor(spec, history, progress, stop)
        )
        self._totals = Changelog(spec, history, progress, stop) if spec.changelog else None
        self._positions: dict[PartitionId, int] = {}

    def run(self) -> None:
        """Work until the time is over or a fatal error occurs."""
        self._outputs.settle()
        self._source.open()
        try:
            while not self._stop:
                self._batch()
        finally:
            self._source.close()
        self._outputs.close()

    def _batch(self) -> None:
        size = self._draw.randint(*self._spec.records)
        commits = self._draw.random() >= self._spec.abort_share
        self._positions = {}
        try:
            gathered = self._gather(size, COMMIT if commits else ABORT)
            if not gathered and not self._source.disturbed:
                self._outputs.idle()
                return
            ended = self._end(commits=commits) if gathered else Ended.ABORTED
        except BrokenTransactionError as broken:
            assert isinstance(self._outputs, Transactor)
            ended = self._outputs.give_up(broken.error)
        if ended is not Ended.COMMITTED:
            if self._totals is not None:
                self._totals.forget()
            # Wait until the transaction is decided. Only then is the group's committed position certain, and
            # the consumer returns to that position.
            self._outputs.settle()
            self._source.rewind()

    def _gather(self, size: int, outcome: str) -> int:
        """Read input and produce its outputs, until the transaction is full or no input arrives."""
        gathered = 0
        until = 0.0
        while gathered < size and not self._source.disturbed:
            left = until - time.monotonic() if gathered else self._spec.linger
            if gathered and (left <= 0 or self._stop):
                break
            records = self._source.take(size - gathered, max(0.0, left))
            if not records:
                if not gathered:
                    break
                continue
            if self._totals is not None and not self._totals.restore({r.partition for r in records}):
                # The aggregates cannot be restored at the moment; the worker reads the same input again
                # later.
                self._source.disturbed = True
                break
            if not gathered:
                self._outputs.begin()
                until = time.monotonic() + self._spec.linger
            gathered += len(records)
            self._transform(records, outcome if self._spec.transactional_id else NONE)
        return gathered

    def _transform(self, records: list[Given], outcome: str) -> None:
        spec, outputs = self._spec, self._outputs
        lanes: dict[int, list[bytes]] = defaultdict(list)
        for record in records:
            self._positions[record.topic, record.partition] = record.offset + 1
            if record.identity is None:
                continue  # foreign record: skipped, no output expected
            for part in range(spec.outputs):
                lane = (record.identity.seq + part) % spec.partitions
                seq = outputs.next_of(lane) + len(lanes[lane])
                txn = (outputs.txn, outcome)
                lanes[lane].append(
                    output_of(record, self._encoders[lane], seq, txn, processor=spec.number, part=part)
                )
            if self._totals is not None:
                self._totals.add(record.partition, record.identity.seq)
        for lane, values in lanes.items():
            outputs.send(lane, values)

    def _send_totals(self, totals: Changelog, outcome: str) -> None:
        """Write the aggregates that the transaction's inputs have changed."""
        assert isinstance(self._outputs, Transactor)
        for partition, changed in totals.take_changes():
            lane = self._spec.partitions + partition
            encoder = LaneEncoder(self._spec.run, self._spec.number, lane)
            first = self._outputs.next_of(lane)
            identities = encoder.batch(first, len(changed), self._outputs.txn, outcome)
            values = [i + payload_of(*change) for i, change in zip(identities, changed, strict=True)]
            self._outputs.send(lane, values, [key_bytes(key) for key, _ in changed])

    def _end(self, *, commits: bool) -> Ended:
        outputs = self._outputs
        if self._source.disturbed:
            return outputs.abort()
        if self._totals is not None:
            self._send_totals(self._totals, COMMIT if commits else ABORT)
        positions = [(*place, offset) for place, offset in sorted(self._positions.items())]
        if self._spec.positions == "apart" and commits:
            return self._end_apart(positions)
        self._work()
        outputs.send_offsets(self._spec.group, positions, self._source.metadata)
        return outputs.commit() if commits else outputs.abort()

    def _end_apart(self, positions: list[Position]) -> Ended:
        """Commit the transaction first, then the positions outside of it. This is a negative control."""
        ended = self._outputs.commit()
        if ended is Ended.COMMITTED:
            self._work()
            self._source.commit(positions)
        return ended

    def _work(self) -> None:
        done = time.monotonic() + self._spec.work
        while (left := done - time.monotonic()) > 0 and not self._stop:
            self._outputs.serve(left)
