"""The clients and topics of one test, and the check of their histories against the topics."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from harness.base.waits import wait_until
from harness.clients.client_process import ClientProcess
from harness.clients.client_spec import BaseSpec, PipelineSpec, TransactionalSpec
from harness.cluster.cluster import Cluster
from harness.evidence.checkers.consumer_reads import observation_of, reads_of
from harness.evidence.checkers.model import Evidence, Example, Expect
from harness.evidence.checkers.verdict import Judgement, judge
from harness.evidence.history import HistoryFile, HistoryWriter, Info, Invoke, Ok, history_files
from harness.evidence.ledger import fold
from harness.evidence.observation import Observation
from harness.kafka.log.batches import Batch
from harness.witness.plain_consumer import group_positions, observe_topics, observe_totals

RUN = "workload"
_numbers = itertools.count(1)
Spec = TypeVar("Spec", bound=BaseSpec)


class ClientCase:
    """The client processes and topics of one test. `end` kills the processes and deletes the topics."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.name = f"w{next(_numbers)}"
        self.clients: list[ClientProcess] = []
        self.topics: list[str] = []
        (folder / "history").mkdir()

    def topic(self, name: str, placement: list[list[int]] | int = 3, **settings: str) -> str:
        full = f"{self.name}-{name}"
        dotted = {key.replace("_", "."): value for key, value in settings.items()}
        self.cluster.create_topic(full, placement, dotted)
        self.topics.append(full)
        return full

    def start(self, kind: type[Spec], **fields: object) -> ClientProcess:
        number = len(self.clients) + 1
        name = f"{self.name}-c{number}"
        common: dict[str, Any] = {
            "run": RUN,
            "client": name,
            "number": number,
            "bootstrap": self.cluster.bootstrap(),
            "history": str(self.folder / "history" / f"{name}.jsonl"),
            "seconds": 120.0,
        }
        client = ClientProcess(kind(**(common | fields)), self.folder / name)
        self.clients.append(client)
        client.start()
        return client

    def transactional(self, topic: str, **fields: object) -> ClientProcess:
        defaults: dict[str, object] = {
            "topic": topic,
            "partitions": 3,
            "transactional_id": f"{self.name}-x",
            "rate": 400,
            "records": (10, 50),
            "abort_share": 0.2,
            "seed": 7,
        }
        return self.start(TransactionalSpec, **(defaults | fields))

    def pipeline(self, source: str, sink: str, **fields: object) -> ClientProcess:
        number = len(self.clients) + 1
        defaults: dict[str, object] = {
            "source": source,
            "group": f"{self.name}-g",
            "sink": sink,
            "partitions": 3,
            "transactional_id": f"{self.name}-p{number}",
            "records": (10, 50),
            "abort_share": 0.2,
            "seed": number,
        }
        return self.start(PipelineSpec, **(defaults | fields))

    def wait_committed(self, client: ClientProcess, more_than: int = 0, limit: float = 60) -> None:
        """Wait until a client has committed more than `more_than` transactions."""
        what = f"{client.spec.client} to commit more than {more_than} transactions"
        wait_until(lambda: client.progress().committed > more_than, limit, what)

    def wait_caught_up(self, source: str, group: str) -> None:
        """Wait until the group's committed offsets are past the last record of every input partition.

        A marker after the last record also has an offset, but the group need not commit past it.
        """
        bootstrap = self.cluster.bootstrap("DIRECT")
        last = observe_topics(bootstrap, [source], RUN)
        assert last.runs is not None
        ends: dict[int, int] = {}
        for partition, offset, _, _, _, count in last.runs.tolist():
            ends[partition] = max(ends.get(partition, 0), offset + count)
        windows = {(w.topic, w.partition): ends.get(i, 0) for i, w in enumerate(last.meta.windows)}

        def caught_up() -> bool:
            positions = group_positions(bootstrap, group)
            return all(positions.get(place, 0) >= end for place, end in windows.items())

        wait_until(caught_up, 60, f"group {group} to have processed {source}", every=0.5)

    def wait_at_rest(self) -> None:
        """Wait until all markers are written: a client may receive the answer to its commit earlier."""

        def stable() -> bool:
            ends = [end for topic in self.topics for end in self.cluster.end_offsets(topic).values()]
            return all(end.last_stable == end.high_watermark for end in ends)

        wait_until(stable, 30, f"every transaction in {', '.join(self.topics)} to end")

    def judge(
        self, *topics: str, expect: Expect | None = None, beside: Sequence[Observation] = ()
    ) -> Judgement:
        """Read the topics back and check them against the clients' histories."""
        self.wait_at_rest()
        bootstrap = self.cluster.bootstrap("DIRECT")
        observations = [observe_topics(bootstrap, topics or self.topics, RUN), *beside]
        expect = expect or Expect()
        if (pipeline := expect.pipeline) is not None:
            positions = group_positions(bootstrap, pipeline.group)
            name = f"observer-{next(_numbers)}"
            path = self.folder / "history" / f"{name}.jsonl"
            with HistoryWriter(path, run=RUN, client=name, role="observer") as history:
                rows = [(topic, partition, offset) for (topic, partition), offset in positions.items()]
                history.sample(group=pipeline.group, positions=rows)
            observations.append(
                observe_topics(
                    bootstrap, pipeline.inputs, RUN, witness="consumed", ends=positions, group=pipeline.group
                )
            )
            if pipeline.changelog:
                observations.append(observe_totals(bootstrap, pipeline.changelog, RUN))
        ledger = fold(history_files(self.folder / "history"))
        observations += [observation_of(reads) for reads in reads_of(ledger)]
        return judge(Evidence(ledger, observations, expect))

    def end(self) -> None:
        for client in self.clients:
            client.kill()
        self.cluster.delete_topics(self.topics)


def operations(client: ClientProcess, f: str) -> list[Invoke | Ok | Info]:
    """Return the lines of a client's history for the operation named `f`."""
    path = Path(client.spec.history)
    lines = [line for _, line in HistoryFile(path).read()] if path.exists() else []
    return [line for line in lines if isinstance(line, Invoke | Ok | Info) and line.f == f]


def text(judgement: Judgement) -> str:
    """Return the judgement as text, for a failed assertion."""
    return judgement.encode().decode()


def examples_of(judged: Judgement, anomaly: str) -> list[str]:
    """Return the text of each example of an anomaly."""
    examples: list[Example] = [
        e for r in judged.results for a in r.anomalies if a.name == anomaly for e in a.examples
    ]
    return [example.what for example in examples]


def values_of(log: list[Batch]) -> list[bytes | None]:
    """Return the values of a log's records, in order."""
    return [value for batch in log for _, value in batch.values]
