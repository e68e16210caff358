"""Builder of an observation from decoded records. It is independent of any Kafka client."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from harness.evidence.bit_words import (
    EXAMPLES,
    WORD_SEQS,
    Bools,
    Columns,
    Ints,
    group_sizes,
    group_starts,
    merge,
    same_as_previous,
    single_bits,
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
    Window,
    second_output,
)
from harness.evidence.record import Identity

_COLUMNS = ("partition", "offset", "producer", "lane", "seq", "o_producer", "o_lane", "o_seq", "o_part")


@dataclass
class Records:
    """Records that one witness read, in the order of reading.

    The columns that begin with `o_` describe the input from which a pipeline output was made. They are -1 for
    other records.
    """

    rows: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, partition: int, offset: int, identity: Identity) -> None:
        """Add one record.

        `partition` is not the Kafka partition number. It is the index of the partition's window in
        Meta.windows.
        """
        origin = identity.origin
        tail = (-1, -1, -1, -1) if origin is None else origin[:4]
        self.rows.append((partition, offset, identity.producer, identity.lane, identity.seq, *tail))

    def columns(self) -> dict[str, Ints]:
        """Return the records as columns: each column name with an array of one value per record."""
        table = np.array(self.rows, np.int64).reshape(-1, len(_COLUMNS))
        return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(_COLUMNS)}


def observe(meta: Meta, records: Records, *, with_runs: bool = True) -> Observation:
    """Build an observation from records: words, origins, runs and findings.

    A record that was read twice at the same offset counts once.
    """
    return observe_columns(meta, records.columns(), with_runs=with_runs)


def observe_columns(meta: Meta, columns: dict[str, Ints], *, with_runs: bool = True) -> Observation:
    """Build an observation like `observe`, from records that are already in columns."""
    order = np.lexsort((columns["offset"], columns["partition"]))
    columns = {name: column[order] for name, column in columns.items()}
    fresh = ~_same_rows(columns, "partition", "offset")
    identical = _same_rows(columns, *_COLUMNS)
    clash = np.flatnonzero(~fresh & ~identical)
    meta.clashes = Findings(
        compared=len(fresh),
        count=len(clash),
        by_producer=_count_by_key(columns["producer"][clash]),
        examples=[_spot(meta, columns, i, other=i - 1) for i in clash[:EXAMPLES].tolist()],
    )
    # If an offset was read again, the reader was rewound. There is still only one record at this offset.
    columns = {name: column[fresh] for name, column in columns.items()}
    meta.records = len(columns["seq"])
    first = _repeats(meta, columns)
    _late(meta, columns, first)
    outputs = {name: column[columns["o_producer"] >= 0] for name, column in columns.items()}
    _twice(meta, outputs)
    return Observation(meta, _words(columns), _origins(outputs), _runs(columns) if with_runs else None)


def _same_rows(columns: dict[str, Ints], *names: str) -> Bools:
    return same_as_previous(*(columns[name] for name in names))


def _count_by_key(keys: Ints) -> list[tuple[int, int]]:
    return sum_by_key(keys, np.ones(len(keys), np.int64))


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


def _repeats(meta: Meta, columns: dict[str, Ints]) -> Bools:
    """Find repeats. Return a mask that is False for a repeat and True for every other row."""
    order = np.lexsort(
        (columns["offset"], columns["partition"], columns["seq"], columns["lane"], columns["producer"])
    )
    ordered = {name: column[order] for name, column in columns.items()}
    again = _same_rows(ordered, "producer", "lane", "seq")
    repeated = np.flatnonzero(again)
    meta.repeats = Findings(
        compared=len(again),
        count=len(repeated),
        by_producer=_count_by_key(ordered["producer"][repeated]),
        examples=[_spot(meta, ordered, i, other=i - 1) for i in repeated[:EXAMPLES].tolist()],
    )
    first = np.ones(len(again), np.bool_)
    first[order[again]] = False
    return first


def _late(meta: Meta, columns: dict[str, Ints], first: Bools) -> None:
    """Find late records.

    A record is late if a record of the same lane that was sent later has a lower offset. Only the first copy
    of each record counts; `first` marks these copies.
    """
    kept = {name: column[first] for name, column in columns.items()}
    order = np.lexsort((kept["offset"], kept["lane"], kept["producer"], kept["partition"]))
    kept = {name: column[order] for name, column in kept.items()}
    same_lane = _same_rows(kept, "partition", "producer", "lane")
    lane = np.cumsum(~same_lane) - 1
    # In lane * width + seq, every lane has higher values than all lanes before it. So the running maximum
    # starts again at the first record of every lane.
    width = int(kept["seq"].max(initial=0)) + 1
    highest = np.maximum.accumulate(lane * width + kept["seq"]) if len(lane) else lane
    late = np.flatnonzero(lane * width + kept["seq"] < highest)
    leader = np.searchsorted(highest, highest[late], side="left")
    meta.late = Findings(
        compared=int(same_lane.sum()),
        count=len(late),
        by_producer=_count_by_key(kept["producer"][late]),
        examples=[
            _spot(meta, kept, int(i), other=int(j))
            for i, j in zip(late[:EXAMPLES], leader[:EXAMPLES], strict=True)
        ],
    )


def _twice(meta: Meta, outputs: dict[str, Ints]) -> None:
    """Find outputs whose input already had an output with the same part number."""
    names = ("o_producer", "o_lane", "o_part", "o_seq")
    order = np.lexsort((outputs["offset"], outputs["partition"], *(outputs[name] for name in names[::-1])))
    ordered = {name: column[order] for name, column in outputs.items()}
    again = _same_rows(ordered, *names)
    extra, starts = np.flatnonzero(again), np.flatnonzero(~again)

    def position(i: int) -> tuple[Window, int]:
        return meta.windows[int(ordered["partition"][i])], int(ordered["offset"][i])

    meta.twice = Findings(
        compared=len(again),
        count=len(extra),
        by_producer=_count_by_key(ordered["o_producer"][extra]),
        examples=[
            second_output(
                position(i),
                position(starts[np.searchsorted(starts, i) - 1]),
                tuple(int(ordered[name][i]) for name in ("o_producer", "o_lane", "o_seq", "o_part")),
            )
            for i in extra[:EXAMPLES].tolist()
        ],
    )


def _words(columns: dict[str, Ints]) -> Rows:
    keys = ("partition", "producer", "lane", "word")
    lane = {name: columns[name] for name in keys[:-1]}
    merged = merge([lane | _word(columns["seq"]) | dict.fromkeys(("lo", "hi"), columns["offset"])], keys)
    return _rows(merged, WORD)


def _origins(columns: dict[str, Ints]) -> Rows:
    keys = ("producer", "lane", "part", "word")
    lane = {name: columns[f"o_{name}"] for name in keys[:-1]}
    return _rows(merge([lane | _word(columns["o_seq"])], keys), ORIGIN)


def _word(seq: Ints) -> Columns:
    return {"word": seq // WORD_SEQS, "bits": single_bits(seq), "n": np.ones(len(seq), np.int64)}


def _rows(columns: Columns, dtype: np.dtype[np.void]) -> Rows:
    rows = np.zeros(len(columns["word"]), dtype)
    for name in dtype.names or ():
        rows[name] = columns[name]
    return rows


def _runs(columns: dict[str, Ints]) -> Rows:
    index = np.arange(len(columns["seq"]))
    # In a run of consecutive records, the offset and the sequence both grow by one per row. So each of them
    # minus the row index is constant.
    steady = [columns[name] - index for name in ("offset", "seq")]
    starts = group_starts(*steady, *(columns[name] for name in ("partition", "producer", "lane")))
    runs = np.zeros(len(starts), RUN)
    for name in ("partition", "offset", "producer", "lane", "seq"):
        runs[name] = columns[name][starts]
    runs["count"] = group_sizes(starts, len(index))
    return runs
