"""Rounds of a canary: short runs one after another, each of which is verified whole."""

from __future__ import annotations

import shutil
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import psutil

from harness.base.errors import ExitCode, HarnessError, describe_error
from harness.evidence.run_directory import RunDirectory, Summary, replace_file
from harness.report.prometheus import Family, Sample, format_samples
from harness.run.run import Outcome

FAMILIES: Final = {
    "eos_watch_rounds_total": Family("counter", "Rounds by their verdict."),
    "eos_watch_records_total": Family("counter", "Distinct records that the rounds compared."),
    "eos_watch_transactions_total": Family("counter", "Transactions that the rounds compared."),
    "eos_watch_anomalies_total": Family(
        "counter", "Anomalies by name; a name that is missing was not found."
    ),
    "eos_watch_last_verdict": Family("gauge", "Verdict of the last round: 1 for the one that it has."),
    "eos_watch_last_round_timestamp_seconds": Family("gauge", "End of the last round, seconds since 1970."),
    "eos_watch_last_round_seconds": Family("gauge", "Duration of the last round, with its verification."),
    "eos_watch_memory_bytes": Family("gauge", "Resident memory of the watch itself."),
}
_VERDICTS: Final = ("valid", "unknown", "invalid")


class Round(msgspec.Struct, kw_only=True):
    """The result of one round, as a line of JSON."""

    round: int
    ended: str
    seed: int
    verdict: str
    exit_code: int
    records: int = 0
    transactions: int = 0
    anomalies: dict[str, int] = {}
    reasons: list[str] = []
    seconds: float
    memory_mb: float = 0.0
    directory: str = ""
    interrupted: bool = False

    def describe(self) -> str:
        """Return the anomalies, or else the reasons of the verdict."""
        return ", ".join(self.anomalies) or "; ".join(self.reasons) or "see its report"


MakeRound = Callable[[int, int], Round]
"""Function that makes the round with this number and this seed."""


def make_round(number: int, seed: int, carry_out: Callable[[int], Outcome]) -> Round:
    """Make one round in this process. `carry_out` makes its run, with a seed."""
    began = time.monotonic()
    try:
        result = _judged(carry_out(seed))
    except (HarnessError, OSError, EOFError) as error:
        code = error.exit_code if isinstance(error, HarnessError) else ExitCode.UNKNOWN
        return failed_round(number, seed, began, code, describe_error(error))
    return _round(number, seed, began, **result)


def failed_round(number: int, seed: int, began: float, code: int, reason: str) -> Round:
    """Return the round for a run that has no verdict."""
    return _round(number, seed, began, verdict="unknown", exit_code=int(code), reasons=[reason])


def _round(number: int, seed: int, began: float, **result: Any) -> Round:
    seconds = round(time.monotonic() - began, 1)
    ended = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    return Round(round=number, ended=ended, seed=seed, seconds=seconds, **result)


def _judged(outcome: Outcome) -> dict[str, Any]:
    summary = RunDirectory.open(outcome.directory).read("summary.json", Summary)
    return {
        "verdict": summary.verdict,
        "exit_code": int(outcome.exit_code),
        "records": summary.records,
        "transactions": summary.transactions,
        "anomalies": summary.anomalies,
        "reasons": summary.reasons,
        "directory": str(outcome.directory),
        "interrupted": outcome.interrupted,
    }


class Watch:
    """The rounds of one watch.

    The watch keeps counters and the paths of the last valid runs. Runs that are not valid stay on disk, and
    of the valid ones the last `kept`.
    """

    def __init__(self, make: MakeRound, *, first_seed: int, kept: int, metrics: Path | None) -> None:
        self._make = make
        self._first_seed = first_seed
        self._metrics = metrics
        self._valid: deque[Path] = deque()
        self._kept = kept
        self.rounds = 0
        self._verdicts: Counter[str] = Counter()
        self._anomalies: Counter[str] = Counter()
        self._records = 0
        self._transactions = 0

    def next_round(self) -> Round:
        """Make one round, update the metrics, and delete the oldest valid run that is not kept."""
        self.rounds += 1
        done = self._make(self.rounds, self._first_seed + self.rounds - 1)
        done.memory_mb = round(psutil.Process().memory_info().rss / 1e6, 1)
        if done.exit_code == ExitCode.VALID:
            self._valid.append(Path(done.directory))
            while len(self._valid) > self._kept:
                shutil.rmtree(self._valid.popleft(), ignore_errors=True)
        # A round that was stopped raises no alarm. An anomaly does, whatever ended the round.
        if not done.interrupted or done.anomalies:
            self._count(done)
        return done

    def _count(self, done: Round) -> None:
        self._verdicts[done.verdict] += 1
        self._anomalies.update(done.anomalies)
        self._records += done.records
        self._transactions += done.transactions
        if self._metrics is not None:
            replace_file(self._metrics, format_samples(FAMILIES, self._samples(done)).encode())

    def _samples(self, done: Round) -> list[Sample]:
        return [
            *(("eos_watch_rounds_total", {"verdict": v}, self._verdicts[v]) for v in _VERDICTS),
            ("eos_watch_records_total", {}, self._records),
            ("eos_watch_transactions_total", {}, self._transactions),
            *(("eos_watch_anomalies_total", {"name": n}, c) for n, c in sorted(self._anomalies.items())),
            *(("eos_watch_last_verdict", {"verdict": v}, v == done.verdict) for v in _VERDICTS),
            ("eos_watch_last_round_timestamp_seconds", {}, round(time.time())),
            ("eos_watch_last_round_seconds", {}, done.seconds),
            ("eos_watch_memory_bytes", {}, round(done.memory_mb * 1e6)),
        ]
