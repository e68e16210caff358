"""Observation: the records that one witness read, as bit words, with findings about single records.

A word covers 256 consecutive sequences of one lane. Its 256 bits (4 x 64) mark the sequences that were read.
`n` is the number of records read, and `lo` and `hi` are their lowest and highest offset. A billion records
fit into four million words, and no record is left out. Bit words do not show some findings, such as a wrong
order. The witness looks for these while it reads. docs/record-format.md describes the format on disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from harness.base.errors import UsageError, describe_error
from harness.base.unreadable import UNREADABLE
from harness.evidence.contract_statement import StatementResult

FORMAT: Final = 1

Rows = npt.NDArray[np.void]

WORD: Final = np.dtype(
    [
        ("partition", "<i4"),  # index into Meta.windows
        ("producer", "<i4"),
        ("lane", "<i4"),
        ("word", "<i8"),  # number of the word: sequence divided by 256, rounded down
        ("bits", "<u8", (4,)),
        ("n", "<i8"),
        ("lo", "<i8"),
        ("hi", "<i8"),
    ]
)
ORIGIN: Final = np.dtype(
    [
        ("producer", "<i4"),
        ("lane", "<i4"),
        ("part", "<i4"),
        ("word", "<i8"),
        ("bits", "<u8", (4,)),
        ("n", "<i8"),
    ]
)
AGGREGATE: Final = np.dtype(
    [
        ("partition", "<i4"),
        ("key", "<i4"),
        ("inputs", "<i8"),
        ("total", "<i8"),
        ("offset", "<i8"),  # offset of the last changelog record of the key
    ]
)
RUN: Final = np.dtype(
    [
        ("partition", "<i4"),
        ("offset", "<i8"),
        ("producer", "<i4"),
        ("lane", "<i4"),
        ("seq", "<i8"),
        ("count", "<i8"),
    ]
)

INTENTS: Final = ("n", "c", "a")
"""Intended outcomes that records carry. Tables contain the index of an outcome in this tuple."""
LABEL: Final = np.dtype(
    [
        ("partition", "<i4"),
        ("producer", "<i4"),
        ("lane", "<i4"),
        ("txn", "<i8"),
        ("intent", "<i4"),  # index into INTENTS
        ("first", "<i8"),  # first and last sequence
        ("last", "<i8"),
        ("n", "<i8"),
        ("lo", "<i8"),  # lowest and highest offset
        ("hi", "<i8"),
    ]
)
MARKER: Final = np.dtype(
    [
        *((name, LABEL[name]) for name in LABEL.names or ()),
        ("pid", "<i8"),  # producer id and epoch of the batches
        ("epoch", "<i4"),
        ("marker", "<i8"),  # offset of the marker that ended the transaction, -1 if there is none
        ("decision", "<i4"),  # 1: commit, 0: abort, -1: no marker
        ("marker_epoch", "<i4"),
        ("coordinator_epoch", "<i4"),
    ]
)


_TABLES: Final = {
    "words": WORD,
    "origins": ORIGIN,
    "runs": RUN,
    "aggregates": AGGREGATE,
    "labels": LABEL,
    "markers": MARKER,
}


class Window(msgspec.Struct, forbid_unknown_fields=True):
    """Range of offsets that a witness read in one partition. It includes `start` but not `read_to`."""

    topic: str
    partition: int
    start: int
    lso: int
    hw: int
    read_to: int


class Spot(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Example of a finding: the place of a record, and of the other record with which it is compared.

    `other_offset` is -1 if there is no other record in the same partition.
    """

    topic: str
    partition: int
    offset: int
    producer: int = -1
    lane: int = -1
    seq: int = -1
    other_offset: int = -1
    other_seq: int = -1
    detail: str = ""


class Findings(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Findings of one kind, with at most EXAMPLES examples.

    `compared` is the number of records that were checked, and `count` is the number of findings among them.
    """

    compared: int = 0
    count: int = 0
    by_producer: list[tuple[int, int]] = []
    examples: list[Spot] = []


class Reading(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Which reader of Spark's jobs read the records of an observation.

    `reason` is why it was not the fastest one. `sampled` is the number of offsets that Spark's Kafka source
    read as well, with the same result. `difference` is the first difference between the two readers.
    """

    reader: str = ""
    reason: str = ""
    sampled: int = 0
    difference: str = ""


class Meta(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Metadata of an observation: everything except its tables."""

    witness: str
    kind: Literal["reference", "spark", "raw", "client"]
    format: int = FORMAT
    run: str = ""  # id of the run; empty in observations of versions that did not store it
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    purpose: Literal["all", "consumed", "aggregates", "outputs", "required", "statements"] = "all"
    complete: bool = False
    clock: str = ""
    finished: int = 0
    frozen: int = 0
    records: int = 0
    tables: list[str] = []  # names of the stored tables: `save` sets it, `load` checks and clears it
    rows: dict[str, int] = {}  # number of rows of each stored table: likewise
    windows: list[Window] = []
    group: str = ""
    positions: list[tuple[str, int, int]] = []
    foreign: Findings = msgspec.field(default_factory=Findings)
    late: Findings = msgspec.field(default_factory=Findings)
    repeats: Findings = msgspec.field(default_factory=Findings)
    clashes: Findings = msgspec.field(default_factory=Findings)
    epochs: Findings = msgspec.field(default_factory=Findings)
    twice: Findings = msgspec.field(default_factory=Findings)
    corrupted: Findings = msgspec.field(default_factory=Findings)
    statements: list[StatementResult] = []
    reading: Reading = msgspec.field(default_factory=Reading)
    detail: str = ""


def second_output(here: tuple[Window, int], first: tuple[Window, int], origin: tuple[int, ...]) -> Spot:
    """Describe an extra output: its input already had an output with the same part number.

    `here` is the window and the offset of the extra output. `first` is the window and the offset of the first
    output. `origin` contains the input's producer, lane and sequence, and the part number.
    """
    (window, offset), (before, other) = here, first
    producer, lane, seq, part = origin
    same_partition = (before.topic, before.partition) == (window.topic, window.partition)
    detail = f"part {part}, first made at {before.topic}-{before.partition} offset {other}"
    return Spot(
        topic=window.topic,
        partition=window.partition,
        offset=offset,
        producer=producer,
        lane=lane,
        seq=seq,
        other_offset=other if same_partition else -1,
        detail=detail,
    )


@dataclass
class Observation:
    """The records that one witness read, as tables.

    `words` contains the records as bit words. `origins` contains the inputs of pipeline outputs as bit words.
    `runs` contains runs of consecutive records; it exists only if the log is small. `aggregates` contains the
    last changelog record of each key. `labels` contains the transaction numbers and intended outcomes that
    the records carry. `markers` contains the parts of transactions in each partition, with the markers that
    ended them; only the raw log has it.
    """

    meta: Meta
    words: Rows = field(default_factory=lambda: np.zeros(0, WORD))
    origins: Rows = field(default_factory=lambda: np.zeros(0, ORIGIN))
    runs: Rows | None = None
    aggregates: Rows | None = None
    labels: Rows | None = None
    markers: Rows | None = None

    @property
    def rows(self) -> int:
        """Number of Kafka records that the witness read, including those that do not belong to the run."""
        return self.meta.records + self.meta.foreign.count

    def window(self, index: int) -> Window:
        """Return the window with this index. The column `partition` of a row contains such an index."""
        return self.meta.windows[index]


def save(observation: Observation, directory: Path) -> None:
    """Write an observation to a directory.

    meta.json is written last. If it exists, the other files are complete.
    """
    directory.mkdir(parents=True, exist_ok=True)
    rows = {
        "words": observation.words,
        "origins": observation.origins,
        "runs": observation.runs,
        "aggregates": observation.aggregates,
        "labels": observation.labels,
        "markers": observation.markers,
    }
    stored = {name: table for name, table in rows.items() if table is not None}
    for name, table in stored.items():
        (directory / f"{name}.jsonl").write_bytes(_encode_rows(table))
    lengths = {name: len(table) for name, table in stored.items()}
    meta = msgspec.structs.replace(observation.meta, tables=list(stored), rows=lengths)
    (directory / "meta.json").write_bytes(msgspec.json.format(msgspec.json.encode(meta)) + b"\n")


def load(directory: Path) -> Observation:
    """Read an observation.

    Raise UsageError with the reason if a file is missing, is damaged, or contradicts the numbers of records
    in meta.json.
    """
    meta_path = directory / "meta.json"
    hint = "read the cluster again, or restore the run directory"
    try:
        if not meta_path.exists():
            raise UsageError(
                f"the observation {directory} has no meta.json",
                "the witness died before it finished: read the cluster again, or remove the directory",
            )
        meta = msgspec.json.decode(meta_path.read_bytes(), type=Meta)
        tables = {
            name: _decode_rows(directory / f"{name}.jsonl", dtype)
            for name, dtype in _TABLES.items()
            if name in ("words", "origins", *meta.tables) or (directory / f"{name}.jsonl").exists()
        }
    except UNREADABLE as error:
        raise UsageError(f"the observation {directory} is damaged: {describe_error(error)}", hint) from error
    if meta.format != FORMAT:
        raise UsageError(
            f"the observation {directory} has format {meta.format}, but this version reads {FORMAT}",
            "read it with the version of the harness that wrote it",
        )
    lengths = {name: len(table) for name, table in tables.items()}
    cut = [name for name, number in meta.rows.items() if lengths.get(name) != number]
    problem = (
        f"{cut[0]}.jsonl has other rows than the {meta.rows[cut[0]]} that meta.json lists" if cut else ""
    )
    meta.tables, meta.rows = [], {}
    observation = Observation(meta, **tables)
    if problem := _contradiction(observation) or problem:
        raise UsageError(f"the observation {directory} is damaged: {problem}", hint)
    return observation


def _contradiction(observation: Observation) -> str:
    """Return how the tables contradict meta.json or themselves, or "" if they do not.

    `twice.compared` is the number of records that have an origin, so it must be the sum of the origins.
    """
    meta = observation.meta
    sums = [("words", observation.words, "records", meta.records)]
    sums.append(("origins", observation.origins, "records with an origin", meta.twice.compared))
    if observation.runs is not None and len(observation.runs):
        sums.append(("runs", observation.runs, "records", meta.records))
    if observation.labels is not None:
        sums.append(("labels", observation.labels, "records", meta.records))
    for name, rows, unit, promised in sums:
        counts = rows["count" if name == "runs" else "n"]
        if len(counts) and int(counts.min()) < 1:
            return f"{name}.jsonl has a count below 1"
        if (total := sum(counts.tolist())) != promised:
            return f"{name}.jsonl contains {total} {unit}, but meta.json lists {promised}"
    for name in ("words", "runs", "aggregates", "labels", "markers"):
        table = getattr(observation, name)
        index = np.zeros(0) if table is None else table["partition"]
        if len(index) and not 0 <= index.min() <= index.max() < len(meta.windows):
            return f"{name}.jsonl names a window that meta.json does not list"
    return ""


def _encode_rows(rows: Rows) -> bytes:
    names = rows.dtype.names or ()
    # Write quarters as signed numbers, because Spark's bit_or also returns signed numbers.
    columns = [rows[n].astype("<i8").tolist() if n == "bits" else rows[n].tolist() for n in names]
    lines = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    return msgspec.json.Encoder().encode_lines(lines)


def _decode_rows(path: Path, dtype: np.dtype[np.void]) -> Rows:
    """Decode a table. Raise ValueError, KeyError or OverflowError if a line does not fit into its columns."""
    lines = msgspec.json.Decoder(dict[str, int | list[int]]).decode_lines(path.read_bytes())
    rows = np.zeros(len(lines), dtype)
    for name in dtype.names or ():
        if not lines:
            break
        column = np.array([line[name] for line in lines], np.int64)
        if column.shape != rows[name].shape:
            raise ValueError(f"{path.name}: {name} has the wrong number of values")
        rows[name] = column.astype(np.uint64) if name == "bits" else column
        if name != "bits" and not np.array_equal(rows[name], column):
            raise ValueError(f"{path.name}: {name} has a number that is too large")
    return rows
