"""Producers told step by step, requests by hand, readers of both kinds, and the verdict on all of it."""

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
from harness.clients.client_spec import TransactionalSpec
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
from tests.rig import RUN, Rig, Spec
from tests.transactional.scripted_producer import ScriptedProcess, ScriptedProducer

NOT_YET = (
    "COORDINATOR_LOAD_IN_PROGRESS",
    "CONCURRENT_TRANSACTIONS",
    "NOT_COORDINATOR",
    "COORDINATOR_NOT_AVAILABLE",
)
"""An init that is answered so is to be asked again: ids, markers, or a coordinator are on the way."""
UNKNOWN_ID = 105
_watches = itertools.count(1)


class Bench(Rig):
    """One case's producers, on topics of its own."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        super().__init__(cluster, folder)
        self.transactional_id = f"{self.name}-x"
        self._told: list[ScriptedProducer | ScriptedProcess] = []
        # Processes of the rig count from 1.
        self._producers = itertools.count(101)
        self._ids: set[str] = set()

    def _spec(self, topic: str, transactional_id: str, **fields: Any) -> TransactionalSpec:
        number = next(self._producers)
        name = f"{self.name}-t{number}"
        given: dict[str, Any] = {
            "run": RUN,
            "client": name,
            "number": number,
            "bootstrap": self.cluster.bootstrap("TAPPED"),
            "history": str(self.folder / "history" / f"{name}.jsonl"),
            "seconds": 120.0,
            "topic": topic,
            "partitions": fields.get("partitions") or self._partitions(topic),
            "transactional_id": transactional_id or self.transactional_id,
            "transaction_timeout_ms": 20_000,
        }
        if "bootstrap" not in fields:
            self._ids.add(given["transactional_id"])
        return TransactionalSpec(**(given | fields))

    def start(self, kind: type[Spec], **fields: object) -> ClientProcess:
        client = super().start(kind, **fields)
        if ident := getattr(client.spec, "transactional_id", None):
            self._ids.add(ident)
        return client

    def _partitions(self, topic: str) -> int:
        return len(self.cluster.admin.metadata([topic]).partitions)

    def told(self, topic: str, transactional_id: str = "", **fields: Any) -> ScriptedProducer:
        """A producer in this process."""
        made = ScriptedProducer(self._spec(topic, transactional_id, **fields))
        self._told.append(made)
        return made

    def apart(self, topic: str, transactional_id: str = "", **fields: Any) -> ScriptedProcess:
        """A producer in a process of its own, which can be frozen."""
        spec = self._spec(topic, transactional_id, **fields)
        made = ScriptedProcess(spec, self.folder / spec.client)
        self._told.append(made)
        return made

    def known(self, transactional_id: str = "") -> fencing_check.Known:
        """What the coordinator knows of a transactional id."""
        return fencing_check.ask(self.cluster.bootstrap("DIRECT"), transactional_id or self.transactional_id)

    def take(self, transactional_id: str = "", timeout_ms: int = 10_000) -> by_hand.ProducerIdentity:
        """A transactional id, taken by hand."""
        name = transactional_id or self.transactional_id

        def given() -> by_hand.ProducerIdentity | None:
            answer = by_hand.initialise(self.cluster.admin, name, timeout_ms)
            assert error_name(answer.code) in ("NONE", *NOT_YET), error_name(answer.code)
            return by_hand.ProducerIdentity(name, *answer[1:]) if answer.code == 0 else None

        return wait_until(given, 20, f"{name} to be initialised")

    def ended(self, *transactional_ids: str) -> None:
        """Wait until no end of these ids is still without its markers: a commit is answered before them."""
        for name in transactional_ids or sorted(self._ids):
            wait_until(partial(self._at_rest, name), 20, f"the markers of {name} to be written")

    def _at_rest(self, transactional_id: str) -> bool:
        try:
            return not self.known(transactional_id).state.startswith("Prepare")
        except KafkaAnswerError as error:
            if error.code == UNKNOWN_ID:  # its init was refused
                return True
            raise

    def produce(
        self,
        who: by_hand.ProducerIdentity,
        place: PartitionId,
        sequence: int = 0,
        values: Sequence[bytes] = (b"by hand",),
    ) -> ProduceResult:
        """A transactional batch, by hand; it does not add its partition."""
        batch = encode_batch(who.producer_id, who.epoch, sequence, values, transactional=True)
        leader = self.cluster.leader_of(*place)
        return produce(
            (HOST, self.cluster.ports.direct(leader)), place, batch, transactional_id=who.transactional_id
        )

    def at_rest(self) -> None:
        """What has been ended has its markers; what a case left open, or hanging, stays so."""
        self.ended()

    def open(self, *topics: str) -> list[BlockingTransaction]:
        """The transactions that are open in these topics."""
        return find_blocking(self.cluster.admin, topics or self.topics)

    def logs(self, *topics: str) -> list[tuple[Window, list[Batch]]]:
        """What the leaders have, partition by partition, once all of them lead."""
        return wait_until(lambda: self._logs(*topics), 20, "the leaders to hand out their logs")

    def _logs(self, *topics: str) -> list[tuple[Window, list[Batch]]]:
        admin = self.cluster.admin
        return fetch_logs(admin, freeze_windows(admin, topics or self.topics))

    def log(self, topic: str, partition: int = 0) -> list[Batch]:
        """What the leader has of one partition."""
        return self.logs(topic)[partition][1]

    def read(self, topic: str, isolation: str = "read_committed") -> dict[int, list[bytes]]:
        """What a consumer is handed of each partition, up to where there is no more for it."""
        positions = {(topic, p.partition): 0 for p in self.cluster.admin.metadata([topic]).partitions}
        found: dict[int, list[bytes]] = {partition: [] for _, partition in positions}
        config = {
            **settings(CONSUMER),
            "bootstrap.servers": self.cluster.bootstrap("DIRECT"),
            "group.id": "eos-reader",
            "isolation.level": isolation,
        }

        def take(place: PartitionId, message: Message) -> None:
            found[place[1]].append(bytes(message.value() or b""))

        unread = read_to_end(config, positions, take, time.monotonic() + 30)
        assert not unread, f"{topic} was not read to its end: {unread}"
        return found

    def watch(self, seconds: float = 0.0) -> None:
        """Note where every partition ends, again and again, as the observer of a run does."""
        name = f"{self.name}-w{next(_watches)}"
        path = self.folder / "history" / f"{name}.jsonl"
        until = time.monotonic() + seconds
        with HistoryWriter(path, run=RUN, client=name, role="observer") as history:

            def looked() -> bool:
                for topic in self.topics:
                    ends = self.cluster.end_offsets(topic)
                    history.sample(
                        [(topic, p, 0, end.last_stable, end.high_watermark) for p, end in ends.items()]
                    )
                return time.monotonic() >= until

            wait_until(looked, seconds + 30, "the observer's last look", every=0.5)

    def raw(self, *topics: str) -> Observation:
        """The account of the logs, by their markers."""
        return observe_raw(self.logs(*topics), RUN)

    def judge(
        self, *topics: str, expect: Expect | None = None, beside: Sequence[Observation] = ()
    ) -> Judgement:
        """Hold everything that was done to exactly-once, as two witnesses see it."""
        self.close()
        self.at_rest()
        return super().judge(*topics, expect=expect, beside=[self.raw(*topics), *beside])

    def close(self) -> None:
        """End the producers."""
        for told in self._told:
            told.close()
        self._told.clear()

    def end(self) -> None:
        self.close()
        super().end()


def markers(log: Sequence[Batch]) -> list[int]:
    """The markers of a log, in order: 1 is a commit, 0 an abort."""
    return [batch.control for batch in log if batch.control is not None]


def refusals(log: Sequence[Line], client: str) -> list[tuple[str, str]]:
    """(request, error) of everything that a client was refused, in order, each once in a row."""
    said = [
        (line.api, error)
        for line in log
        if isinstance(line, Frame) and line.side == "response" and line.client_id == client and line.facts
        for error in line.facts.refusals
    ]
    return [each for each, _ in itertools.groupby(said)]


def asked(log: Sequence[Line], client: str) -> list[str]:
    """The requests of a client, in order."""
    return [
        line.api
        for line in log
        if isinstance(line, Frame) and line.side == "request" and line.client_id == client
    ]
