"""Builder of an observation from decoded records. It is independent of any Kafka client."""

from __future__ import annotations

import zlib

import numpy as np

from harness.evidence.bit_words import (
    EXAMPLES,
    WORD_SEQS,
    Bools,
    Columns,
    Ints,
    group_sizes,
    group_starts,
    lane_key,
    merge,
    same_as_previous,
    single_bits,
    sum_by_key,
)
from harness.evidence.observation import (
    INTENTS,
    LABEL,
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
from harness.evidence.record import Identity, input_checksum

_COLUMNS = (
    *("partition", "offset", "producer", "lane", "seq", "o_producer", "o_lane", "o_seq", "o_part"),
    *("txn", "intent", "checksum", "o_checksum"),
)
_INTENT = {outcome: index for index, outcome in enumerate(INTENTS)}


class RowTable:
    """Rows of integers that a witness collects, which need little memory.

    A million tuples need several hundred megabytes. So every CHUNK rows become one array.
    """

    CHUNK = 1 << 16

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.rows: list[tuple[int, ...]] = []
        self._arrays: list[Ints] = []

    def append(self, row: tuple[int, ...]) -> None:
        self.rows.append(row)
        if len(self.rows) >= self.CHUNK:
            self._pack()

    def columns(self) -> dict[str, Ints]:
        """Return the rows as columns: each column name with an array of one value per row."""
        self._pack()
        table = np.concatenate(self._arrays)
        return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(self.names)}

    def _pack(self) -> None:
        self._arrays.append(np.array(self.rows, np.int64).reshape(-1, len(self.names)))
        self.rows = []

    def __len__(self) -> int:
        return len(self.rows) + sum(map(len, self._arrays))


class Records(RowTable):
    """Records that one witness read, in the order of reading.

    The columns that begin with `o_` describe the input from which a pipeline output was made. They are -1 for
    other records. `checksum` is the CRC-32 of the record's value, and `o_checksum` the one of the input's
    value that an output carries; -1 if it is not known.
    """

    def __init__(self) -> None:
        super().__init__(_COLUMNS)

    def add(self, partition: int, offset: int, identity: Identity, value: bytes | None = None) -> None:
        """Add one record; its checksums are computed from `value`.

        `partition` is not the Kafka partition number. It is the index of the partition's window in
        Meta.windows.
        """
        checksum = -1 if value is None else zlib.crc32(value)
        _, producer, lane, seq, txn, outcome, origin = identity
        if origin is None:
            tail = (-1, -1, -1, -1, txn, _INTENT[outcome], checksum, -1)
        else:
            carried = -1 if value is None else input_checksum(value)
            tail = (*origin[:4], txn, _INTENT[outcome], checksum, carried)
        self.append((partition, offset, producer, lane, seq, *tail))


def observe(meta: Meta, records: Records, *, with_runs: bool = True) -> Observation:
    """Build an observation from records: words, origins, runs and findings.

    A record that was read twice at the same offset counts once.
    """
    return observe_columns(meta, records.columns(), with_runs=with_runs)


def observe_columns(meta: Meta, columns: dict[str, Ints], *, with_runs: bool = True) -> Observation:
    """Build an observation like `observe`, from records that are already in columns.

    Without the columns `txn` and `intent`, the observation has no labels. Without the checksums, no output is
    compared with its input.
    """
    order = np.lexsort((columns["offset"], columns["partition"]))
    columns = {name: column[order] for name, column in columns.items()}
    fresh = ~_same_rows(columns, "partition", "offset")
    identical = _same_rows(columns, *columns)
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
    if "o_checksum" in columns:
        _corrupted(meta, columns)
    return Observation(
        meta,
        _words(columns),
        _origins(outputs),
        _runs(columns) if with_runs else None,
        labels=join_labels(columns, LABEL) if "txn" in columns else None,
    )


def observe_outputs(meta: Meta, records: Records, *, counted: bool) -> Observation:
    """Build an observation of an output topic of an application, from the tokens in its records.

    With `counted`, the table `origins` contains the outputs of each input: a row with part number `r` marks
    the inputs that have more than `r` outputs.
    """
    observation = observe(meta, records, with_runs=False)
    observation.labels = None  # tokens contain no transaction number
    if counted:
        observation.origins = _ranks(records.columns())
        meta.twice.compared = int(observation.origins["n"].sum())
    return observation


def _ranks(columns: dict[str, Ints]) -> Rows:
    """Number the outputs of each input, and return the inputs that have an output with each number."""
    order = np.lexsort(
        (columns["offset"], columns["partition"], columns["seq"], columns["lane"], columns["producer"])
    )
    ordered = {name: columns[name][order] for name in ("partition", "offset", "producer", "lane", "seq")}
    fresh = ~_same_rows(ordered, "producer", "lane", "seq", "partition", "offset")
    ordered = {name: column[fresh] for name, column in ordered.items()}
    starts = np.flatnonzero(~_same_rows(ordered, "producer", "lane", "seq"))
    sizes = group_sizes(starts, len(ordered["seq"]))
    rank = np.arange(len(ordered["seq"])) - np.repeat(starts, sizes)
    keys = ("producer", "lane", "part", "word")
    lane = {"producer": ordered["producer"], "lane": ordered["lane"], "part": rank}
    return _rows(merge([lane | _word(ordered["seq"])], keys), ORIGIN)


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


def join_labels(columns: dict[str, Ints], dtype: np.dtype[np.void]) -> Rows:
    """Join records with consecutive sequences and equal values in all other columns of `dtype`.

    A row of the result has the first and last sequence, the number of records, and their lowest and highest
    offset.
    """
    computed = ("first", "last", "n", "lo", "hi")
    same = [name for name in dtype.names or () if name not in computed]
    lane = ("partition", "producer", "lane")
    rest = [name for name in same if name not in lane]
    # Sort by sequence within a lane. Records of one lane that have other labels then end a row.
    keys = [*(columns[name] for name in rest), columns["offset"], columns["seq"]]
    order = np.lexsort((*keys, *(columns[name] for name in reversed(lane))))
    ordered = {name: columns[name][order] for name in (*same, "seq", "offset")}
    new = ~_same_rows(ordered, *same)
    new[1:] |= np.diff(ordered["seq"]) > 1
    starts = np.flatnonzero(new)
    rows = np.zeros(len(starts), dtype)
    if not len(starts):
        return rows
    for name in same:
        rows[name] = ordered[name][starts]
    rows["n"] = group_sizes(starts, len(order))
    rows["first"], rows["last"] = ordered["seq"][starts], ordered["seq"][starts + rows["n"] - 1]
    rows["lo"] = np.minimum.reduceat(ordered["offset"], starts)
    rows["hi"] = np.maximum.reduceat(ordered["offset"], starts)
    return rows


def _corrupted(meta: Meta, columns: dict[str, Ints]) -> None:
    """Find outputs of a pipeline that carry another checksum than that of the input's value."""
    outputs = np.flatnonzero(columns["o_checksum"] >= 0)
    inputs = np.flatnonzero(columns["checksum"] >= 0)
    if not len(outputs) or not len(inputs):
        return
    lane = np.concatenate(
        [
            lane_key(columns["producer"][inputs], columns["lane"][inputs]),
            lane_key(columns["o_producer"][outputs], columns["o_lane"][outputs]),
        ]
    )
    seq = np.concatenate([columns["seq"][inputs], columns["o_seq"][outputs]])
    # Number the lanes from 0, so that a lane and a sequence fit into one key.
    keys = np.unique(lane, return_inverse=True)[1] * (int(seq.max()) + 1) + seq
    known, first = np.unique(keys[: len(inputs)], return_index=True)
    wanted = keys[len(inputs) :]
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    compared = known[at] == wanted
    outputs, source = outputs[compared], inputs[first[at[compared]]]
    wrong = np.flatnonzero(columns["o_checksum"][outputs] != columns["checksum"][source])
    meta.corrupted = Findings(
        compared=len(outputs),
        count=len(wrong),
        by_producer=_count_by_key(columns["producer"][outputs[wrong]]),
        examples=[_corrupted_spot(meta, columns, int(outputs[i]), int(source[i])) for i in wrong[:EXAMPLES]],
    )


def _corrupted_spot(meta: Meta, columns: dict[str, Ints], output: int, source: int) -> Spot:
    window = meta.windows[int(columns["partition"][source])]
    return Spot(
        topic=meta.windows[int(columns["partition"][output])].topic,
        partition=meta.windows[int(columns["partition"][output])].partition,
        offset=int(columns["offset"][output]),
        producer=int(columns["producer"][output]),
        lane=int(columns["lane"][output]),
        seq=int(columns["seq"][output]),
        other_seq=int(columns["seq"][source]),
        detail=f"it carries checksum {columns['o_checksum'][output]:08x}, and its input "
        f"{window.topic}-{window.partition} offset {columns['offset'][source]} "
        f"has {columns['checksum'][source]:08x}",
    )
