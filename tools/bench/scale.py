"""Benchmark of how much data a large verification moves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from harness.cli.options import log
from harness.evidence.ledger import ABORTED, COMMITTED
from harness.report.text_format import format_table
from harness.witness.spark.spark_session import start_session
from spark_jobs import scan_rows as row
from spark_jobs.scan_pass import Wanted, scan_words
from tools.bench.command import benchmark, json_option, number_option, sizes_option, spark_options
from tools.bench.figure import Figure, Part, show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN: Final = "scale001"
TXN: Final = 20_000
BATCH: Final = 50_000


def intervals(records: int, partitions: int) -> dict[str, Any]:
    """Return the ledger's intervals for the generated records: every tenth transaction is aborted.

    Each partition has one producer and one lane.
    """
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
    """Return a function for Spark's mapInArrow that generates and scans records.

    The input rows of the function are partition numbers. It generates the records of these partitions.
    """
    wanted, share = Wanted(RUN), TXN // partitions
    count = records // partitions // share

    def generate(partition: int) -> Iterator[pa.RecordBatch]:
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
                yield from scan_words(wanted)(generate(partition))

    return run


def shuffled(spark: SparkSession) -> int:
    """Return the number of bytes that all tasks of a Spark session have written for shuffles."""
    java: Any = spark.sparkContext._jsc
    executors = java.sc().statusStore().executorList(True)
    return int(sum(executors.apply(i).totalShuffleWrite() for i in range(executors.size())))


def measure(spark: SparkSession, records: int, partitions: int) -> dict[str, float]:
    """Scan and check a number of generated records; return seconds, and counts of rows and bytes."""
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
    anomalies = findings(frames).collect()
    assert not anomalies, anomalies  # the generated log contains exactly the committed records
    read = int(np.asarray(rows["n"]).sum())
    committed = int((planned["last"] - planned["first"] + 1)[planned["fate"] == COMMITTED].sum())
    assert read == committed, (read, committed)
    return {
        "records": read,
        "rows": rows.num_rows,
        "to the driver": rows.nbytes,
        "shuffled": shuffled(spark) - before,
        "scan s": scanned,
        "all s": time.perf_counter() - start,
    }


@benchmark("scale", "--rows 10000000 --rows 100000000")
@sizes_option("--rows", (10_000_000, 100_000_000), "Records per measurement.")
@number_option("--partitions", 4, "Partitions, each with one producer.")
@spark_options
@json_option
def main(sizes: tuple[int, ...], partitions: int, master: str, heap: str, *, as_json: bool) -> None:
    """Measure the data that a large verification moves: rows and bytes to the driver, bytes of shuffle.

    The tasks generate the records and scan them, so neither Kafka nor the network limits the size. The output
    of the tasks is the same as for a topic. Every transaction has 20,000 records, and one in ten is aborted.
    The intervals of the ledger are joined with the words, as in every verification.
    """
    spark = start_session("bench scale", master, log, {"spark.driver.memory": heap})
    results = [measure(spark, records, partitions) for records in sizes]
    spark.stop()
    head = ("records", "rows", "scanned in", "all in", "to the driver", "shuffled", "both per 10⁹ records")
    rows = [
        (
            f"{result['records']:,.0f}",
            f"{result['rows']:,.0f}",
            f"{result['scan s']:.1f} s",
            f"{result['all s']:.1f} s",
            f"{result['to the driver'] / 1e6:.1f} MB",
            f"{result['shuffled'] / 1e6:.1f} MB",
            f"{result['to the driver'] / result['records']:.2f} GB, "
            f"{result['shuffled'] / result['records']:.2f} GB",
        )
        for result in results
    ]
    figures = []
    for result in results:
        name, most = f"{result['records']:,.0f} records", result["records"]
        figures.append(
            Figure(f"{name}: moved to the driver", "GB per 10⁹ records", [result["to the driver"] / most])
        )
        figures.append(Figure(f"{name}: shuffled", "GB per 10⁹ records", [result["shuffled"] / most]))
    show([Part(format_table(rows, head, right=range(len(head))), figures)], as_json=as_json)


if __name__ == "__main__":
    main()
