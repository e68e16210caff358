"""Turns decoded records, as columns, into an observation: the part of a witness that knows no client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.evidence.observation import (
    EXAMPLES,
    ORIGIN,
    RUN,
    WORD,
    WORD_SEQS,
    Findings,
    Ints,
    Meta,
    Observation,
    Rows,
    Spot,
    second_output,
)
from harness.evidence.record import Identity

_COLUMNS = ("partition", "offset", "producer", "lane", "seq", "o_producer", "o_lane", "o_seq", "o_part")


@dataclass
class Records:
    """Records of one witness in the order of reading: one list a column, -1 where there is no origin."""

    rows: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, partition: int, offset: int, identity: Identity) -> None:
        """Add one record; `partition` is the index of its window."""
        origin = identity.origin
        tail = (-1, -1, -1, -1) if origin is None else origin[:4]
        self.rows.append((partition, offset, identity.producer, identity.lane, identity.seq, *tail))

    def columns(self) -> dict[str, Ints]:
        """Return the records as columns."""
        table = np.array(self.rows, np.int64).reshape(-1, len(_COLUMNS))
        return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_COLUMNS)}


def observe(meta: Meta, records: Records, *, with_runs: bool = True) -> Observation:
    """Make the words, origins, runs and findings; a record read twice at one offset is one record."""
    return observe_columns(meta, records.columns(), with_runs=with_runs)


def observe_columns(meta: Meta, columns: dict[str, Ints], *, with_runs: bool = True) -> Observation:
    """Do what `observe` does, for a witness that has columns already."""
    order = np.lexsort((columns["offset"], columns["partition"]))
    columns = {name: column[order] for name, column in columns.items()}
    fresh = ~_same_as_before(columns, "partition", "offset")
    identical = _same_as_before(columns, *_COLUMNS)
    clash = np.flatnonzero(~fresh & ~identical)
    meta.clashes = Findings(
        compared=len(fresh),
        count=len(clash),
        by_producer=_by_producer(columns["producer"][clash]),
        examples=[_spot(meta, columns, i, other=i - 1) for i in clash[:EXAMPLES].tolist()],
    )
    # A second reading of the same offset is the reader's rewind and no second record.
    columns = {name: column[fresh] for name, column in columns.items()}
    meta.records = len(columns["seq"])
    first = _repeats(meta, columns)
    _late(meta, columns, first)
    outputs = {name: column[columns["o_producer"] >= 0] for name, column in columns.items()}
    _twice(meta, outputs)
    return Observation(meta, _words(columns), _origins(outputs), _runs(columns) if with_runs else None)


def _same_as_before(columns: dict[str, Ints], *names: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    same = np.ones(len(columns["seq"]), np.bool_)
    same[:1] = False
    for name in names:
        same[1:] &= columns[name][1:] == columns[name][:-1]
    return same


def _by_producer(producers: Ints) -> list[tuple[int, int]]:
    numbers, counts = np.unique(producers, return_counts=True)
    return list(zip(numbers.tolist(), counts.tolist(), strict=True))


def _spot(meta: Meta, columns: dict[str, Ints], i: int, *, other: int, detail: str = "") -> Spot:
    window = meta.windows[int(columns["partition"][i])]
    return Spot(
        topic=window.topic,
        partition=window.partition,
        offset=int(columns["offset"][i]),
        producer=int(columns["producer"][i]),
        lane=int(columns["lane"][i]),
        seq=int(columns["seq"][i]),
        other_offset=int(columns["offset"][other]),
        other_seq=int(columns["seq"][other]),
        detail=detail,
    )


def _repeats(meta: Meta, columns: dict[str, Ints]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Find the second and later appearances of a record; return which rows are first appearances."""
    order = np.lexsort(
        (columns["offset"], columns["partition"], columns["seq"], columns["lane"], columns["producer"])
    )
    ordered = {name: column[order] for name, column in columns.items()}
    again = _same_as_before(ordered, "producer", "lane", "seq")
    found = np.flatnonzero(again)
    meta.repeats = Findings(
        compared=len(again),
        count=len(found),
        by_producer=_by_producer(ordered["producer"][found]),
        examples=[_spot(meta, ordered, i, other=i - 1) for i in found[:EXAMPLES].tolist()],
    )
    first = np.ones(len(again), np.bool_)
    first[order[again]] = False
    return first


def _late(meta: Meta, columns: dict[str, Ints], first: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
    """Find records whose first appearance comes after that of a later record of their lane."""
    kept = {name: column[first] for name, column in columns.items()}
    order = np.lexsort((kept["offset"], kept["lane"], kept["producer"], kept["partition"]))
    kept = {name: column[order] for name, column in kept.items()}
    same_lane = _same_as_before(kept, "partition", "producer", "lane")
    lane = np.cumsum(~same_lane) - 1
    # Lanes are numbered upwards, so a running maximum of (lane, seq) never carries over from the lane before.
    width = int(kept["seq"].max(initial=0)) + 1
    highest = np.maximum.accumulate(lane * width + kept["seq"]) if len(lane) else lane
    late = np.flatnonzero(lane * width + kept["seq"] < highest)
    leader = np.searchsorted(highest, highest[late], side="left")
    meta.late = Findings(
        compared=int(same_lane.sum()),
        count=len(late),
        by_producer=_by_producer(kept["producer"][late]),
        examples=[
            _spot(meta, kept, int(i), other=int(j))
            for i, j in zip(late[:EXAMPLES], leader[:EXAMPLES], strict=True)
        ],
    )


def _twice(meta: Meta, outputs: dict[str, Ints]) -> None:
    """Find outputs whose input has had the same part before."""
    names = ("o_producer", "o_lane", "o_part", "o_seq")
    order = np.lexsort((outputs["offset"], outputs["partition"], *(outputs[name] for name in names[::-1])))
    ordered = {name: column[order] for name, column in outputs.items()}
    again = _same_as_before(ordered, *names)
    found, starts = np.flatnonzero(again), np.flatnonzero(~again)
    places = [
        (meta.windows[p], o)
        for p, o in zip(*(ordered[n].tolist() for n in ("partition", "offset")), strict=True)
    ]
    meta.twice = Findings(
        compared=len(again),
        count=len(found),
        by_producer=_by_producer(ordered["o_producer"][found]),
        examples=[
            second_output(
                places[i],
                places[starts[np.searchsorted(starts, i) - 1]],
                tuple(int(ordered[name][i]) for name in ("o_producer", "o_lane", "o_seq", "o_part")),
            )
            for i in found[:EXAMPLES].tolist()
        ],
    )


def _grouped(columns: dict[str, Ints], seq: str, *names: str) -> tuple[Ints, Ints, dict[str, Ints]]:
    word = columns[seq] // WORD_SEQS
    keyed = {**columns, "word": word}
    order = np.lexsort((word, *(columns[name] for name in reversed(names))))
    keyed = {name: column[order] for name, column in keyed.items()}
    starts = np.flatnonzero(~_same_as_before(keyed, *names, "word"))
    counts = np.diff(np.append(starts, len(word)))
    return starts, counts, keyed


def _bits(keyed: dict[str, Ints], seq: str, starts: Ints) -> np.ndarray[Any, np.dtype[np.uint64]]:
    inside = keyed[seq] % WORD_SEQS
    bits = np.zeros((len(inside), 4), np.uint64)
    bits[np.arange(len(inside)), inside // 64] = np.uint64(1) << (inside % 64).astype(np.uint64)
    return np.bitwise_or.reduceat(bits, starts, axis=0) if len(starts) else bits


def _words(columns: dict[str, Ints]) -> Rows:
    starts, counts, keyed = _grouped(columns, "seq", "partition", "producer", "lane")
    words = np.zeros(len(starts), WORD)
    for name in ("partition", "producer", "lane", "word"):
        words[name] = keyed[name][starts]
    words["n"] = counts
    if len(starts):
        words["bits"] = _bits(keyed, "seq", starts)
        words["lo"] = np.minimum.reduceat(keyed["offset"], starts)
        words["hi"] = np.maximum.reduceat(keyed["offset"], starts)
    return words


def _origins(columns: dict[str, Ints]) -> Rows:
    starts, counts, keyed = _grouped(columns, "o_seq", "o_producer", "o_lane", "o_part")
    origins = np.zeros(len(starts), ORIGIN)
    for name in ("producer", "lane", "part"):
        origins[name] = keyed[f"o_{name}"][starts]
    origins["word"] = keyed["word"][starts]
    origins["n"] = counts
    if len(starts):
        origins["bits"] = _bits(keyed, "o_seq", starts)
    return origins


def _runs(columns: dict[str, Ints]) -> Rows:
    joined = _same_as_before(columns, "partition", "producer", "lane")
    for name in ("offset", "seq"):
        joined[1:] &= columns[name][1:] == columns[name][:-1] + 1
    starts = np.flatnonzero(~joined)
    runs = np.zeros(len(starts), RUN)
    for name in ("partition", "offset", "producer", "lane", "seq"):
        runs[name] = columns[name][starts]
    runs["count"] = np.diff(np.append(starts, len(joined)))
    return runs
