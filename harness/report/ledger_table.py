"""The ledger of a run as a table: what the clients recorded for each topic, and what each witness read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from harness.evidence.bit_words import popcount
from harness.evidence.ledger import ABORTED, COMMITTED, OPEN_END, UNKNOWN, Ledger
from harness.evidence.observation import Observation

_FATES: Final = {"committed": COMMITTED, "aborted": ABORTED, "unknown": UNKNOWN}


class LedgerTable(NamedTuple):
    """The head and the rows of the table."""

    head: tuple[str, ...]
    rows: list[tuple[str, ...]]


def ledger_table(ledger: Ledger, observations: Sequence[Observation]) -> LedgerTable:
    """Return the numbers of records of each topic, by fate and by witness.

    The numbers of a witness are all records that it read, and how many of them are distinct. Live readers of
    the run are not listed, because they may end before the others.
    """
    views = [
        view
        for view in observations
        if view.meta.purpose == "all"
        and view.meta.kind != "client"
        and view.meta.isolation == "read_committed"
    ]
    written = _written(ledger)
    read = {view.meta.witness: _read(view) for view in views}
    topics = sorted({*written, *(topic for counts in read.values() for topic in counts)})
    rows = [
        (
            topic,
            *(str(written.get(topic, {}).get(fate, 0)) for fate in _FATES),
            *(_cell(*counts.get(topic, (0, 0))) for counts in read.values()),
        )
        for topic in topics
    ]
    return LedgerTable(("topic", *_FATES, *(f"read by {name}" for name in read)), rows)


def _written(ledger: Ledger) -> dict[str, dict[str, int]]:
    """Return the number of records of each topic and fate. An interval without an end is left out."""
    intervals = ledger.intervals
    bounded = intervals.last < OPEN_END
    counts: dict[str, dict[str, int]] = {}
    for name, fate in _FATES.items():
        chosen = bounded & (intervals.fate == fate)
        sizes = (intervals.last - intervals.first + 1)[chosen]
        totals = np.bincount(intervals.lane[chosen], sizes, len(ledger.places))
        for (topic, _), total in zip(ledger.places, totals.astype(int).tolist(), strict=True):
            counts.setdefault(topic, dict.fromkeys(_FATES, 0))[name] += total
    return counts


def _read(view: Observation) -> dict[str, tuple[int, int]]:
    """Return the number of records, and of distinct ones, of each topic that a witness read."""
    records = np.bincount(view.words["partition"], view.words["n"], len(view.meta.windows))
    distinct = np.bincount(view.words["partition"], popcount(view.words["bits"]), len(view.meta.windows))
    counts: dict[str, tuple[int, int]] = {}
    for window, here, once in zip(view.meta.windows, records.astype(int), distinct.astype(int), strict=True):
        before = counts.get(window.topic, (0, 0))
        counts[window.topic] = (before[0] + int(here), before[1] + int(once))
    return counts


def _cell(records: int, distinct: int) -> str:
    return str(records) if records == distinct else f"{records} ({distinct} distinct)"
