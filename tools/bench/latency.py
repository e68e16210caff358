"""Benchmark of the delay that open transactions add for a read_committed reader.

An idempotent producer writes a numbered record every few milliseconds, outside of transactions. A second
producer keeps one transaction after the other open on the same partition, each for a given time. Two readers
read the records, one with read_committed and one with read_uncommitted. The result is the additional delay of
the read_committed reader, for the records that were written while a transaction was open.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from harness.base.waits import wait_until
from harness.clients.client_settings import PRODUCER, settings, transaction_settings
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.report.text_format import format_table
from tools.bench.figure import Part
from tools.bench.interleaved_runs import Length, Spread

OPEN_MS: Final = (0, 10, 100, 1000)
"""Durations for which each transaction stays open, in milliseconds. With 0, there are no transactions."""
EVERY_S: Final = 0.005
LIMIT_S: Final = 30.0
FEWEST_TRANSACTIONS: Final = 3
"""Minimum number of transactions per run."""


class Delays(NamedTuple):
    """Delays of the records in one run, and the duration of the longest transaction, all in milliseconds.

    `plain` has the delays of the read_uncommitted reader. `added` has the additional delays of the
    read_committed reader.
    """

    added: list[float]
    plain: list[float]
    longest: float


def measure(cluster: Cluster, length: Length, rounds: int) -> Iterator[Part]:
    """Measure each value of OPEN_MS in interleaved runs; yield one part with a line per value."""
    topic = f"bench-{time.time_ns():x}"
    cluster.create_topic(topic, 1)
    delays: dict[int, list[Delays]] = {ms: [] for ms in OPEN_MS}
    with ExitStack() as stack:
        stack.callback(lambda: cluster.delete_topics([topic]))
        bench = stack.enter_context(_Bench(cluster.bootstrap(BrokerListener.DIRECT), topic))
        bench.run(0, length.seconds / 2)  # this run is the warm-up
        for number in range(rounds):
            for i in range(len(OPEN_MS)):
                ms = OPEN_MS[(number + i) % len(OPEN_MS)]
                delays[ms].append(bench.run(ms, max(length.seconds, FEWEST_TRANSACTIONS * ms / 1000)))
    head = "delay added by read_committed for records written while a transaction is open on their partition:"
    yield Part([head, *format_table([_row(ms, runs) for ms, runs in delays.items()])])


def _row(ms: int, runs: list[Delays]) -> tuple[str, ...]:
    spread = Spread.over([statistics.median(run.added) for run in runs])
    plain = statistics.median(statistics.median(run.plain) for run in runs)
    longest = max(run.longest for run in runs)
    name = f"{ms} ms each, at most {longest:.0f} ms" if ms else "none open"
    delay = f"{spread.median:.1f} ms ({spread.low:.1f} to {spread.high:.1f})"
    most = max(max(run.added) for run in runs)
    doubt = spread.doubt if ms else ""
    return f"  {name}", delay, f"at most {most:.0f} ms", f"read_uncommitted: {plain:.1f} ms", doubt


class _Bench:
    """A producer and two readers that stay connected, so that no run includes the time of their start."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._sent: list[float] = []
        self._readers = [_Reader(bootstrap, topic, name) for name in ("read_committed", "read_uncommitted")]
        config: dict[str, Any] = {**settings(PRODUCER, linger_ms=0), "bootstrap.servers": bootstrap}
        self._producer = Producer(config)
        config = {**transaction_settings(topic, int(LIMIT_S * 1000), {}), "bootstrap.servers": bootstrap}
        self._holder = Producer(config)
        self._holder.init_transactions(LIMIT_S)

    def __enter__(self) -> _Bench:
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        for reader in self._readers:
            reader.over.set()
        for reader in self._readers:
            reader.join(LIMIT_S)
        self._producer.close()
        self._holder.close()

    def run(self, open_ms: int, seconds: float) -> Delays:
        """Send records for some seconds, while transactions stay open for `open_ms` milliseconds each."""
        first, over = len(self._sent), threading.Event()
        spans: list[tuple[float, float]] = []
        holder = threading.Thread(target=self._hold, args=(open_ms / 1000, over, spans), daemon=True)
        if open_ms:
            holder.start()
        end = time.perf_counter() + seconds
        while (now := time.perf_counter()) < end:
            self._sent.append(now)
            self._producer.produce(self._topic, str(len(self._sent) - 1).encode(), partition=0)
            self._producer.poll(EVERY_S)
            over.wait(max(0.0, now + EVERY_S - time.perf_counter()))
        over.set()
        if open_ms:
            holder.join(LIMIT_S)
        if left := self._producer.flush(LIMIT_S):
            raise TimeoutError(f"{left} records were not acknowledged in {LIMIT_S:g} s")
        committed, plain = (reader.wait(len(self._sent)) for reader in self._readers)
        numbers = range(first, len(self._sent))
        behind = [n for n in numbers if any(begin <= self._sent[n] <= end for begin, end in spans)]
        return Delays(
            [(committed[n] - plain[n]) * 1000 for n in (behind if open_ms else numbers)],
            [(plain[n] - self._sent[n]) * 1000 for n in numbers],
            max((end - begin for begin, end in spans), default=0.0) * 1000,
        )

    def _hold(self, seconds: float, over: threading.Event, spans: list[tuple[float, float]]) -> None:
        """Keep one transaction after the other open, and add the begin and end of each to `spans`."""
        while not over.is_set():
            self._holder.begin_transaction()
            self._holder.produce(self._topic, b"", partition=0)
            self._holder.flush(LIMIT_S)
            opened = time.perf_counter()  # measured after produce, which may wait for the previous commit
            over.wait(seconds)
            self._holder.commit_transaction(LIMIT_S)
            spans.append((opened, time.perf_counter()))


class _Reader(threading.Thread):
    """Thread that reads the topic and records when it received each record."""

    def __init__(self, bootstrap: str, topic: str, isolation: str) -> None:
        super().__init__(daemon=True, name=isolation)
        self.over = threading.Event()
        self._received: dict[int, float] = {}
        # All other settings have their default values, as in an application.
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"{topic}-{isolation}",
                "isolation.level": isolation,
                "enable.auto.commit": False,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])

    def run(self) -> None:
        while not self.over.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None and (value := message.value()):
                self._received[int(value)] = time.perf_counter()
        self._consumer.close()

    def wait(self, records: int) -> dict[int, float]:
        """Wait until a number of records were received; return the time at which each was received."""
        wait_until(lambda: len(self._received) >= records, LIMIT_S, f"{self.name} to read {records} records")
        return self._received
