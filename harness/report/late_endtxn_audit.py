"""`eos late`: list the broken transactions of a run, each with its cause.

A transaction is broken if the records that a read_committed reader reads contradict the result that the
transaction's client received. Evidence distinguishes the causes. A late marker and a reused sequence are
proved by the logs that a run with the raw log stores (harness/evidence/checkers/causes.py). A late EndTxn is
the cause if both the transaction log and the frame log show it.

The transaction log shows it in one of two ways. Either the coordinator decided before the client first
requested an end (commit or abort), or it committed although the client requested only an abort. The frame log
shows it if an earlier EndTxn of the client had no answer yet when the transaction began.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from harness.base.errors import HarnessError, UsageError
from harness.evidence.checkers.causes import LATE_MARKER, REUSED_SEQUENCE, causes_of
from harness.evidence.checkers.check_run import evidence_of
from harness.evidence.checkers.model import Evidence
from harness.evidence.checkers.visibility_index import visibility_of
from harness.evidence.history import Invoke, Producer, history_files
from harness.evidence.ledger import COMMITTED, FATE_NAMES, UNKNOWN
from harness.evidence.run_directory import RunDirectory
from harness.report.diagram.sequence import read_log
from harness.tap.coordinator_entries import read
from harness.tap.frame_lines import Frame
from harness.tap.tap_client import LOG_NAME

LOG_RESOLUTION_NS = 2_000_000  # a tolerance, because the transaction log records whole milliseconds
NEVER = 1 << 62
LATE_ENDTXN: Final = "late EndTxn"
ANOTHER: Final = "unknown cause"
CAUSES: Final = (LATE_ENDTXN, LATE_MARKER, REUSED_SEQUENCE, ANOTHER)
"""Every cause that `eos late` distinguishes."""


class BrokenTransaction(NamedTuple):
    """A transaction whose visible records contradict the answer that its client received."""

    producer: int
    txn: int
    fate: str
    visible: int
    size: int
    premature: str
    """The coordinator's decisions that the client had not requested. The text is empty if there are none."""
    overtaken: str
    """Description of an earlier EndTxn that had no answer yet when the transaction began. It comes from the
    frame log, and is empty if there is no such EndTxn.
    """
    proved: str = ""
    """Name of the cause that the stored logs prove: a late marker or a reused sequence. Empty if none."""
    proof: str = ""

    @property
    def late_endtxn(self) -> bool:
        """Whether both the transaction log and the frame log show a late EndTxn."""
        return bool(self.premature and self.overtaken) and not self.proved

    @property
    def cause(self) -> str:
        """Name of the cause."""
        return self.proved or (LATE_ENDTXN if self.late_endtxn else ANOTHER)

    @property
    def text(self) -> str:
        """One-line description of the transaction."""
        why = (
            f"a {self.proved}: {self.proof}"
            if self.proved
            else f"{self.premature} without a request; EndTxn overtaken: {self.overtaken}"
            if self.late_endtxn
            else "no late EndTxn"
        )
        return (
            f"producer {self.producer}, transaction {self.txn}: {self.fate}, {self.visible} of {self.size} "
            f"records can be read; {why}"
        )


class TransactionSpan(NamedTuple):
    """Times of a transaction by its client's clock: its begin, and the first request to end it."""

    begun: int
    asked: int = NEVER
    commit: bool = False
    """Whether the client requested a commit."""


def find_broken_transactions(run: Path) -> tuple[list[BrokenTransaction], int]:
    """Return the broken transactions of a run, and the number of all transactions that were checked."""
    directory = RunDirectory.open(run)
    evidence = evidence_of(directory)
    if evidence.damage:
        raise HarnessError(
            f"the evidence of {run} is incomplete: {evidence.damage[0]}",
            "`eos check` lists everything that is missing or was changed",
        )
    groups, compared = _broken_groups(run, evidence)
    spans, ids, clients = _spans(directory)
    decisions = defaultdict(list)
    for entry in read(run):
        if entry.kind == "decision" and entry.what.startswith("Prepare"):
            decisions[entry.transactional_id].append((entry.wall, entry.what))
    frames = defaultdict(list)
    for line in read_log(run / LOG_NAME) if (run / LOG_NAME).exists() else []:
        if isinstance(line, Frame) and line.api == "EndTxn":
            frames[line.client_id].append(line)
    broken = []
    causes = causes_of(evidence)
    for group, producer, txn, fate, visible, size in groups:
        span = spans[producer, txn]
        over = spans[producer, txn + 1].begun if (producer, txn + 1) in spans else NEVER
        premature = [
            what
            for wall, what in decisions[ids[producer]]
            if span.begun < wall < span.asked - LOG_RESOLUTION_NS
            # A coordinator commits only on request. If it committed although the client requested only an
            # abort, it acted on a late EndTxn of an earlier transaction.
            or (span.begun < wall < over and what == "PrepareCommit" and not span.commit)
        ]
        overtaken = _overtaken_endtxn(frames[clients[producer]], span)
        found = (
            producer,
            txn,
            fate,
            visible,
            size,
            " ".join(premature),
            overtaken,
            *causes.get(group, ("", "")),
        )
        broken.append(BrokenTransaction(*found))
    return broken, compared


def _broken_groups(run: Path, evidence: Evidence) -> tuple[list[tuple[int, int, int, str, int, int]], int]:
    """Return a tuple for each broken transaction, and the number of transactions that were checked.

    The tuple is (group, producer, transaction, fate, visible, size). `group` is the index of the transaction
    in the ledger, `size` the number of its records, and `visible` the number of those that can be read.
    """
    view = next((v for v in evidence.committed_views() if v.meta.witness == "reader"), None)
    if view is None or not ((run / LOG_NAME).exists() or evidence.logs is not None):
        raise UsageError(
            f"{run} has no observation of a reader, or neither a frame log nor the coordinators' logs",
            "name finished runs with verify.frames, or with the raw log as a witness; the file of "
            "an external cluster must list __transaction_state in evidence.logs",
        )
    ledger, index = evidence.ledger, visibility_of(evidence, view)
    groups, intervals = ledger.groups, ledger.intervals
    size = np.bincount(intervals.group, intervals.last - intervals.first + 1, len(groups.fate)).astype(int)
    visible = np.bincount(intervals.group, index.visible, len(groups.fate)).astype(int)
    compared = (groups.txn >= 0) & (size > 0)
    promised = np.where(groups.fate == COMMITTED, size, 0)
    # If the fate is unknown, it is correct that all or none of the records are visible. The transaction is
    # broken if only some of them are.
    broken = compared & (visible != promised) & ~((groups.fate == UNKNOWN) & (visible == size))
    rows = [
        (
            int(group),
            int(groups.producer[group]),
            int(groups.txn[group]),
            FATE_NAMES[int(groups.fate[group])],
            int(visible[group]),
            int(size[group]),
        )
        for group in np.flatnonzero(broken).tolist()
    ]
    return rows, int(compared.sum())


def _spans(
    run: RunDirectory,
) -> tuple[dict[tuple[int, int], TransactionSpan], dict[int, str], dict[int, str]]:
    """Return the times of each transaction, and the transactional id and client of each producer."""
    spans: dict[tuple[int, int], TransactionSpan] = {}
    ids: dict[int, str] = {}
    clients: dict[int, str] = {}
    for file in history_files(run.histories):
        for _, line in file.read():
            if isinstance(line, Producer) and line.transactional_id:
                ids[line.producer], clients[line.producer] = line.transactional_id, file.name
            if not isinstance(line, Invoke) or line.producer is None or line.txn is None:
                continue
            key = line.producer, line.txn
            if line.f == "begin":
                spans[key] = TransactionSpan(line.wall)
            elif line.f in ("commit", "abort"):
                span = spans[key]
                spans[key] = TransactionSpan(
                    span.begun, min(span.asked, line.wall), span.commit or line.f == "commit"
                )
    return spans, ids, clients


def _overtaken_endtxn(frames: list[Frame], span: TransactionSpan) -> str:
    """Describe the last EndTxn that had been sent but not answered when the transaction began.

    The result is empty if every earlier EndTxn had been answered.
    """
    answered = {(f.conn, f.correlation) for f in frames if f.side == "response" and f.wall < span.begun}
    requests = [f for f in frames if f.side == "request" and f.wall < span.begun]
    late = [f for f in requests if (f.conn, f.correlation) not in answered]
    if not late:
        return ""
    last = late[-1]
    return (
        f"frame {last.n} on connection {last.conn}, {(span.begun - last.wall) / 1e6:.0f} ms before the begin"
    )
