"""Benchmark of the computation of a ledger from histories, and of the checks on the ledger."""

from __future__ import annotations

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

import click
import msgspec
import numpy as np

from harness.evidence.bit_words import WORD_SEQS
from harness.evidence.checkers.model import Evidence, Expect
from harness.evidence.checkers.verdict import judge
from harness.evidence.history import history_files
from harness.evidence.ledger import fold
from harness.evidence.observation import WORD, Meta, Observation, Rows, Window
from tools.bench.command import benchmark, json_option, number_option, sizes_option
from tools.bench.figure import Figure, Part, show

CLIENTS = 8
RECORDS = 10
ABORT_EVERY = 10
HALF = RECORDS // 2
LARGE = 10_000_000
MOST_BYTES = 1.5e9
"""Target: peak memory for LARGE transactions, in bytes."""

T = TypeVar("T")


class Seconds(NamedTuple):
    """Wall time and processor time of a piece of work, in seconds."""

    wall: float
    cpu: float


def timed(work: Callable[[], T]) -> tuple[Seconds, T]:
    """Run a function; return the time that it took, and its result."""
    wall, cpu = time.perf_counter(), processor_seconds()
    result = work()
    return Seconds(time.perf_counter() - wall, processor_seconds() - cpu), result


def processor_seconds() -> float:
    """Return the processor time of this process and its ended children."""
    return sum(os.times()[:4])


def write_history(directory: Path, transactions: int) -> None:
    """Write the histories of eight clients. Each client has an equal share of the transactions."""
    per_client = transactions // CLIENTS
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
            for start in range(0, per_client, 10_000):
                file.write(b"".join(_lines(client, n) for n in range(start, min(start + 10_000, per_client))))


def _lines(client: int, n: int) -> bytes:
    clock = b'"mono":%d,"wall":%d' % (10**14 + n * 10**6, 1_763_460_000_000_000_000 + n * 10**6)
    end = b"abort" if n % ABORT_EVERY == 0 else b"commit"
    first = n * HALF
    return (
        b'{"type":"invoke","f":"begin","op":%d,"producer":%d,"txn":%d,%b}\n'
        b'{"type":"invoke","f":"%b","op":%d,"producer":%d,"txn":%d,"sent":[[0,%d,%d],[1,%d,%d]],%b}\n'
        b'{"type":"ok","f":"%b","op":%d,%b}\n'
    ) % (
        *(2 * n, client, n + 1, clock),
        *(end, 2 * n + 1, client, n + 1, first, first + HALF - 1, first, first + HALF - 1, clock),
        *(end, 2 * n + 1, clock),
    )


def make_observation(transactions: int) -> Observation:
    """Make the observation of a witness that read exactly the committed records."""
    per_client = transactions // CLIENTS
    seqs = np.arange(-(-per_client * HALF // WORD_SEQS) * WORD_SEQS)
    visible = ((seqs // HALF) % ABORT_EVERY != 0) & (seqs < per_client * HALF)
    bits = np.packbits(visible.reshape(-1, 64), axis=1, bitorder="little").view("<u8").reshape(-1, 4)
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
    """Check the histories record by record, with sets; return the number of wrong records."""
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


def run_naive(transactions: int) -> Part:
    """Measure the naive check for a number of transactions."""
    with tempfile.TemporaryDirectory() as name:
        write_history(Path(name), transactions)
        observation = make_observation(transactions)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds, wrong = timed(lambda: naive(Path(name), observation))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return Part(
        [f"naive, record by record: {transactions:,} transactions in {seconds.wall:.2f} s, {wrong} wrong"],
        [
            Figure("naive check", "M records/s", [transactions * RECORDS / seconds.wall / 1e6]),
            Figure("  its memory", "bytes a transaction", [peak * 1024 / transactions]),
        ],
    )


def run(transactions: int) -> Part:
    """Measure the computation of a ledger and the checks on it."""
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
    assert judgement.exit_code == 0, judgement.encode().decode()
    lines = [
        f"{transactions:,} transactions of {RECORDS} records: {ledger.operations:,} operations, "
        f"{size >> 20} MiB",
        f"  read and fold {fold_s.wall:.2f} s, check {check_s.wall:.2f} s; verdict {judgement.verdict}",
        f"  ledger kept: {ledger.nbytes / transactions:.0f} bytes per transaction; "
        f"peak memory {peak / 1024:.0f} MiB",
    ]
    wall, cpu = (fold_s.wall + check_s.wall, fold_s.cpu + check_s.cpu)
    name = f"{transactions:,} transactions"
    most = MOST_BYTES / transactions if transactions >= LARGE else None
    return Part(
        lines,
        [
            Figure(
                f"{name}: folded and checked", "M operations/s", [ledger.operations / wall / 1e6], least=4
            ),
            Figure("  by processor time", "M operations/s", [ledger.operations / cpu / 1e6]),
            Figure(f"{name}: folded and checked", "M records/s", [transactions * RECORDS / wall / 1e6]),
            Figure(f"{name}: peak memory", "bytes a transaction", [peak * 1024 / transactions], most=most),
        ],
    )


@benchmark("checker", "--transactions 1000000 --transactions 10000000")
@sizes_option("--transactions", (1_000_000, 10_000_000), "Transactions of the histories.")
@number_option("--naive-transactions", 200_000, "Transactions for the naive check.")
@click.option("--one", type=int, hidden=True)
@json_option
def main(sizes: tuple[int, ...], naive_transactions: int, one: int | None, *, as_json: bool) -> None:
    """Measure folding and checking of histories: time and memory, compared with a naive check.

    The histories are synthetic: eight clients, ten records per transaction over two lanes, one transaction
    in ten aborted. They are read, folded and checked as `eos check` does. An operation is a line of a
    history. The naive check keeps every record in a set.
    """
    if one is not None:
        part = run(one)
        plain = [figure.plain() for figure in part.figures]
        click.echo(json.dumps({"lines": part.lines, "figures": plain}))
        return
    parts = [Part([f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"])]
    for transactions in sizes:
        # Each size needs a new process, because the peak memory of one size must not count for the next one.
        command = [sys.executable, "-m", "tools.bench.checker", "--one", str(transactions)]
        printed = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        parts.append(Part(printed["lines"], [Figure.of(plain) for plain in printed["figures"]]))
    parts.append(run_naive(naive_transactions))
    show(parts, as_json=as_json)


if __name__ == "__main__":
    main()
