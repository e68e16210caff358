"""The recorded verdict of a run, and how it compares with the verdict of a later check."""

from __future__ import annotations

import msgspec

from harness.base.unreadable import UNREADABLE
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.run_directory import RunDirectory

NONE = "none"
UNREADABLE_TEXT = "unreadable, because verdict.json was changed or is incomplete"


class _RecordedAnomaly(msgspec.Struct):
    name: str
    count: int
    unit: str


class _RecordedResult(msgspec.Struct):
    property: str
    anomalies: list[_RecordedAnomaly] = []


class _RecordedJudgement(msgspec.Struct):
    """The part of verdict.json that is compared. Any version may have written the others."""

    verdict: str
    results: list[_RecordedResult] = []


class RecordedVerdict:
    """The verdict that verdict.json records: a name, and the count of each anomaly."""

    def __init__(self, run: RunDirectory) -> None:
        self.text = NONE
        self._anomalies: set[tuple[str, str, int, str]] = set()
        path = run.path / "verdict.json"
        try:
            if not path.is_symlink() and not path.exists():
                return
            recorded = msgspec.json.decode(path.read_bytes(), type=_RecordedJudgement)
        except UNREADABLE:
            self.text = UNREADABLE_TEXT
            return
        self.text = recorded.verdict
        self._anomalies = {
            (result.property, anomaly.name, anomaly.count, anomaly.unit)
            for result in recorded.results
            for anomaly in result.anomalies
        }

    def difference(self, judgement: Judgement) -> str:
        """Return what the user must know if the judgement differs from the recorded verdict, else ""."""
        if self.text in (NONE, UNREADABLE_TEXT):
            return ""
        anomalies = {
            (result.property, anomaly.name, anomaly.count, anomaly.unit)
            for result in judgement.results
            for anomaly in result.anomalies
        }
        if self.text == judgement.verdict and self._anomalies == anomalies:
            return ""
        if any(result.property == "evidence" and result.reasons for result in judgement.results):
            return (
                "the recorded verdict cannot be confirmed: the evidence is incomplete or was changed\n\n"
                "hint: restore the files from a copy of the run directory, or run the scenario again"
            )
        return (
            "the evidence is intact, but its verdict differs from the recorded one: another version of the "
            "checkers recorded it, or verdict.json was changed\n\n"
            "hint: compare the versions in run.json with this one; `eos check --write` replaces the record"
        )
