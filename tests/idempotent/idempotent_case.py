"""The clients of one test of the idempotent producer, on one topic."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from harness.base.addresses import Address
from harness.clients.client_process import ClientProcess
from harness.clients.client_spec import IdempotentSpec
from harness.clients.scripted.idempotent_producer import IdempotentProducer
from harness.clients.scripted.scripted_clients import ScriptedClients
from harness.cluster.cluster import Cluster
from harness.cluster.layout import HOST
from harness.evidence.checkers.model import Evidence, Expect
from harness.evidence.checkers.verdict import Judgement, judge
from harness.evidence.history import history_files
from harness.evidence.ledger import fold
from harness.kafka.log.batches import Batch
from harness.kafka.raw_produce import ProduceResult, encode_batch, produce
from harness.walkthroughs.broker_evidence import leader_log
from harness.witness.plain_consumer import freeze, observe_topics
from harness.witness.raw_log import observe_raw

RUN = "idem0001"
_numbers = itertools.count(1)


class IdempotentCase:
    """Producers in this process and in separate processes, and the check of all their records."""

    def __init__(self, cluster: Cluster, topic: str, folder: Path) -> None:
        self.cluster = cluster
        self.topic = topic
        self.folder = folder
        self.histories = folder / "history"
        self.histories.mkdir()
        self.partitions = len(cluster.admin.metadata([topic]).partitions)
        self._scripted = ScriptedClients(RUN, cluster.bootstrap("TAPPED"), self.histories)
        self._processes: list[ClientProcess] = []

    def producer(
        self, number: int = 1, *, idempotence: bool = True, listener: str = "TAPPED", **settings: Any
    ) -> IdempotentProducer:
        """Return a producer in this process. Producers with the same `number` send identical records."""
        return self._scripted.idempotent(
            f"a{next(_numbers)}",
            self.topic,
            self.partitions,
            number=number,
            bootstrap=self.cluster.bootstrap(listener),
            idempotence=idempotence,
            settings=settings,
        )

    def process(self, number: int = 1, *, listener: str = "PROXIED", **fields: Any) -> ClientProcess:
        """Start a producer in a process of its own, which can be frozen and killed."""
        spec = self._scripted.spec(
            IdempotentSpec,
            f"c{next(_numbers)}",
            number=number,
            bootstrap=self.cluster.bootstrap(listener),
            topic=self.topic,
            partitions=self.partitions,
            **fields,
        )
        process = ClientProcess(spec, self.folder / spec.client)
        self._processes.append(process)
        process.start()
        return process

    def log(self, partition: int = 0) -> list[Batch]:
        """Return the log of a partition, read from its leader."""
        return leader_log(self.cluster, (self.topic, partition))

    def judge(self) -> Judgement:
        """Close the producers in this process; check the topic with a consumer and the raw log."""
        self._scripted.close()
        bootstrap = self.cluster.bootstrap("DIRECT")
        windows = freeze(bootstrap, [self.topic])
        observations = [
            observe_topics(bootstrap, [self.topic], RUN),
            observe_raw([(w, self.log(w.partition)) for w in windows], RUN),
        ]
        expect = Expect(hold_to="exactly_once")
        return judge(Evidence(fold(history_files(self.histories)), observations, expect))

    def end(self) -> None:
        """Kill the processes and close the producers."""
        for process in self._processes:
            process.kill()
        self._scripted.close()


class RawProducer:
    """Sender of hand-made batches to the leader of one partition, with any producer id."""

    def __init__(self, cluster: Cluster, topic: str, partition: int = 0) -> None:
        self.cluster = cluster
        self.place = (topic, partition)

    @property
    def leader(self) -> Address:
        """The current leader's address."""
        return HOST, self.cluster.ports.direct(self.cluster.leader_of(*self.place))

    def send(
        self, producer_id: int, epoch: int, sequence: int, count: int = 1, value: bytes = b"v"
    ) -> ProduceResult:
        """Send a batch of `count` records with this base sequence."""
        return produce(self.leader, self.place, encode_batch(producer_id, epoch, sequence, [value] * count))

    def end(self) -> int:
        """Return the high watermark; a refused batch must not move it."""
        return self.cluster.end_offsets(self.place[0])[self.place[1]].high_watermark

    def log(self) -> list[Batch]:
        """Return the partition's log, read from its leader."""
        return leader_log(self.cluster, self.place)
