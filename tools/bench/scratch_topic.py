"""Temporary topics for benchmark runs. Each topic and its files are deleted after one run.

The data of a run therefore does not stay on the disk and slow the next run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness.cluster.cluster import Cluster
from tools.bench.interleaved_runs import Cost, Length, Run


@contextmanager
def scratch_topic(cluster: Cluster, partitions: int) -> Iterator[str]:
    """Create a topic, and delete it with its files after the block.

    The files are deleted without delay, before most of the data reaches the disk.
    """
    name = f"bench-{time.time_ns():x}"
    cluster.create_topic(name, partitions, {"file.delete.delay.ms": "0"})
    try:
        yield name
    finally:
        cluster.delete_topics([name])


def on_scratch_topics(cluster: Cluster, partitions: int, run: Callable[[str, Length], Cost]) -> Run:
    """Return a function that creates a new topic at each call, executes `run` on it, and deletes it."""

    def on_scratch_topic(length: Length) -> Cost:
        with scratch_topic(cluster, partitions) as topic:
            return run(topic, length)

    return on_scratch_topic
