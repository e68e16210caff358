"""The clients of one test of transactions: scripted producers, hand-made requests, readers, and a check."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Message

from harness.base.partition_id import PartitionId
from harness.base.waits import wait_until
from harness.clients import fencing_check
from harness.clients.client_process import ClientProcess
from harness.clients.client_settings import CONSUMER, settings
from harness.clients.scripted.producer_process import ProducerProcess
from harness.clients.scripted.scripted_clients import ScriptedClients
from harness.clients.scripted.transactional_producer import TransactionalProducer
from harness.cluster.cluster import Cluster
from harness.cluster.layout import HOST
from harness.evidence.checkers.model import Expect
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.history import HistoryWriter
from harness.evidence.observation import Observation, Window
from harness.kafka import transactions as by_hand
from harness.kafka.errors import KafkaAnswerError, error_name
from harness.kafka.hanging_transactions import BlockingTransaction, find_blocking
from harness.kafka.log.batches import Batch
from harness.kafka.raw_produce import ProduceResult, encode_batch, produce
from harness.kafka.read_to_end import read_to_end
from harness.tap.frame_lines import Frame, Line
from harness.witness.plain_consumer import freeze_windows
from harness.witness.raw_log import fetch_logs, observe_raw
from tests.client_case import RUN, ClientCase, Spec

NOT_YET = (
    "COORDINATOR_LOAD_IN_PROGRESS",
    "CONCURRENT_TRANSACTIONS",
    "NOT_COORDINATOR",
    "COORDINATOR_NOT_AVAILABLE",
)
"""Errors after which InitProducerId must be sent again. The coordinator, the producer id or the markers of
the last transaction are not ready yet.
"""
UNKNOWN_ID = 105
FIRST_SCRIPTED = 101
"""Number of the first scripted producer. Client processes of a case are numbered from 1."""
_observers = itertools.count(1)


class TransactionalCase(ClientCase):
    """The clients and topics of one test of transactions, with the check of all their records."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        super().__init__(cluster, folder)
        self.transactional_id = f"{self.name}-x"
        self._scripted = ScriptedClients(RUN, cluster.bootstrap("TAPPED"), folder / "history", FIRST_SCRIPTED)
        self._names = itertools.count(FIRST_SCRIPTED)
        self._ids: set[str] = set()

    def start(self, kind: type[Spec], **fields: object) -> ClientProcess:
        client = super().start(kind, **fields)
        if ident := getattr(client.spec, "transactional_id", None):
            self._ids.add(ident)
        return client

    def producer(self, topic: str, transactional_id: str = "", **fields: Any) -> TransactionalProducer:
        """Return a producer that runs in this process."""
        name, fields = self._prepare(topic, transactional_id, fields)
        return self._scripted.transactional(name, topic, **fields)

    def process(self, topic: str, transactional_id: str = "", **fields: Any) -> ProducerProcess:
        """Return a producer that runs in a process of its own, which can be frozen."""
        name, fields = self._prepare(topic, transactional_id, fields)
        return self._scripted.transactional_process(name, topic, folder=self.folder, **fields)

    def _prepare(
        self, topic: str, transactional_id: str, fields: dict[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        ident = transactional_id or self.transactional_id
        if "bootstrap" not in fields:
            self._ids.add(ident)
        partitions = fields.get("partitions") or len(self.cluster.admin.metadata([topic]).partitions)
        defaults = {"transactional_id": ident, "transaction_timeout_ms": 20_000, "seconds": 120.0}
        return f"{self.name}-t{next(self._names)}", defaults | fields | {"partitions": partitions}

    def describe(self, transactional_id: str = "") -> fencing_check.Known:
        """Return state, producer id and epoch of a transactional id, as its coordinator reports them."""
        return fencing_check.ask(self.cluster.bootstrap("DIRECT"), transactional_id or self.transactional_id)

    def init_by_hand(self, transactional_id: str = "", timeout_ms: int = 10_000) -> by_hand.ProducerIdentity:
        """Send InitProducerId by hand until it succeeds; return transactional id, producer id and epoch."""
        name = transactional_id or self.transactional_id

        def identity() -> list[by_hand.ProducerIdentity]:
            answer = by_hand.initialise(self.cluster.admin, name, timeout_ms)
            assert error_name(answer.code) in ("NONE", *NOT_YET), error_name(answer.code)
            return [by_hand.ProducerIdentity(name, *answer[1:])] if answer.code == 0 else []

        identities = wait_until(identity, 20, f"{name} to be initialised")
        return identities[0]

    def wait_ended(self, *transactional_ids: str) -> None:
        """Wait until every ended transaction has all its markers. The ack of a commit does not prove this."""
        for name in transactional_ids or sorted(self._ids):
            wait_until(partial(self._has_markers, name), 20, f"the markers of {name} to be written")

    def _has_markers(self, transactional_id: str) -> bool:
        try:
            return not self.describe(transactional_id).state.startswith("Prepare")
        except KafkaAnswerError as error:
            if error.code == UNKNOWN_ID:  # init was refused, so the id has no transaction
                return True
            raise

    def produce_by_hand(
        self,
        who: by_hand.ProducerIdentity,
        place: PartitionId,
        sequence: int = 0,
        values: Sequence[bytes] = (b"by hand",),
    ) -> ProduceResult:
        """Send a hand-made transactional batch without adding its partition to the transaction."""
        batch = encode_batch(who.producer_id, who.epoch, sequence, values, transactional=True)
        leader = self.cluster.leader_of(*place)
        return produce(
            (HOST, self.cluster.ports.direct(leader)), place, batch, transactional_id=who.transactional_id
        )

    def wait_at_rest(self) -> None:
        """Wait until ended transactions have their markers. Do not wait for open transactions to end.

        A test may leave transactions open or hanging on purpose.
        """
        self.wait_ended()

    def open_transactions(self, *topics: str) -> list[BlockingTransaction]:
        """Return the open transactions in the given topics; without an argument, in the case's topics."""
        return find_blocking(self.cluster.admin, topics or self.topics)

    def logs(self, *topics: str) -> list[tuple[Window, list[Batch]]]:
        """Return the leaders' logs by partition; wait until every partition has a leader."""
        return wait_until(lambda: self._logs(*topics), 20, "the leaders' logs")

    def _logs(self, *topics: str) -> list[tuple[Window, list[Batch]]]:
        admin = self.cluster.admin
        return list(fetch_logs(admin, freeze_windows(admin, topics or self.topics)))

    def log(self, topic: str, partition: int = 0) -> list[Batch]:
        """Return the leader's log of one partition."""
        return self.logs(topic)[partition][1]

    def read(self, topic: str, isolation: str = "read_committed") -> dict[int, list[bytes]]:
        """Return the values that a consumer reads from each partition, up to its end."""
        positions = {(topic, p.partition): 0 for p in self.cluster.admin.metadata([topic]).partitions}
        values: dict[int, list[bytes]] = {partition: [] for _, partition in positions}
        config = {
            **settings(CONSUMER),
            "bootstrap.servers": self.cluster.bootstrap("DIRECT"),
            "group.id": "eos-reader",
            "isolation.level": isolation,
        }

        def keep(place: PartitionId, message: Message) -> None:
            values[place[1]].append(bytes(message.value() or b""))

        unread = read_to_end(config, positions, keep, time.monotonic() + 30)
        assert not unread, f"{topic} was not read to its end: {unread}"
        return values

    def observe_ends(self, seconds: float = 0.0) -> None:
        """Record the end offsets of every partition repeatedly, as a run's observer does."""
        name = f"{self.name}-w{next(_observers)}"
        path = self.folder / "history" / f"{name}.jsonl"
        until = time.monotonic() + seconds
        with HistoryWriter(path, run=RUN, client=name, role="observer") as history:

            def over() -> bool:
                for topic in self.topics:
                    ends = self.cluster.end_offsets(topic)
                    history.sample(
                        [(topic, p, 0, end.last_stable, end.high_watermark) for p, end in ends.items()]
                    )
                return time.monotonic() >= until

            wait_until(over, seconds + 30, "the observer's last sample", every=0.5)

    def judge(
        self, *topics: str, expect: Expect | None = None, beside: Sequence[Observation] = ()
    ) -> Judgement:
        """Close the producers, and check everything with the raw log as an additional witness."""
        self._scripted.close()
        self.wait_at_rest()
        raw_log = observe_raw(self.logs(*topics), RUN)
        return super().judge(*topics, expect=expect, beside=[raw_log, *beside])

    def end(self) -> None:
        self._scripted.close()
        super().end()


def markers(log: Sequence[Batch]) -> list[int]:
    """Return a number for each marker of a log, in order: 1 for a commit, 0 for an abort."""
    return [batch.control for batch in log if batch.control is not None]


def refusals(log: Sequence[Line], client: str) -> list[tuple[str, str]]:
    """Return (request, error) of every error response to a client, in order, without consecutive repeats."""
    errors = [
        (line.api, error)
        for line in log
        if isinstance(line, Frame) and line.side == "response" and line.client_id == client and line.facts
        for error in line.facts.refusals
    ]
    return [each for each, _ in itertools.groupby(errors)]


def requests(log: Sequence[Line], client: str) -> list[str]:
    """Return the API names of a client's requests, in the order in which they were sent."""
    return [
        line.api
        for line in log
        if isinstance(line, Frame) and line.side == "request" and line.client_id == client
    ]
