"""A topic for one run: what a run has written is gone before the next, and burdens it with no disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness.cluster.cluster import Cluster
from tools.bench.interleaved_runs import Cost, Length, Run


@contextmanager
def fresh_topic(cluster: Cluster, partitions: int) -> Iterator[str]:
    """A topic that is deleted with its files at the end: what the disk has not been given yet it never is."""
    name = f"bench-{time.time_ns():x}"
    cluster.create_topic(name, partitions, {"file.delete.delay.ms": "0"})
    try:
        yield name
    finally:
        cluster.delete_topics([name])


def each_on_its_own(cluster: Cluster, partitions: int, run: Callable[[str, Length], Cost]) -> Run:
    """A run that is given a topic of its own each time."""

    def on_a_fresh_topic(length: Length) -> Cost:
        with fresh_topic(cluster, partitions) as topic:
            return run(topic, length)

    return on_a_fresh_topic
