"""Measure the delay of a read_committed reader while a transaction is open before a record.

An idempotent producer writes a numbered record every few milliseconds, outside any transaction. Another
producer keeps one transaction after the other open on the same partition, each for a given time. Two readers
receive the records, and only one of them is read_committed. The result is how much later that reader receives
the records that were written while a transaction was open.
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
from tools.bench.interleaved_runs import Length, Spread

OPEN_MS: Final = (0, 10, 100, 1000)
"""Durations of the transactions; 0 for none."""
EVERY_S: Final = 0.005
LIMIT_S: Final = 30.0
SEVERAL: Final = 3
"""Minimum number of transactions per run."""


class Later(NamedTuple):
    """One run: the delay of each record in milliseconds, and the longest transaction."""

    added: list[float]
    plain: list[float]
    longest: float


def measure(cluster: Cluster, length: Length, rounds: int) -> Iterator[str]:
    """Measure every duration in interleaved rounds; yield a line for each."""
    topic = f"bench-{time.time_ns():x}"
    cluster.create_topic(topic, 1)
    runs_by_ms: dict[int, list[Later]] = {ms: [] for ms in OPEN_MS}
    with ExitStack() as stack:
        stack.callback(lambda: cluster.delete_topics([topic]))
        bench = stack.enter_context(_Bench(cluster.bootstrap(BrokerListener.DIRECT), topic))
        bench.run(0, length.seconds / 2)  # warms the brokers up
        for number in range(rounds):
            for i in range(len(OPEN_MS)):
                ms = OPEN_MS[(number + i) % len(OPEN_MS)]
                runs_by_ms[ms].append(bench.run(ms, max(length.seconds, SEVERAL * ms / 1000)))
    yield "delay of read_committed for a record that is written while a transaction is open on its partition:"
    yield from (_line(ms, runs) for ms, runs in runs_by_ms.items())


def _line(ms: int, runs: list[Later]) -> str:
    spread = Spread.over([statistics.median(run.added) for run in runs])
    plain = statistics.median(statistics.median(run.plain) for run in runs)
    longest = max(run.longest for run in runs)
    name = f"{ms} ms each, at most {longest:.0f} ms" if ms else "none open"
    delay = f"{spread.median:.1f} ms ({spread.low:.1f} to {spread.high:.1f})"
    most = max(max(run.added) for run in runs)
    doubt = f"  {spread.doubt}".rstrip() if ms else ""
    return f"  {name:30}{delay:28}at most {most:.0f} ms; read_uncommitted takes {plain:.1f} ms{doubt}"


class _Bench:
    """A producer and two readers that serve all runs, so that no run measures their start."""

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

    def run(self, open_ms: int, seconds: float) -> Later:
        """Send for `seconds` while transactions are open for `open_ms` milliseconds each."""
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
        return Later(
            [(committed[n] - plain[n]) * 1000 for n in (behind if open_ms else numbers)],
            [(plain[n] - self._sent[n]) * 1000 for n in numbers],
            max((end - begin for begin, end in spans), default=0.0) * 1000,
        )

    def _hold(self, seconds: float, over: threading.Event, spans: list[tuple[float, float]]) -> None:
        """Keep one transaction after the other open, and record the time span of each."""
        while not over.is_set():
            self._holder.begin_transaction()
            self._holder.produce(self._topic, b"", partition=0)
            self._holder.flush(LIMIT_S)
            opened = (
                time.perf_counter()
            )  # not earlier: the flush may have waited for the end of the previous transaction
            over.wait(seconds)
            self._holder.commit_transaction(LIMIT_S)
            spans.append((opened, time.perf_counter()))


class _Reader(threading.Thread):
    """A reader that records the arrival time of each record."""

    def __init__(self, bootstrap: str, topic: str, isolation: str) -> None:
        super().__init__(daemon=True, name=isolation)
        self.over = threading.Event()
        self._arrived: dict[int, float] = {}
        # All other settings are the library's defaults, as in an application.
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
        """Read until `over` is set."""
        while not self.over.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None and (value := message.value()):
                self._arrived[int(value)] = time.perf_counter()
        self._consumer.close()

    def wait(self, records: int) -> dict[int, float]:
        """Wait until this many records have arrived; return the arrival times."""
        wait_until(
            lambda: len(self._arrived) >= records,
            LIMIT_S,
            f"the {self.name} reader to receive {records} records",
        )
        return self._arrived
