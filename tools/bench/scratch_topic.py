"""A topic for one run, deleted before the next, so that no run writes the data of another to disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness.cluster.cluster import Cluster
from tools.bench.interleaved_runs import Cost, Length, Run


@contextmanager
def fresh_topic(cluster: Cluster, partitions: int) -> Iterator[str]:
    """Yield a topic that is deleted with its files at the end; pages not yet on disk are never written."""
    name = f"bench-{time.time_ns():x}"
    cluster.create_topic(name, partitions, {"file.delete.delay.ms": "0"})
    try:
        yield name
    finally:
        cluster.delete_topics([name])


def with_fresh_topic(cluster: Cluster, partitions: int, run: Callable[[str, Length], Cost]) -> Run:
    """Wrap a run so that it gets a separate topic each time."""

    def on_a_fresh_topic(length: Length) -> Cost:
        with fresh_topic(cluster, partitions) as topic:
            return run(topic, length)

    return on_a_fresh_topic
