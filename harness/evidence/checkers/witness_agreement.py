"""Agreement of the witnesses: the promised ones are complete, and every two of them read the same records.

Two witnesses that read the same partitions must return the same words: the same records, at the same lowest
and highest offsets, and the same number of copies. If both recorded runs of consecutive records, every offset
is compared. If both read exactly the same windows, their findings must be equal as well: foreign, late and
repeated records, and the outputs of each input. A difference proves nothing about the cluster, because one
witness is wrong and it is not known which. So a difference is a reason for unknown, never an anomaly.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from harness.base.partition_id import PartitionId, partition_name
from harness.evidence.bit_words import Columns, Ints, merge, sequences_in
from harness.evidence.checkers.bitsets import BitSet, word_keys
from harness.evidence.checkers.model import Collector, Evidence
from harness.evidence.checkers.visibility_index import ranges
from harness.evidence.ledger import OPEN_END, Ledger
from harness.evidence.observation import Findings, Meta, Observation, Rows, Window

_KEYS: Final = ("producer", "lane", "word")
_COUNTED: Final = {
    "foreign": "foreign records",
    "late": "late records",
    "repeats": "repeated records",
    "twice": "extra outputs",
}
_SETTLED: Final = ("n", "lo", "hi")


def check_witnesses(evidence: Evidence, out: Collector) -> None:
    """Check that every promised witness is complete, and compare every pair of complete witnesses."""
    promised = set(evidence.expect.witnesses)
    for name in evidence.expect.witnesses:
        _check_promise(evidence, name, out)
    whole = [view for view in evidence.committed_views() if view.meta.complete]
    for view in whole:
        _check_record_count(view, out)
        _check_ends(view.meta, out)
    used = sorted(used_partitions(evidence.ledger))
    for i, first in enumerate(whole):
        for second in whole[i + 1 :]:
            pair = _Pair(first, second)
            out.compared += len(pair.common)
            out.reasons += pair.differences()
            names = {first.meta.witness, second.meta.witness}
            if len(names & promised) == 2:
                out.reasons += pair.gaps(used)


def used_partitions(ledger: Ledger) -> set[PartitionId]:
    """Return the partitions to which clients sent records, according to their histories."""
    # An open-ended interval alone does not prove that its lane was used.
    lanes = np.unique(ledger.intervals.lane[ledger.intervals.last < OPEN_END])
    return {ledger.places[lane] for lane in lanes.tolist()}


def _check_promise(evidence: Evidence, name: str, out: Collector) -> None:
    views = [view for view in evidence.observations if view.meta.witness == name]
    views = [view for view in views if view.meta.kind != "client"]
    if not views:
        out.reasons.append(f"witness {name} left no observation")
        return
    if any(_keeps_promise(view) for view in views):
        return
    meta = views[0].meta
    if meta.purpose != "all" or meta.isolation != "read_committed":
        detail = f"it read with the purpose {meta.purpose} and {meta.isolation}"
    elif meta.complete:
        detail = "it has no table of markers"
    else:
        detail = meta.detail or _missing_start(meta.windows) or "it did not report why"
    out.reasons.append(f"witness {name} is incomplete: {detail}")


def _keeps_promise(view: Observation) -> bool:
    meta = view.meta
    whole = meta.purpose == "all" and meta.isolation == "read_committed" and meta.complete
    return whole and (meta.kind != "raw" or view.markers is not None)


def _missing_start(windows: list[Window]) -> str:
    cut = [window for window in windows if window.start > 0]
    names = [f"{partition_name((w.topic, w.partition))} begins at offset {w.start}" for w in cut[:3]]
    return f"records were deleted: {', '.join(names)}" if names else ""


def missing_part(meta: Meta) -> str:
    """Return which records a witness may not have read; empty if it read all records of its windows."""
    if not meta.complete:
        return meta.detail or "it did not report why"
    if meta.isolation != "read_committed":
        return f"it read with {meta.isolation}"
    if deleted := _missing_start(meta.windows):
        return deleted
    return next((_short_window(window) for window in meta.windows if window.read_to < window.lso), "")


def undecided_parts(meta: Meta) -> Iterator[str]:
    """Yield one sentence for each partition that ends with a transaction that has not ended."""
    for window in meta.windows:
        if window.lso < window.hw:
            name = partition_name((window.topic, window.partition))
            yield f"a transaction has not ended in {name}: offsets {window.lso}-{window.hw - 1} were not read"


def _short_window(window: Window) -> str:
    name = partition_name((window.topic, window.partition))
    return f"it read {name} only to offset {window.read_to} of {window.lso}"


def _check_record_count(view: Observation, out: Collector) -> None:
    counted, reported = int(view.words["n"].sum()), view.meta.records
    if reported and counted != reported:
        out.reasons.append(
            f"witness {view.meta.witness} reports {reported} records, but its words contain {counted}"
        )


def _check_ends(meta: Meta, out: Collector) -> None:
    for window in meta.windows:
        if window.read_to < window.lso:
            out.reasons.append(f"witness {meta.witness} is called complete, but {_short_window(window)}")


@dataclass
class _Part:
    """The part of one partition that two witnesses read, as one of them observed it.

    The part is the range of offsets from `low` to `high`, not included. It is limited only where this witness
    read more than the other one.
    """

    view: Observation
    index: int
    low: float
    high: float

    def words(self) -> Rows:
        """Return the words that have records in the range, in the order of their keys."""
        words = self.view.words[self.view.words["partition"] == self.index]
        words = words[(words["hi"] >= self.low) & (words["lo"] < self.high)]
        ordered: Rows = words[np.lexsort(tuple(words[name] for name in reversed(_KEYS)))]
        return ordered

    def is_inside(self, words: Rows) -> Any:
        """Return a mask of the words whose records are all in the range."""
        return (words["lo"] >= self.low) & (words["hi"] < self.high)

    def records(self) -> Ints | None:
        """Return the runs in the range as sorted rows, or None if the witness did not record all its runs.

        The columns are: offset, producer, lane, sequence, count. Adjacent runs are united.
        """
        runs = self.view.runs
        if runs is None or runs["count"].sum() != self.view.words["n"].sum():
            return None
        runs = runs[runs["partition"] == self.index]
        first = np.maximum(runs["offset"], self.low)
        end = np.minimum(runs["offset"] + runs["count"], self.high)
        columns = [first, runs["producer"], runs["lane"], runs["seq"] + first - runs["offset"], end - first]
        rows: Ints = np.column_stack([column.astype(np.int64) for column in columns])
        rows = rows[rows[:, 4] > 0]
        return _united(rows[np.lexsort((rows[:, 3], rows[:, 0]))])


def _united(rows: Ints) -> Ints:
    if len(rows) < 2:
        return rows
    follows = np.all(rows[1:, 1:3] == rows[:-1, 1:3], axis=1)
    for column in (0, 3):
        follows &= rows[1:, column] == rows[:-1, column] + rows[:-1, 4]
    starts = np.flatnonzero(np.append(True, ~follows))
    united = rows[starts]
    united[:, 4] = np.add.reduceat(rows[:, 4], starts)
    return united


class _Pair:
    """Two complete witnesses. `common` lists the partitions that both read."""

    def __init__(self, first: Observation, second: Observation) -> None:
        self.views = (first, second)
        self.names = (first.meta.witness, second.meta.witness)
        self._windows = [
            {(w.topic, w.partition): (i, w) for i, w in enumerate(view.meta.windows)} for view in self.views
        ]
        self.common = sorted(self._windows[0].keys() & self._windows[1].keys())

    def gaps(self, used: list[PartitionId]) -> Iterator[str]:
        """Yield one reason for each used partition that only one witness, or neither, read."""
        for place in used:
            for name, windows in zip(self.names, self._windows, strict=True):
                if place not in windows:
                    yield (
                        f"{self.names[0]} and {self.names[1]} were not compared in {partition_name(place)}: "
                        f"{name} did not read it"
                    )

    def differences(self) -> Iterator[str]:
        """Yield one reason for each difference between the two witnesses."""
        ends = [difference for place in self.common for difference in self._end_differences(place)]
        yield from ends
        yield from self._missing_records()
        yield from (reason for place in self.common for reason in self._place_differences(place))
        if not ends and not any(self._reads_more(windows) for windows in self._windows):
            yield from self._finding_differences()

    def _reads_more(self, windows: dict[PartitionId, tuple[int, Window]]) -> bool:
        """Return whether a witness read a partition with records that the other one did not read."""
        more = [window for place, (_, window) in windows.items() if place not in self.common]
        return any(window.read_to > window.start for window in more)

    def _end_differences(self, place: PartitionId) -> Iterator[str]:
        windows = [windows[place][1] for windows in self._windows]
        for attribute, what in (("start", "starts"), ("read_to", "frozen ends"), ("hw", "high watermarks")):
            offsets = [getattr(window, attribute) for window in windows]
            if attribute == "hw" and windows[0].read_to != windows[1].read_to:
                continue  # a later freeze has a higher end and a higher watermark: one reason is enough
            if offsets[0] != offsets[1]:
                yield (
                    f"witnesses read {partition_name(place)} with different {what}: "
                    f"{self.names[0]} {offsets[0]}, {self.names[1]} {offsets[1]}"
                )

    def _parts(self, place: PartitionId) -> list[_Part]:
        windows = [windows[place] for windows in self._windows]
        low = max(window.start for _, window in windows)
        high = min(window.read_to for _, window in windows)
        return [
            _Part(view, i, low if w.start < low else -math.inf, high if w.read_to > high else math.inf)
            for view, (i, w) in zip(self.views, windows, strict=True)
        ]

    def _missing_records(self) -> Iterator[str]:
        """Yield the records that only one witness read. Only words inside the common range are expected."""
        inside: tuple[list[Rows], list[Rows]] = ([], [])
        whole: tuple[list[Rows], list[Rows]] = ([], [])
        for parts in map(self._parts, self.common):
            for side, part in enumerate(parts):
                words = part.words()
                inside[side].append(words[part.is_inside(words)])
                whole[side].append(words)
        for this, other in ((0, 1), (1, 0)) if self.common else ():
            extra = BitSet.of(np.concatenate(inside[this])).minus(BitSet.of(np.concatenate(whole[other])))
            if len(extra):
                producer, lane, sequences = extra.first(1)[0]
                yield (
                    f"witnesses disagree: {self.names[this]} read {len(extra)} records that "
                    f"{self.names[other]} did not, such as sequences {ranges(sequences)} of "
                    f"producer {producer} lane {lane}"
                )

    def _place_differences(self, place: PartitionId) -> Iterator[str]:
        """Yield the first difference in one partition: in records, copies or offsets."""
        parts = self._parts(place)
        reason = _word_difference(parts, self.names) or _run_difference(parts, self.names)
        if reason:
            yield f"witnesses disagree in {partition_name(place)}: {reason}"

    def _finding_differences(self) -> Iterator[str]:
        metas = [view.meta for view in self.views]
        orders = [list(windows) for windows in self._windows]
        # If a record is in two partitions, the order of the windows determines which copy is the first one.
        # Only the first copy is compared with other records to find late ones.
        ambiguous = orders[0] != orders[1] and any(meta.repeats.count for meta in metas)
        for name, what in _COUNTED.items():
            if name == "late" and ambiguous:
                continue
            findings: list[Findings] = [getattr(meta, name) for meta in metas]
            if name == "late" and findings[0].count and findings[1].count:
                continue  # there are two ways to count late records; they agree only on whether there are any
            if findings[0].count != findings[1].count:
                counts = [f"{n} counted {f.count}" for n, f in zip(self.names, findings, strict=True)]
                yield f"witnesses disagree about {what}: {', '.join(counts)}"
            elif sorted(findings[0].by_producer) != sorted(findings[1].by_producer):
                yield f"witnesses disagree about the producers of {findings[0].count} {what}"
        origins = [_by_origin(view.origins) for view in self.views]
        difference = _first_difference(origins, ("producer", "lane", "part", "word"), ("bits", "n"))
        if difference is not None:
            (producer, lane, part, word), _ = difference
            yield (
                f"witnesses disagree about the outputs with part number {part} of the inputs "
                f"{word * 256}-{word * 256 + 255} of producer {producer} lane {lane}"
            )


def _word_difference(parts: list[_Part], names: tuple[str, str]) -> str:
    """Describe the first difference between the words of two witnesses; return "" if there is none.

    A word with records at or after the end of the common range cannot be compared exactly. It must contain at
    least the records that the other witness read.
    """
    tables = [part.words() for part in parts]
    settled = [table[part.is_inside(table)] for part, table in zip(parts, tables, strict=True)]
    crossing = [word_keys(table[~part.is_inside(table)]) for part, table in zip(parts, tables, strict=True)]
    keep = [~np.isin(word_keys(table), np.concatenate(crossing)) for table in settled]
    columns: list[Columns] = [
        {name: table[mask][name] for name in (*_KEYS, "bits", *_SETTLED)}
        for table, mask in zip(settled, keep, strict=True)
    ]
    difference = _first_difference(columns, _KEYS, ("bits", *_SETTLED))
    if difference is None:
        return ""
    (producer, lane, word), values = difference
    reports = [
        f"{name} read {value['n']} records at offsets {value['lo']}-{value['hi']}"
        if value
        else f"{name} read no record"
        for name, value in zip(names, values, strict=True)
    ]
    sequences = sorted({seq for value in values if value for seq in sequences_in(word, value["bits"])})
    return f"of producer {producer} lane {lane}, sequences {ranges(sequences)}, {' and '.join(reports)}"


def _run_difference(parts: list[_Part], names: tuple[str, str]) -> str:
    """Describe the first offset at which two witnesses recorded different runs; return "" if none differs."""
    runs = [rows for part in parts if (rows := part.records()) is not None]
    if len(runs) < 2 or np.array_equal(runs[0], runs[1]):
        return ""
    shared = min(len(runs[0]), len(runs[1]))
    unequal = np.flatnonzero(np.any(runs[0][:shared] != runs[1][:shared], axis=1))
    at = int(unequal[0]) if len(unequal) else shared
    reports = []
    for name, rows in zip(names, runs, strict=True):
        if at >= len(rows):
            reports.append(f"{name} read no more records")
            continue
        offset, producer, lane, seq, count = rows[at].tolist()
        reports.append(
            f"{name} read sequences {seq}-{seq + count - 1} of producer {producer} lane {lane} "
            f"from offset {offset} on"
        )
    return " and ".join(reports)


def _by_origin(rows: Rows) -> Columns:
    return merge(
        [{name: rows[name] for name in ("producer", "lane", "part", "word", "bits", "n")}],
        ("producer", "lane", "part", "word"),
    )


def _first_difference(
    tables: list[Columns], keys: tuple[str, ...], values: tuple[str, ...]
) -> tuple[tuple[int, ...], list[dict[str, Any]]] | None:
    """Return the first key whose values differ between two tables, and both rows; None if none differs.

    A row that is missing in one table is returned as an empty dictionary.
    """
    order = np.lexsort(tuple(np.concatenate([t[name] for t in tables]) for name in reversed(keys)))
    joined = {name: np.concatenate([t[name] for t in tables])[order] for name in (*keys, *values)}
    source = np.repeat([0, 1], [len(t[keys[0]]) for t in tables])[order]
    rows = len(source)
    equal = np.ones(max(0, rows - 1), np.bool_)
    for name in keys:
        equal &= joined[name][1:] == joined[name][:-1]
    paired = np.zeros(rows, np.bool_)
    matches = equal.copy()
    for name in values:
        same = joined[name][1:] == joined[name][:-1]
        matches &= same.all(axis=1) if same.ndim > 1 else same
    paired[:-1] |= matches
    paired[1:] |= matches
    different = np.flatnonzero(~paired)
    if not len(different):
        return None
    at = int(different[0])
    key = tuple(int(joined[name][at]) for name in keys)
    found: list[dict[str, Any]] = [{}, {}]
    for i in (at, at + 1):
        if i < rows and tuple(int(joined[name][i]) for name in keys) == key:
            found[source[i]] = {name: joined[name][i].tolist() for name in values}
    return key, found
