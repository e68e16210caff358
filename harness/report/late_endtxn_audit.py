"""Which broken transactions of a run are a late EndTxn's work: told by the transaction log and the frames.

Counted as one is only a transaction on which the coordinator has noted a decision before its end was first
asked for, or a commit where only an abort was asked for; and before which an EndTxn of its client had no
answer, although a later one had.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from harness.base.errors import UsageError
from harness.evidence.checkers.check_run import evidence_of
from harness.evidence.checkers.visibility_index import visibility_of
from harness.evidence.history import Invoke, Producer, history_files
from harness.evidence.ledger import COMMITTED, FATE_NAMES, UNKNOWN
from harness.evidence.run_directory import RunDirectory
from harness.report.diagram.sequence import read_log
from harness.tap.coordinator_entries import read
from harness.tap.frame_lines import Frame
from harness.tap.tap_client import LOG_NAME

KNOWN_TO_NS = 2_000_000  # a log's time is a millisecond's
NEVER = 1 << 62


class Broken(NamedTuple):
    """A transaction that is not read as its client was told, and why."""

    producer: int
    txn: int
    told: str
    visible: int
    size: int
    premature: str
    """What the coordinator decided of it before anybody had asked; empty if it did not."""
    overtaken: str
    """The EndTxn before it that had no answer when it began; from the frames."""

    @property
    def late(self) -> bool:
        """Whether it is the work of a late EndTxn, by the log and by the frames."""
        return bool(self.premature and self.overtaken)

    @property
    def text(self) -> str:
        """It in a line."""
        why = (
            f"{self.premature} that nobody had asked for; EndTxn overtaken: {self.overtaken}"
            if self.late
            else "no late EndTxn"
        )
        return (
            f"producer {self.producer}, transaction {self.txn}: {self.told}, {self.visible} of {self.size} "
            f"records can be read; {why}"
        )


class Span(NamedTuple):
    """A transaction from its begin until its end was first asked for, by its client's clock."""

    begun: int
    asked: int = NEVER
    commit: bool = False
    """Whether a commit was asked for."""


def broken_of(run: Path) -> tuple[list[Broken], int]:
    """The broken transactions of a run, and how many transactions there were."""
    directory = RunDirectory.open(run)
    evidence = evidence_of(directory)
    view = next((v for v in evidence.committed_views() if v.meta.witness == "reader"), None)
    if view is None or not (run / LOG_NAME).exists():
        raise UsageError(
            f"{run} has no reader's observation, or no frames",
            "name runs that are over and have verify.frames",
        )
    ledger, seen = evidence.ledger, visibility_of(evidence, view)
    groups, intervals = ledger.groups, ledger.intervals
    size = np.bincount(intervals.group, intervals.last - intervals.first + 1, len(groups.fate)).astype(int)
    visible = np.bincount(intervals.group, seen.visible, len(groups.fate)).astype(int)
    judged = (groups.txn >= 0) & (size > 0)
    wanted = np.where(groups.fate == COMMITTED, size, 0)
    # One of which nobody knows how it ended is broken if a part of it can be read.
    wrong = judged & (visible != wanted) & ~((groups.fate == UNKNOWN) & (visible == size))
    spans, ids, names = _spans(directory)
    decided = defaultdict(list)
    for step in read(run):
        if step.kind == "decision" and step.what.startswith("Prepare"):
            decided[step.transactional_id].append((step.wall, step.what))
    ends = defaultdict(list)
    for line in read_log(run / LOG_NAME):
        if isinstance(line, Frame) and line.api == "EndTxn":
            ends[line.client_id].append(line)
    found = []
    for group in np.flatnonzero(wrong).tolist():
        producer, txn = int(groups.producer[group]), int(groups.txn[group])
        span = spans[producer, txn]
        over = spans[producer, txn + 1].begun if (producer, txn + 1) in spans else NEVER
        early = [
            what
            for wall, what in decided[ids[producer]]
            if span.begun < wall < span.asked - KNOWN_TO_NS
            # No coordinator commits by itself what was only asked to be aborted.
            or (span.begun < wall < over and what == "PrepareCommit" and not span.commit)
        ]
        found.append(
            Broken(
                producer,
                txn,
                FATE_NAMES[int(groups.fate[group])],
                int(visible[group]),
                int(size[group]),
                " ".join(early),
                _overtaken(ends[names[producer]], span),
            )
        )
    return found, int(judged.sum())


def _spans(run: RunDirectory) -> tuple[dict[tuple[int, int], Span], dict[int, str], dict[int, str]]:
    spans: dict[tuple[int, int], Span] = {}
    ids: dict[int, str] = {}
    names: dict[int, str] = {}
    for file in history_files(run.histories):
        for _, line in file.read():
            if isinstance(line, Producer) and line.transactional_id:
                ids[line.producer], names[line.producer] = line.transactional_id, file.name
            if not isinstance(line, Invoke) or line.producer is None or line.txn is None:
                continue
            key = line.producer, line.txn
            if line.f == "begin":
                spans[key] = Span(line.wall)
            elif line.f in ("commit", "abort"):
                span = spans[key]
                spans[key] = Span(span.begun, min(span.asked, line.wall), span.commit or line.f == "commit")
    return spans, ids, names


def _overtaken(frames: list[Frame], span: Span) -> str:
    """The last EndTxn before the begin that had no answer by then, although a later one of its client had."""
    answered = {(f.conn, f.correlation) for f in frames if f.side == "response" and f.wall < span.begun}
    open_ = [f for f in frames if f.side == "request" and f.wall < span.begun]
    late = [f for f in open_ if (f.conn, f.correlation) not in answered]
    if not late:
        return ""
    last = late[-1]
    return (
        f"frame {last.n} on connection {last.conn}, {(span.begun - last.wall) / 1e6:.0f} ms before the begin"
    )
