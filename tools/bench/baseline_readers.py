"""Plain readers of a topic, as baselines for a verification: a client library, and Kafka's own tool."""

from __future__ import annotations

import multiprocessing
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from harness.evidence.observation import Window
from harness.provision.jars import ensure_jars
from harness.provision.java import find_java

_LIMIT_S: Final = 600


def scan(bootstrap: str, windows: Sequence[Window], done: Any) -> None:
    """Count the records of some partitions with confluent-kafka, and put the count into the queue `done`.

    This function runs in a separate process. It only counts records. Its fetches and polls are larger than
    those of `harness.kafka.read_to_end`.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 8 << 20,
        }
    )
    consumer.assign([TopicPartition(w.topic, w.partition, w.start) for w in windows])
    left, count, deadline = len(windows), 0, time.monotonic() + _LIMIT_S
    while left and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 1.0):
            error = message.error()
            if error is None:
                count += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                left -= 1
    consumer.close()
    done.put(count)


def two_processes(bootstrap: str, windows: Sequence[Window]) -> int:
    """Count the records with two confluent-kafka processes."""
    context = multiprocessing.get_context("spawn")
    done = context.Queue()
    workers = [context.Process(target=scan, args=(bootstrap, windows[i::2], done)) for i in range(2)]
    for worker in workers:
        worker.start()
    counts = [done.get(timeout=_LIMIT_S) for _ in workers]
    for worker in workers:
        worker.join(60)
    return sum(counts)


def cpu_seconds() -> float:
    """Return the processor time of this process and its descendants, including those that have ended."""
    process = psutil.Process()
    total = 0.0
    for member in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # the process ended between the two calls
            total += sum(member.cpu_times()[:4])  # user and system time, also of ended children
    return total


def consumer_performance(
    bootstrap: str, topic: str, records: int, log: Callable[[str], None]
) -> tuple[int, float]:
    """Run Kafka's ConsumerPerformance; return the number of records that it read, and its rate.

    The rate is in records per second of the time that it spent fetching.
    """
    jars = ensure_jars(log, "kafka", "tools")
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "consumer.properties"
        config.write_text("isolation.level=read_committed\nmax.poll.records=10000\n")
        done = subprocess.run(
            [
                str(find_java().executable),
                "-Xmx1g",
                "-XX:+UseParallelGC",
                "-cp",
                ":".join(map(str, jars)),
                "org.apache.kafka.tools.ConsumerPerformance",
                "--bootstrap-server",
                bootstrap,
                "--topic",
                topic,
                "--num-records",
                str(records),
                "--timeout",
                "30000",
                "--command-config",
                str(config),
            ],
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=True,
        )
    names, values = (line.split(", ") for line in done.stdout.splitlines() if "," in line)
    figures = dict(zip(names, values, strict=True))
    return int(figures["data.consumed.in.nMsg"]), float(figures["fetch.nMsg.sec"])
