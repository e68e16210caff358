"""The recorded verdict of a run, and how it compares with the verdict of a later check."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from harness.base.errors import describe_error
from harness.base.unreadable import UNREADABLE, is_present, read_regular
from harness.evidence.checkers.model import Verdict
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.run_directory import RunDirectory

NONE = "none"
_REPLACE = "`eos check --write` replaces the record"

T = TypeVar("T")


class _RecordedAnomaly(msgspec.Struct):
    name: str
    count: int
    unit: str


class _RecordedResult(msgspec.Struct):
    property: str
    anomalies: list[_RecordedAnomaly] = []


class _RecordedJudgement(msgspec.Struct):
    """The part of verdict.json that is compared. Any version may have written the others."""

    verdict: Verdict
    results: list[_RecordedResult] = []


class _RecordedSummary(msgspec.Struct):
    """The part of summary.json that is compared."""

    verdict: Verdict


class RecordedVerdict:
    """The verdict that verdict.json records: a name, and the count of each anomaly.

    `text` is its name; or NONE, or why verdict.json cannot be read. `problem` is what is wrong with the files
    of the record, or "".
    """

    def __init__(self, run: RunDirectory) -> None:
        self.text = NONE
        self.problem = ""
        self._known = False
        self._anomalies: set[tuple[str, str, int, str]] = set()
        recorded = self._read(run, "verdict.json", _RecordedJudgement)
        if recorded is None:
            self.text = f"unreadable, because {self.problem}" if self.problem else NONE
            return
        self.text, self._known = str(recorded.verdict), True
        summary = self._read(run, "summary.json", _RecordedSummary)
        if summary is not None and summary.verdict != recorded.verdict:
            self.problem = f"summary.json records the verdict {summary.verdict}, but verdict.json {self.text}"
        self._anomalies = {
            (result.property, anomaly.name, anomaly.count, anomaly.unit)
            for result in recorded.results
            for anomaly in result.anomalies
        }

    def _read(self, run: RunDirectory, name: str, kind: type[T]) -> T | None:
        """Return the content of a file, or None if there is none or it cannot be read."""
        path = run.path / name
        if not is_present(path):
            return None
        try:
            return msgspec.json.decode(read_regular(path), type=kind)
        except OSError as error:
            self.problem = f"{name} cannot be read: {error.strerror}"
        except UNREADABLE as error:
            self.problem = f"{name} was changed or is incomplete: {describe_error(error)}"
        return None

    def difference(self, judgement: Judgement) -> str:
        """Return what the user must know about the recorded verdict and this judgement; "" if nothing."""
        damaged = any(result.property == "evidence" and result.reasons for result in judgement.results)
        restore = "hint: restore the files from a copy of the run directory, or run the scenario again"
        if not self._known:
            killed = "; if it was killed, `eos heal` undoes its faults"
            return f"{restore}{killed}" if damaged else ""
        anomalies = {
            (result.property, anomaly.name, anomaly.count, anomaly.unit)
            for result in judgement.results
            for anomaly in result.anomalies
        }
        if damaged:
            return (
                "the recorded verdict cannot be confirmed: the evidence is incomplete or was changed\n\n"
                f"{restore}"
            )
        if self.text == judgement.verdict and self._anomalies == anomalies:
            return f"{self.problem}\n\nhint: {_REPLACE}" if self.problem else ""
        return (
            "the evidence is intact, but its verdict differs from the recorded one: another version of the "
            "checkers recorded it, or verdict.json was changed\n\n"
            f"hint: compare the versions in run.json with this one; {_REPLACE}"
        )
