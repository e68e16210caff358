"""Measure the data volume of a large verification: rows and bytes to the driver, and bytes of shuffle.

    python -m tools.bench.scale [--rows 10000000 100000000] [--partitions 4] [--heap 2g]

The tasks generate the records and scan them in place, so neither Kafka nor the network limits the size. A
task returns the same rows as for a topic. Every transaction has 20,000 records, and one in ten is aborted.
The ledger's intervals are joined with the words as in every verification.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from harness.evidence.ledger import ABORTED, COMMITTED
from harness.witness.spark.spark_session import DEFAULT_MASTER, start_session
from spark_jobs import scan_rows as row
from spark_jobs.scan_pass import Wanted, scan_words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN: Final = "scale001"
TXN: Final = 20_000
BATCH: Final = 50_000


def intervals(records: int, partitions: int) -> dict[str, Any]:
    """Return the committed and aborted intervals of every lane, with one producer per partition."""
    share = TXN // partitions
    count = records // partitions // share
    first = np.tile(np.arange(count) * share, partitions)
    txn = np.tile(np.arange(count), partitions)
    return {
        "first": first,
        "last": first + share - 1,
        "txn": txn,
        "lane": np.repeat(np.arange(partitions), count).astype(np.int32),
        "fate": np.where(txn % 10 == 9, ABORTED, COMMITTED).astype(np.int32),
    }


def scan_generated(records: int, partitions: int) -> Any:
    """Return a function for mapInArrow that generates the log of its partitions and scans it."""
    wanted, share = Wanted(RUN), TXN // partitions
    count = records // partitions // share

    def log(partition: int) -> Iterator[pa.RecordBatch]:
        kept = np.flatnonzero(np.arange(count) % 10 != 9)
        seqs = (kept[:, None] * share + np.arange(share)).reshape(-1)
        head = f"EOS1{RUN}{partition:06d}{partition:05d}".encode()
        for at in range(0, len(seqs), BATCH):
            seq = seqs[at : at + BATCH]
            table = np.full((len(seq), 48), ord("0"), np.uint8)
            table[:, : len(head)] = np.frombuffer(head, np.uint8)
            for place, digits, number in ((23, 12, seq), (35, 11, seq // share)):
                left = number.copy()
                for i in range(digits - 1, -1, -1):
                    left, digit = np.divmod(left, 10)
                    table[:, place + i] += digit.astype(np.uint8)
            table[:, 46:] = np.frombuffer(b"cr", np.uint8)
            offsets = pa.py_buffer((np.arange(len(seq) + 1) * 48).astype(np.int32).tobytes())
            buffers = [None, offsets, pa.py_buffer(table.tobytes())]
            columns = [
                pa.array(np.full(len(seq), partition, np.int32)),
                pa.array(seq + seq // share),
                pa.Array.from_buffers(pa.binary(), len(seq), buffers),
            ]
            yield pa.RecordBatch.from_arrays(columns, names=["window", "offset", "value"])

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                yield from scan_words(wanted)(log(partition))

    return run


def shuffled(spark: SparkSession) -> int:
    """Return the bytes that all tasks of this session have written for shuffles."""
    java: Any = spark.sparkContext._jsc
    executors = java.sc().statusStore().executorList(True)
    return int(sum(executors.apply(i).totalShuffleWrite() for i in range(executors.size())))


def measure(spark: SparkSession, records: int, partitions: int) -> dict[str, float]:
    """Scan and check this many records; return seconds, rows and bytes."""
    from spark_jobs.crosscheck import Frames, findings
    from spark_jobs.expected_words import frame_of

    before, start = shuffled(spark), time.perf_counter()
    source = spark.range(0, partitions, 1, partitions)
    rows = source.mapInArrow(scan_generated(records, partitions), row.DDL).toArrow().cast(row.SCHEMA)
    scanned = time.perf_counter() - start
    planned = intervals(records, partitions)
    size = len(planned["lane"])
    zeros = np.zeros(size, np.int32)
    lanes = np.arange(partitions, dtype=np.int32)
    yes = np.ones(partitions, np.bool_)
    promised = {"covered": yes, "no_duplicates": yes, "no_loss": yes, "ordered": yes}
    declared = {"case": lanes * 0, "window": lanes, "producer": lanes, "lane": lanes, **promised}
    frames = Frames(
        frame_of(spark, [rows.append_column("case", pa.array(np.zeros(rows.num_rows, np.int32)))]),
        frame_of(spark, [pa.table(declared)]),
        frame_of(
            spark,
            [
                pa.table(
                    {
                        "case": zeros,
                        "producer": planned["lane"],
                        "grp": planned["txn"].astype(np.int32),
                        **planned,
                    }
                )
            ],
        ),
    )
    unexpected = findings(frames).collect()
    assert not unexpected, unexpected  # the log holds exactly the committed records
    scanned_records = int(np.asarray(rows["n"]).sum())
    committed = int((planned["last"] - planned["first"] + 1)[planned["fate"] == COMMITTED].sum())
    assert scanned_records == committed, (scanned_records, committed)
    return {
        "records": scanned_records,
        "rows": rows.num_rows,
        "to the driver": rows.nbytes,
        "shuffled": shuffled(spark) - before,
        "scan s": scanned,
        "all s": time.perf_counter() - start,
    }


def main(arguments: Sequence[str]) -> int:
    """Measure every size; print a line for each, and one of JSON."""
    parser = argparse.ArgumentParser(prog="bench scale", description="Data volume of a large verification.")
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000_000, 100_000_000])
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--heap", default="2g", help="heap of the driver")
    parser.add_argument("--master", default=DEFAULT_MASTER)
    given = parser.parse_args(arguments)
    spark = start_session("bench scale", given.master, print, {"spark.driver.memory": given.heap})
    results = []
    for records in given.rows:
        result = measure(spark, records, given.partitions)
        results.append(result)
        mega = {name: result[name] / 1e6 for name in ("to the driver", "shuffled")}
        giga = {name: result[name] / result["records"] for name in mega}
        print(
            f"{result['records']:>12,.0f} records: {result['rows']:,.0f} rows, "
            f"{mega['to the driver']:.1f} MB to the driver, {mega['shuffled']:.1f} MB shuffled, "
            f"scanned in {result['scan s']:.1f} s, all in {result['all s']:.1f} s",
            f"{'':>12} for a thousand million: {giga['to the driver']:.2f} GB to the driver, "
            f"{giga['shuffled']:.2f} GB shuffled",
            sep="\n",
            flush=True,
        )
    print(json.dumps(results))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
