"""Figures of a run: how many records its clients wrote and its witnesses read, and how fast.

The check computes them from the evidence that it has loaded anyway, and stores them as figures.json beside
the verdict. The report reads this file, so it need not fold the histories a second time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from harness.base.partition_id import PartitionId
from harness.evidence.bit_words import Ints, popcount
from harness.evidence.checkers.app_outputs import witness_of
from harness.evidence.checkers.app_statements import STATEMENTS
from harness.evidence.ledger import ABORTED, COMMITTED, OPEN_END, UNKNOWN, Ledger
from harness.evidence.observation import Observation
from harness.evidence.token import NO_TOKEN

FILE: Final = "figures.json"
FORMAT: Final = 1

_FATES: Final = {"committed": COMMITTED, "aborted": ABORTED, "unknown": UNKNOWN}
PERCENTILES: Final = {"p50": 50, "p95": 95, "max": 100}
_MOST_SLICES: Final = 3600
_SECOND: Final = 10**9

Curve = list[tuple[int, float]]
"""Points of a curve. Each point is a monotonic time in nanoseconds, and a value."""


class Read(msgspec.Struct, frozen=True, array_like=True):
    """The number of records that a witness read in one topic, and how many of them are distinct.

    In an output topic of an application, `distinct` is the number of inputs that the outputs name.
    """

    records: int
    distinct: int


class TopicFigures(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The records of one topic: how many have which fate, and how many each witness read."""

    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    read: dict[str, Read] = {}


class Statement(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a witness found for one statement of a contract: rows that it compared, and rows that break it."""

    witness: str
    output: str
    verb: str
    text: str
    compared: int
    broken: int
    error: str = ""


class Figures(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The figures of one run. The times of all curves are of the clients' monotonic clock.

    `records` has a curve for each fate, `sends` and `commits` have a curve for each percentile of the time
    from request to answer, in milliseconds. `lags` has a curve for each consumer group: the number of
    readable offsets after its positions. `outputs` counts what the witnesses read in the output topics of an
    application.
    """

    format: int = FORMAT
    problem: str = ""
    """Why there are no figures; empty if there are some."""
    histories: int = 0
    topics: dict[str, TopicFigures] = {}
    outputs: dict[str, dict[str, Read]] = {}
    statements: list[Statement] = []
    slice_s: int = 1
    """Seconds that one point of `records`, `sends` and `commits` covers."""
    records: dict[str, Curve] = {}
    sends: dict[str, Curve] = {}
    commits: dict[str, Curve] = {}
    lags: dict[str, Curve] = {}


def figures_of(ledger: Ledger, observations: Sequence[Observation]) -> Figures:
    """Return the figures of a run. Live readers are not counted: they may end before the others."""
    figures = Figures(histories=len(ledger.clients), topics=_written(ledger), outputs=_outputs(observations))
    for view in observations:
        meta = view.meta
        if meta.purpose == "all" and meta.kind != "client" and meta.isolation == "read_committed":
            for topic, read in _read(view).items():
                figures.topics.setdefault(topic, TopicFigures()).read[meta.witness] = read
        figures.statements += [
            Statement(
                witness=meta.witness.removesuffix(STATEMENTS),
                output=part.output,
                verb=part.verb,
                text=part.text,
                compared=part.compared,
                broken=sum(deviation.weight for deviation in part.found),
                error=part.error,
            )
            for part in meta.statements
        ]
    _add_curves(figures, ledger)
    figures.lags = _group_lags(ledger)
    return figures


def _written(ledger: Ledger) -> dict[str, TopicFigures]:
    """Return the number of records of each topic and fate. An interval without an end is left out."""
    intervals = ledger.intervals
    bounded = intervals.last < OPEN_END
    topics: dict[str, TopicFigures] = {}
    for name, fate in _FATES.items():
        chosen = bounded & (intervals.fate == fate)
        sizes = (intervals.last - intervals.first + 1)[chosen]
        totals = np.bincount(intervals.lane[chosen], sizes, len(ledger.places))
        for (topic, _), total in zip(ledger.places, totals.astype(int).tolist(), strict=True):
            counts = topics.setdefault(topic, TopicFigures())
            setattr(counts, name, getattr(counts, name) + total)
    return topics


def _read(view: Observation) -> dict[str, Read]:
    """Return the number of records, and of distinct ones, of each topic that a witness read."""
    words = view.words
    records = np.bincount(words["partition"], words["n"], len(view.meta.windows))
    if view.meta.purpose == "outputs":
        words = words[words["producer"] != NO_TOKEN]
    distinct = np.bincount(words["partition"], popcount(words["bits"]), len(view.meta.windows))
    counts: dict[str, Read] = {}
    for window, here, once in zip(view.meta.windows, records.astype(int), distinct.astype(int), strict=True):
        before = counts.get(window.topic, Read(0, 0))
        counts[window.topic] = Read(before.records + int(here), before.distinct + int(once))
    return counts


def _outputs(observations: Sequence[Observation]) -> dict[str, dict[str, Read]]:
    """Return the number of outputs of an application, and of inputs that they name."""
    outputs: dict[str, dict[str, Read]] = {}
    for view in observations:
        if view.meta.purpose == "outputs":
            for topic, read in _read(view).items():
                outputs.setdefault(topic, {})[witness_of(view)] = read
    return outputs


def _add_curves(figures: Figures, ledger: Ledger) -> None:
    """Add the number of records for each slice of time and fate, and the percentiles of the answer times.

    A record counts in the slice in which its client received the answer. Without an answer, it counts in the
    slice of the request. The answer times are of committed records only.
    """
    groups = ledger.groups
    answered = groups.answered > 0
    ends = np.where(answered, groups.answered, groups.asked)
    timed = ends > 0
    if not timed.any():
        return
    seconds = len(np.unique(ends[timed] // _SECOND))
    figures.slice_s = -(-seconds // _MOST_SLICES)
    length = figures.slice_s * _SECOND
    slices, at = np.unique(ends[timed] // length, return_inverse=True)
    middle = (slices * length + length // 2).tolist()
    sizes = ledger.intervals.last - ledger.intervals.first + 1
    records = np.bincount(ledger.intervals.group, np.where(sizes < 1 << 40, sizes, 0), len(ends))[timed]
    for name, fate in _FATES.items():
        chosen = groups.fate[timed] == fate
        counts = np.bincount(at[chosen], records[chosen], len(slices)) / figures.slice_s
        figures.records[name] = list(zip(middle, counts.tolist(), strict=True))
    took = (groups.answered - groups.asked)[timed] / 1e6
    measured = answered[timed] & (groups.fate[timed] == COMMITTED)
    for curves, chosen in (
        (figures.sends, measured & (groups.txn[timed] < 0)),
        (figures.commits, measured & (groups.txn[timed] >= 0)),
    ):
        curves.update(_percentiles(at[chosen], took[chosen], middle))


def _percentiles(at: Ints, millis: np.ndarray, middle: Sequence[int]) -> dict[str, Curve]:
    """Return a curve for each percentile; `at` is the slice of each measured time."""
    if not len(at):
        return {}
    order = np.argsort(at, kind="stable")
    slices, starts = np.unique(at[order], return_index=True)
    pieces = [
        np.percentile(piece, list(PERCENTILES.values())) for piece in np.split(millis[order], starts[1:])
    ]
    return {
        name: [
            (middle[here], round(float(values[i]), 3)) for here, values in zip(slices, pieces, strict=True)
        ]
        for i, name in enumerate(PERCENTILES)
    }


def _group_lags(ledger: Ledger) -> dict[str, Curve]:
    """Return the lag of each group that an observer sampled: stable offsets after the group's positions."""
    lags: dict[str, Curve] = defaultdict(list)
    for client in ledger.clients:
        ends: dict[PartitionId, int] = {}
        for _, sample in client.samples():
            ends.update({(topic, p): stable for topic, p, _, stable, _ in sample.bounds})
            behind = [
                max(0, ends[place] - position)
                for topic, p, position in sample.positions
                if (place := (topic, p)) in ends
            ]
            if sample.group and behind:
                lags[sample.group].append((sample.mono, float(sum(behind))))
    return dict(lags)
