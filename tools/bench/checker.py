"""Measure speed and memory of the fold and the checkers, and compare them with a naive check.

    python -m tools.bench.checker --transactions 1000000 --transactions 10000000

Writes synthetic histories (eight clients, each transaction ten records over two lanes, one in ten
aborted) and the observation that fits them, then reads, folds and checks them as `eos check` does.
An operation is a history line. The naive check keeps every record in a set and looks each of them up.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from harness.evidence.bit_words import WORD_SEQS
from harness.evidence.checkers.model import Evidence, Expect
from harness.evidence.checkers.verdict import judge
from harness.evidence.history import history_files
from harness.evidence.ledger import Ledger, fold
from harness.evidence.observation import WORD, Meta, Observation, Rows, Window

CLIENTS = 8
RECORDS = 10
ABORT_EVERY = 10
HALF = RECORDS // 2

T = TypeVar("T")


class Seconds(NamedTuple):
    """Elapsed seconds and processor seconds."""

    wall: float
    cpu: float


def timed(work: Callable[[], T]) -> tuple[Seconds, T]:
    """Return the time of the work, and its result."""
    wall, cpu = time.perf_counter(), processor_seconds()
    result = work()
    return Seconds(time.perf_counter() - wall, processor_seconds() - cpu), result


def processor_seconds() -> float:
    """Return the processor seconds of this process and its ended children."""
    return sum(os.times()[:4])


def write_history(directory: Path, transactions: int) -> None:
    """Write the histories of eight clients that share the transactions."""
    each = transactions // CLIENTS
    for client in range(CLIENTS):
        opening = {"type": "open", "format": 1, "run": "r7k2m9qa", "client": f"p{client}", "role": "producer"}
        opening |= {"host": "h", "pid": 1, "clock": "c", "mono": 0, "wall": 0}
        declared = {
            "type": "producer",
            "producer": client,
            "lanes": [("t", 0), ("t", 1)],
            "mono": 0,
            "wall": 0,
        }
        declared["transactional_id"] = f"x{client}"
        with (directory / f"p{client}.jsonl").open("wb") as file:
            file.write(msgspec.json.Encoder().encode_lines([opening, declared]))
            for start in range(0, each, 10_000):
                file.write(b"".join(_lines(client, n) for n in range(start, min(start + 10_000, each))))


def _lines(client: int, n: int) -> bytes:
    clock = b'"mono":%d,"wall":%d' % (10**14 + n * 10**6, 1_763_460_000_000_000_000 + n * 10**6)
    end = b"abort" if n % ABORT_EVERY == 0 else b"commit"
    first = n * HALF
    return (
        b'{"type":"invoke",%b,"f":"begin","op":%d,"producer":%d,"txn":%d}\n'
        b'{"type":"invoke",%b,"f":"%b","op":%d,"producer":%d,"txn":%d,"sent":[[0,%d,%d],[1,%d,%d]]}\n'
        b'{"type":"ok",%b,"f":"%b","op":%d}\n'
    ) % (
        *(clock, 2 * n, client, n + 1),
        *(clock, end, 2 * n + 1, client, n + 1, first, first + HALF - 1, first, first + HALF - 1),
        *(clock, end, 2 * n + 1),
    )


def make_observation(transactions: int) -> Observation:
    """Make the words of a witness that read exactly the committed records."""
    each = transactions // CLIENTS
    seqs = np.arange(-(-each * HALF // WORD_SEQS) * WORD_SEQS)
    seen = ((seqs // HALF) % ABORT_EVERY != 0) & (seqs < each * HALF)
    bits = np.packbits(seen.reshape(-1, 64), axis=1, bitorder="little").view("<u8").reshape(-1, 4)
    tables: list[Rows] = []
    for client in range(CLIENTS):
        for lane in (0, 1):
            words = np.zeros(len(bits), WORD)
            words["producer"], words["lane"], words["partition"] = client, lane, lane
            words["word"], words["bits"] = np.arange(len(bits)), bits
            words["n"] = np.bitwise_count(bits).sum(axis=1)
            words["hi"] = 1
            tables.append(words)
    rows = np.concatenate(tables)
    windows = [Window(topic="t", partition=p, start=0, lso=2, hw=2, read_to=2) for p in (0, 1)]
    meta = Meta(witness="spark", kind="spark", complete=True, windows=windows, records=int(rows["n"].sum()))
    return Observation(meta, rows[rows["n"] > 0])


def naive(directory: Path, observation: Observation) -> int:
    """Read the same history and check it record by record with sets; return how many were wrong."""
    committed: set[tuple[int, int, int]] = set()
    aborted: set[tuple[int, int, int]] = set()
    asked: dict[tuple[str, int], dict[str, Any]] = {}
    for path in sorted(directory.glob("*.jsonl")):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            if "sent" in line:
                asked[path.stem, line["op"]] = line
            elif line["type"] == "ok":
                ask = asked.pop((path.stem, line["op"]))
                into = committed if ask["f"] == "commit" else aborted
                for lane, first, last in ask["sent"]:
                    into.update((ask["producer"], lane, seq) for seq in range(first, last + 1))
    wrong, seen = 0, set()
    for record in _records(observation):
        wrong += (record in seen) + (record in aborted) + (record not in committed)
        seen.add(record)
    return wrong + len(committed - seen)


def _records(observation: Observation) -> Iterator[tuple[int, int, int]]:
    words = observation.words
    columns = [words[name].tolist() for name in ("producer", "lane", "word", "bits")]
    for producer, lane, word, bits in zip(*columns, strict=True):
        for quarter, sixty_four in enumerate(bits):
            base = word * WORD_SEQS + 64 * quarter
            for bit in range(64):
                if sixty_four >> bit & 1:
                    yield producer, lane, base + bit


def run_naive(transactions: int) -> None:
    """Measure the naive check and print it."""
    with tempfile.TemporaryDirectory() as name:
        write_history(Path(name), transactions)
        observation = make_observation(transactions)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds, wrong = timed(lambda: naive(Path(name), observation))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"naive, record by record: {transactions} transactions in {seconds.wall:.2f} s, {wrong} wrong")
    for name, total in (("wall", seconds.wall), ("processor", seconds.cpu)):
        print(f"  by {name}: {transactions * RECORDS / total / 1e6:.2f} M records/s")
    print(f"  memory: {peak * 1024 / transactions:.0f} bytes a transaction")


def run(transactions: int) -> None:
    """Measure one size and print it."""
    expect = Expect(properties=["exactly_once", "atomicity"])
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_history(directory, transactions)
        size = sum(path.stat().st_size for path in directory.iterdir())
        observation = make_observation(transactions)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        fold_s, ledger = timed(lambda: fold(history_files(directory)))
        check_s, judgement = timed(lambda: judge(Evidence(ledger, [observation], expect)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    reader = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    _report(transactions, size, (fold_s, check_s), ledger)
    print(f"  verdict {judgement.verdict}; compared {[(r.property, r.compared) for r in judgement.results]}")
    print(
        f"  memory above the observation: peak {peak / 1024:.0f} MiB, "
        f"{peak * 1024 / transactions:.0f} bytes a transaction; largest reader {reader / 1024:.0f} MiB"
    )


def _report(transactions: int, size: int, took: tuple[Seconds, Seconds], ledger: Ledger) -> None:
    (fold_wall, fold_cpu), (check_wall, check_cpu) = took
    print(
        f"{transactions} transactions of {RECORDS} records: {ledger.operations} operations, {size >> 20} MiB"
    )
    print(f"  read and fold {fold_wall:.2f} s, check {check_wall:.2f} s")
    for name, total in (("wall", fold_wall + check_wall), ("processor", fold_cpu + check_cpu)):
        print(
            f"  by {name}: {ledger.operations / total / 1e6:.2f} M operations/s, "
            f"{transactions / total / 1e6:.2f} M transactions/s, "
            f"{transactions * RECORDS / total / 1e6:.2f} M records/s"
        )
    print(
        f"  ledger kept: {ledger.nbytes / transactions:.0f} bytes a transaction, "
        f"{len(ledger.intervals.lane) / transactions:.1f} intervals a transaction"
    )


def main() -> None:
    """Measure each size in a separate process, then the naive check."""
    print(f"load of this machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transactions", type=int, action="append")
    parser.add_argument("--naive-transactions", type=int, default=200_000)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        run(options.one)
        return
    for transactions in options.transactions or [1_000_000, 10_000_000]:
        # A new process each, so that the memory peak of one size does not include another.
        command = [sys.executable, "-m", "tools.bench.checker", "--one", str(transactions)]
        subprocess.run(command, check=True)
    run_naive(options.naive_transactions)


if __name__ == "__main__":
    main()
