"""Records that live readers got from their polls, with the time of each poll.

A live reader is a client that consumes records during the run. It serves as a witness. It need not read all
records, so its observation is never marked as complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from harness.base.partition_id import PartitionId
from harness.evidence.ledger import Ledger
from harness.evidence.observation import Meta, Observation, Rows, Window
from harness.evidence.observation_builder import observe_columns

READ: Final = np.dtype(
    [
        ("mono", "<i8"),
        ("line", "<i8"),
        ("place", "<i8"),
        ("offset", "<i8"),
        ("producer", "<i8"),
        ("lane", "<i8"),
        ("seq", "<i8"),
        ("count", "<i8"),
    ]
)


@dataclass
class Reads:
    """The runs of consecutive records that one client got from its polls. Each has the time of its poll."""

    client: str
    clock: str
    places: list[PartitionId]
    rows: Rows
    isolation: str = "read_committed"


def reads_of(ledger: Ledger) -> list[Reads]:
    """Return the records that clients got from polls; one item for each client that got records."""
    reads = []
    for client in ledger.clients:
        places: dict[PartitionId, int] = {}
        rows = []
        for number, done in client.completions("poll"):
            for topic, partition, offset, producer, lane, seq, count in done.read:
                place = places.setdefault((topic, partition), len(places))
                rows.append((done.mono, number, place, offset, producer, lane, seq, count))
        if rows and client.opening:
            isolation = next((line.isolation for _, line in client.invokes("poll") if line.isolation), None)
            reads.append(
                Reads(
                    client.name,
                    client.opening.clock,
                    list(places),
                    np.array(rows, READ),
                    isolation or "read_committed",
                )
            )
    return reads


def observation_of(reads: Reads) -> Observation:
    """Convert the polls of a live reader into an observation, which is never marked as complete."""
    rows, count = reads.rows, reads.rows["count"]
    # Index of each record within its run of consecutive records. In a run, offset and sequence both grow by
    # one from record to record.
    step = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    absent = np.full(len(step), -1, np.int64)
    columns = {
        "partition": np.repeat(rows["place"], count),
        "offset": np.repeat(rows["offset"], count) + step,
        "producer": np.repeat(rows["producer"], count),
        "lane": np.repeat(rows["lane"], count),
        "seq": np.repeat(rows["seq"], count) + step,
        **dict.fromkeys(("o_producer", "o_lane", "o_seq", "o_part"), absent),
    }
    windows = []
    for place, (topic, partition) in enumerate(reads.places):
        here = rows[rows["place"] == place]
        first = int(here["offset"].min()) if len(here) else 0
        end = int((here["offset"] + here["count"]).max(initial=0))
        windows.append(Window(topic=topic, partition=partition, start=first, lso=end, hw=end, read_to=end))
    meta = Meta(witness=reads.client, kind="client", clock=reads.clock, windows=windows)
    return observe_columns(meta, columns)
