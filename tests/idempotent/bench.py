"""Producers that act when they are told, client processes beside them, and the verdict on all of them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from harness.base.addresses import Address
from harness.clients.client_process import ClientProcess
from harness.clients.client_spec import IdempotentSpec
from harness.clients.scripted.idempotent_actor import Actor
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
_names = itertools.count(1)


class Bench:
    """One case's producers on one topic."""

    def __init__(self, cluster: Cluster, topic: str, folder: Path) -> None:
        self.cluster = cluster
        self.topic = topic
        self.folder = folder
        self.histories = folder / "history"
        self.histories.mkdir()
        self.partitions = len(cluster.admin.metadata([topic]).partitions)
        self._actors: list[Actor] = []
        self._clients: list[ClientProcess] = []

    def actor(
        self, number: int = 1, *, idempotence: bool = True, listener: str = "TAPPED", **settings: Any
    ) -> Actor:
        """A producer in this process; the same number means the same records."""
        made = Actor(
            run=RUN,
            name=f"a{next(_names)}",
            number=number,
            bootstrap=self.cluster.bootstrap(listener),
            topic=self.topic,
            partitions=self.partitions,
            histories=self.histories,
            idempotence=idempotence,
            settings={key.replace("_", "."): value for key, value in settings.items()},
        )
        self._actors.append(made)
        return made

    def client(self, number: int = 1, *, listener: str = "PROXIED", **fields: Any) -> ClientProcess:
        """A producer in a process of its own, which can be frozen and killed."""
        name = f"c{next(_names)}"
        spec = IdempotentSpec(
            run=RUN,
            client=name,
            number=number,
            bootstrap=self.cluster.bootstrap(listener),
            history=str(self.histories / f"{name}.jsonl"),
            seconds=120.0,
            topic=self.topic,
            partitions=self.partitions,
            **fields,
        )
        made = ClientProcess(spec, self.folder / name)
        self._clients.append(made)
        made.start()
        return made

    def log(self, partition: int = 0) -> list[Batch]:
        """What the leader has."""
        return leader_log(self.cluster, (self.topic, partition))

    def judge(self) -> Judgement:
        """Hold everything that was done to exactly-once, as two witnesses see it."""
        for actor in self._actors:
            actor.close()
        self._actors.clear()
        bootstrap = self.cluster.bootstrap("DIRECT")
        windows = freeze(bootstrap, [self.topic])
        observations = [
            observe_topics(bootstrap, [self.topic], RUN),
            observe_raw([(w, self.log(w.partition)) for w in windows], RUN),
        ]
        expect = Expect(hold_to="exactly_once")
        return judge(Evidence(fold(history_files(self.histories)), observations, expect))

    def end(self) -> None:
        """End what still runs."""
        for client in self._clients:
            client.kill()
        for actor in self._actors:
            actor.close()


class Raw:
    """Raw requests to the leader of one partition, with a producer id of choice."""

    def __init__(self, cluster: Cluster, topic: str, partition: int = 0) -> None:
        self.cluster = cluster
        self.place = (topic, partition)

    @property
    def leader(self) -> Address:
        """Where the leader answers now."""
        return HOST, self.cluster.ports.direct(self.cluster.leader_of(*self.place))

    def send(
        self, producer_id: int, epoch: int, sequence: int, count: int = 1, value: bytes = b"v"
    ) -> ProduceResult:
        """Send a batch of `count` records from this sequence on."""
        return produce(self.leader, self.place, encode_batch(producer_id, epoch, sequence, [value] * count))

    def end(self) -> int:
        """The high watermark: what a refused batch must not move."""
        return self.cluster.end_offsets(self.place[0])[self.place[1]].high_watermark

    def log(self) -> list[Batch]:
        """What the leader has."""
        return leader_log(self.cluster, self.place)
