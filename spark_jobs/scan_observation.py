"""Construction of an observation from the rows of a scan.

This code runs with numpy in the Spark driver. That is possible because a scan returns only about one row per
256 records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from harness.evidence.bit_words import (
    EXAMPLES,
    WORD_SEQS,
    Bools,
    Columns,
    Ints,
    group_sizes,
    group_starts,
    lowest_and_highest,
    merge,
    popcount,
    sum_by_key,
)
from harness.evidence.observation import (
    ORIGIN,
    RUN,
    WORD,
    Findings,
    Meta,
    Observation,
    Rows,
    Spot,
    second_output,
)
from spark_jobs import scan_rows as row
from spark_jobs.scan_rows import columns_of
from spark_jobs.second_scan import WordSet

_LANE = ("window", "producer", "lane")
_INPUT = ("producer", "lane", "part", "word")


@dataclass
class Doubts:
    """What a second scan must read.

    These are words with repeated records, lanes whose order is in doubt, and inputs with extra outputs.
    """

    repeats: Columns
    """Words with repeated records, as columns: window, producer, lane, word, lo, hi.

    `lo` and `hi` are the lowest and the highest offset of the word's records in this window.
    """
    lanes: Ints
    """Packed keys of the lanes whose order is in doubt."""
    earlier: WordSet
    """Set of records that occur in several windows.

    A window is the range of offsets to read in one partition. For each window, the set contains the records
    that also occur in a window with a lower number.
    """
    twice: Columns
    """Words of inputs with extra outputs, as columns: window, producer, lane, part, word, lo, hi.

    `part` is the part number of the outputs. `lo` and `hi` are the lowest and the highest offset of the
    outputs.
    """

    def __bool__(self) -> bool:
        return bool(len(self.lanes) or len(self.repeats["word"]) or len(self.twice["word"]))

    def words(self) -> WordSet:
        """Return the words with repeated records, as a set for the second scan."""
        lane = row.pack(*(np.zeros_like(self.repeats["word"]), *(self.repeats[name] for name in _LANE)))
        return WordSet.of(lane, self.repeats["word"])

    def inputs(self) -> WordSet:
        """Return the words of inputs with extra outputs, as a set for the second scan.

        In this set, a packed lane key contains the part number of the outputs instead of the window.
        """
        lane = row.pack(
            np.zeros_like(self.twice["word"]), *(self.twice[n] for n in ("part", "producer", "lane"))
        )
        return WordSet.of(lane, self.twice["word"])


class ScanObservation:
    """Builder of the observation of one witness from the rows of its scan.

    The column `window` of these rows contains window numbers. `first_window` is the number of the
    observation's first window.
    """

    def __init__(self, meta: Meta, table: pa.Table, first_window: int = 0) -> None:
        self.meta = meta
        self.first_window = first_window
        kinds = np.asarray(table["kind"])
        self._kinds = {
            kind: table.filter(pa.array(kinds == kind))
            for kind in (row.WORD, row.ORIGIN, row.RUN, row.FOREIGN, row.CLASH)
        }
        raw = columns_of(self._kinds[row.WORD], (*_LANE, "word", "n", "aborted", "late", "lo", "hi"))
        raw.setdefault("segment", np.zeros(len(raw["word"]), np.int64))
        self.raw = raw
        merged = {name: column for name, column in raw.items() if name != "segment"}
        self.words = merge([merged], (*_LANE, "word"))

    @property
    def aborted(self) -> int:
        """Number of records that were read although their intended outcome is abort."""
        return int(self.words["aborted"].sum())

    def doubts(self) -> Doubts:
        """Count repeated records and extra outputs, and return what a second scan must read."""
        # Ignore the partition here: a record may be repeated in another partition.
        columns = {name: self.words[name] for name in ("producer", "lane", "word", "bits", "n")}
        united = merge([columns], ("producer", "lane", "word"))
        extra = united["n"] - popcount(united["bits"])
        repeated = np.flatnonzero(extra > 0)
        self.meta.records = int(self.words["n"].sum())
        self.meta.repeats = Findings(
            compared=self.meta.records,
            count=int(extra.sum()),
            by_producer=sum_by_key(united["producer"][repeated], extra[repeated]),
        )
        first, earlier = self._first_appearances()
        lane_starts = group_starts(*(self.words[name] for name in _LANE))
        lanes = int(np.count_nonzero(np.add.reduceat(first, lane_starts))) if len(lane_starts) else 0
        self.meta.late = Findings(compared=int(first.sum()) - lanes)
        repeats = self._example_words(united, repeated)
        return Doubts(repeats, self._doubtful(), earlier, self._outputs_too_many())

    def _outputs_too_many(self) -> Columns:
        """Count extra outputs: their input already has an output with the same part number.

        Return the rows of the first EXAMPLES words that contain inputs with extra outputs. The report takes
        its examples from these words.
        """
        names = ("window", *_INPUT, "lo", "hi")
        columns = columns_of(self._kinds[row.ORIGIN], (*names, "n"))
        if not len(columns["word"]):
            return columns
        columns.pop("segment", None)
        united = merge([{name: columns[name] for name in (*_INPUT, "bits", "n")}], _INPUT)
        extra = united["n"] - popcount(united["bits"])
        again = np.flatnonzero(extra > 0)
        self.meta.twice = Findings(
            compared=int(united["n"].sum()),
            count=int(extra.sum()),
            by_producer=sum_by_key(united["producer"][again], extra[again]),
        )
        keep = np.zeros(len(columns["word"]), np.bool_)
        for i in again[:EXAMPLES].tolist():
            keep |= np.logical_and.reduce([columns[name] == united[name][i] for name in _INPUT])
        return {name: columns[name][keep] for name in names}

    def _first_appearances(self) -> tuple[Ints, WordSet]:
        """Count, for each row of `words`, the records that occur in no window with a lower number.

        A record may occur in several windows, because a window is a range of offsets in one partition. Also
        return the set of the other records, which do occur in a window with a lower number.
        """
        words = self.words
        order = np.lexsort((words["window"], words["word"], words["lane"], words["producer"]))
        keys = [words[name][order] for name in ("producer", "lane", "word")]
        starts = group_starts(*keys)
        bits = words["bits"][order].copy()
        before = np.zeros_like(bits)
        sizes = group_sizes(starts, len(order))
        # Step 1 processes the second window of every word that occurs in several windows, step 2 the third
        # window, and so on. Hardly any word occurs in many windows, so there are few steps.
        for step in range(1, int(sizes.max(initial=1))):
            at = starts[sizes > step] + step
            before[at] = before[at - 1] | bits[at - 1]
        first = np.empty(len(order), np.int64)
        first[order] = popcount(bits & ~before)
        again = np.flatnonzero((bits & before).any(axis=1))
        lane = row.pack(np.zeros_like(again), *(words[name][order][again] for name in _LANE))
        return first, WordSet.of(lane, words["word"][order][again], before[again])

    def _doubtful(self) -> Ints:
        """Return the lanes whose order must be checked record by record, as packed keys."""
        raw = self.raw
        if not len(raw["word"]):
            return np.zeros(0, np.int64)
        key = row.pack(np.zeros_like(raw["word"]), *(raw[name] for name in _LANE))
        order = np.lexsort((raw["lo"], key))
        first, last = lowest_and_highest(raw["bits"][order])
        base = raw["word"][order] * WORD_SEQS
        broken = _not_rising(key[order], base + first, base + last)
        doubtful = np.unique(np.append(key[order][broken], key[raw["late"] > 0]))
        # Leave out the lanes that certainly have no late record. Such a lane meets two conditions. All its
        # rows are in one segment. Every record whose sequence is not above the highest sequence before it in
        # the lane is a repeat. A segment is the rows of one streaming batch; a batch job has only one
        # segment.
        lanes, index = np.unique(key, return_inverse=True)
        behind = np.bincount(index, raw["late"])
        again = np.bincount(index, raw["n"] - popcount(raw["bits"]))
        low, high = np.full(len(lanes), np.iinfo(np.int64).max), np.full(len(lanes), -1, np.int64)
        np.minimum.at(low, index, raw["segment"])
        np.maximum.at(high, index, raw["segment"])
        settled = lanes[(behind == again) & (low == high)]
        return np.setdiff1d(doubtful, settled)

    def _example_words(self, united: Columns, repeated: Ints) -> Columns:
        """Return the rows of the first EXAMPLES words with repeated records, one row for each window.

        A window is the range of offsets to read in one partition. The report takes its examples from these
        words.
        """
        names = ("producer", "lane", "word")
        chosen = zip(*(united[name][repeated[:EXAMPLES]].tolist() for name in names), strict=True)
        # A chosen word may occur in several windows. Select it in all of them.
        keep = np.zeros(len(self.words["word"]), np.bool_)
        for producer, lane, word in chosen:
            same = (self.words["word"] == word) & (self.words["producer"] == producer)
            keep |= same & (self.words["lane"] == lane)
        return {name: self.words[name][keep] for name in ("window", *names, "lo", "hi")}

    def close(self, records: pa.Table, late: pa.Table, outputs: pa.Table) -> Observation:
        """Add late records, foreign records, clashes and examples, and return the complete observation.

        A clash is an offset at which two different records were read. The arguments are the rows that the
        three second scans returned.
        """
        self._name_repeats(records)
        self._name_twice(outputs)
        self._name_late(late)
        self._name_foreign()
        self._name_clashes()
        return Observation(self.meta, self._word_rows(), self._origin_rows(), self._run_rows())

    def close_without_second_scans(self) -> Observation:
        """Return the observation without the findings that need a second scan.

        These are late records, and the examples of repeated records and of extra outputs.
        """
        self.doubts()
        empty = row.SCHEMA.empty_table()
        return self.close(empty, empty, empty)

    def _spot(self, columns: Columns, i: int, **more: Any) -> Spot:
        window = self.meta.windows[int(columns["window"][i]) - self.first_window]
        given = {"seq": int(columns["word"][i]), **more}
        return Spot(
            topic=window.topic,
            partition=window.partition,
            offset=int(columns["lo"][i]),
            producer=int(columns["producer"][i]),
            lane=int(columns["lane"][i]),
            **given,
        )

    def _name_repeats(self, records: pa.Table) -> None:
        columns = columns_of(records, (*_LANE, "word", "lo"))
        names = ("lo", "window", "word", "lane", "producer")
        order = np.lexsort(tuple(columns[name] for name in names))
        columns = {name: column[order] for name, column in columns.items()}
        starts = group_starts(*(columns[name] for name in ("producer", "lane", "word")))
        again = np.setdiff1d(np.arange(len(order)), starts)[:EXAMPLES].tolist()
        self.meta.repeats.examples = [
            self._spot(
                columns, i, other_offset=int(columns["lo"][i - 1]), other_seq=int(columns["word"][i - 1])
            )
            for i in again
        ]

    def _name_twice(self, outputs: pa.Table) -> None:
        columns = columns_of(outputs, ("window", *_INPUT, "lo"))
        order = np.lexsort(tuple(columns[n] for n in ("lo", "window", "word", "part", "lane", "producer")))
        columns = {name: column[order] for name, column in columns.items()}
        starts = group_starts(*(columns[name] for name in _INPUT))
        again = np.setdiff1d(np.arange(len(order)), starts)[:EXAMPLES].tolist()
        first = starts[np.searchsorted(starts, again, side="right") - 1].tolist() if again else []
        places = [self.meta.windows[window - self.first_window] for window in columns["window"].tolist()]
        self.meta.twice.examples = [
            second_output(
                (places[i], int(columns["lo"][i])),
                (places[j], int(columns["lo"][j])),
                tuple(int(columns[name][i]) for name in ("producer", "lane", "word", "part")),
            )
            for i, j in zip(again, first, strict=True)
        ]

    def _name_late(self, late: pa.Table) -> None:
        columns = columns_of(late, (*_LANE, "word", "lo", "n", "b0", "hi"))
        self.meta.late.count = int(columns["n"].sum())
        counted = columns["n"] > 0
        self.meta.late.by_producer = sum_by_key(columns["producer"][counted], columns["n"][counted])
        named = np.flatnonzero(columns["lo"] >= 0)
        order = np.lexsort(tuple(columns[name][named] for name in ("lo", "lane", "producer", "window")))
        self.meta.late.examples = [
            self._spot(columns, i, other_offset=int(columns["hi"][i]), other_seq=int(columns["b0"][i]))
            for i in named[order][:EXAMPLES].tolist()
        ]

    def _name_foreign(self) -> None:
        table = self._kinds[row.FOREIGN]
        columns = columns_of(table, (*_LANE, "word", "lo", "n"))
        why = table["detail"].to_pylist()
        count = int(columns["n"].sum())
        order = np.lexsort((columns["lo"], columns["window"]))
        named = [i for i in order.tolist() if columns["lo"][i] >= 0][:EXAMPLES]
        unknown = {"seq": -1, "producer": -1, "lane": -1}
        self.meta.foreign = Findings(
            count=count,
            examples=[
                msgspec.structs.replace(self._spot(columns, i, detail=why[i]), **unknown) for i in named
            ],
        )

    def _name_clashes(self) -> None:
        columns = columns_of(self._kinds[row.CLASH], (*_LANE, "word", "lo", "b0"))
        order = np.lexsort((columns["lo"], columns["window"]))
        self.meta.clashes = Findings(
            compared=self.meta.records,
            count=len(order),
            by_producer=sum_by_key(columns["producer"], np.ones(len(order), np.int64)),
            examples=[
                self._spot(columns, i, other_offset=int(columns["lo"][i]), other_seq=int(columns["b0"][i]))
                for i in order[:EXAMPLES].tolist()
            ],
        )

    def _word_rows(self) -> Rows:
        words = np.zeros(len(self.words["word"]), WORD)
        for name in ("producer", "lane", "word", "bits", "n", "lo", "hi"):
            words[name] = self.words[name]
        words["partition"] = self.words["window"] - self.first_window
        return words

    def _origin_rows(self) -> Rows:
        columns = columns_of(self._kinds[row.ORIGIN], ("producer", "lane", "part", "word", "n"))
        columns = merge([columns], ("producer", "lane", "part", "word"))
        origins = np.zeros(len(columns["word"]), ORIGIN)
        for name in ("producer", "lane", "part", "word", "bits", "n"):
            origins[name] = columns[name]
        return origins

    def _run_rows(self) -> Rows | None:
        columns = columns_of(self._kinds[row.RUN], (*_LANE, "word", "lo", "n"))
        order = np.lexsort((columns["lo"], columns["window"]))
        runs = np.zeros(len(order), RUN)
        for name, source in (("offset", "lo"), ("producer", "producer"), ("lane", "lane"), ("seq", "word")):
            runs[name] = columns[source][order]
        runs["partition"] = columns["window"][order] - self.first_window
        runs["count"] = columns["n"][order]
        return runs


def _not_rising(key: Ints, first: Ints, last: Ints) -> Bools:
    """Return a mask of the rows that start at or below the highest sequence of an earlier row of their lane.

    Rows are sorted by lane. For each row, `key` is its lane, and `first` and `last` are its lowest and
    highest sequence.
    """
    broken = np.zeros(len(key), np.bool_)
    if not len(key):
        return broken
    starts = group_starts(key)
    lane = np.repeat(np.arange(len(starts)), group_sizes(starts, len(key)))
    width = int(last.max()) + 2
    highest = np.maximum.accumulate(lane * width + last)
    broken[1:] = (lane[1:] == lane[:-1]) & (lane[1:] * width + first[1:] <= highest[:-1])
    return broken
