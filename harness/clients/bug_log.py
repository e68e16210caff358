"""Record of a client with a planted bug: when the bug acted, and whether that certainly did harm.

A bug does no harm if, for example, it acts in a transaction that is aborted afterwards. So the client counts
two things. It counts each time the bug acted (`fired`). It counts those among them whose effect is certain
(`harmful`), because the brokers acknowledged the operation or the transaction. If a client is killed between
the two, the firing stays uncertain.

The record is a file of JSON lines beside the client's spec. The run copies it to its folder `logs`. It is no
evidence: no checker reads it.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from harness.base.unreadable import readable
from harness.evidence.history import HistoryWriter

FILE: Final = "planted-bug.jsonl"
_ENDS: Final = ("abort", "abandon", "init", "seek", "revoke")
"""Operations after which the open transaction can no longer commit what a bug did in it."""
Event = Literal["fired", "harmful"]


class BugLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of the record: the bug acted, or an earlier action of it certainly did harm."""

    event: Event
    mono: int


class BugLog:
    """Record of one client. It follows the client's history through the replacements of `patches`."""

    def __init__(self, path: Path | None = None) -> None:
        self._fd = None if path is None else os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self.counts: Counter[Event] = Counter()
        self._recording = False
        """Whether the client is recording an operation: its number is not known yet."""
        self._new = 0
        self._operation: tuple[int, str] = (-1, "")
        self._by_answer: Counter[int] = Counter()
        self._by_commit = 0
        self._by_abort = 0

    def fired(self) -> None:
        """Record that the bug acted. A later call of `harmful` may follow."""
        self._write("fired", 1)

    def harmful(self, firings: int = 1) -> None:
        """Record that some firings certainly did harm."""
        self._write("harmful", firings)

    def fired_in_operation(self) -> None:
        """Record a firing that is harmful if the current send, commit or abort succeeds."""
        self.fired()
        if self._recording:
            self._new += 1
        else:
            self._by_answer[self._operation[0]] += 1

    def fired_in_transaction(self) -> None:
        """Record a firing that is harmful if the client's open transaction commits."""
        self.fired()
        self._by_commit += 1

    def fired_before_abort(self) -> None:
        """Record a firing that is harmful if the client's open transaction aborts."""
        self.fired()
        self._by_abort += 1

    def fired_while_sending(self) -> None:
        """Record a firing that is harmful if the records that are being sent are written for good."""
        if self._operation[1] == "send":
            self.fired_in_operation()
        else:
            self.fired_in_transaction()

    def patches(self) -> list[tuple[Any, str, Any]]:
        """Return replacements of the history's methods, so that the record follows what succeeds.

        Call this after the bug's own replacements are in place, because these methods call the bug's ones.
        """
        invoke, ok, log = HistoryWriter.invoke, HistoryWriter.ok, self
        asked: dict[int, tuple[str, bool]] = {}

        def following_invoke(self: HistoryWriter, f: str, *, sent: Iterable[Any] = (), **fields: Any) -> int:
            intervals = list(sent)
            followed = f in ("send", "commit", "abort")
            log._recording = followed
            op = invoke(self, f, sent=intervals, **fields)
            log._recording = False
            if followed:
                asked[op] = (f, bool(intervals))
                log._operation = (op, f)
                log._by_answer[op] += log._new
                log._new = 0
            if f in _ENDS:
                log._by_commit = 0
            if f in ("commit", "init"):
                log._by_abort = 0
            return op

        def following_ok(self: HistoryWriter, op: int, **fields: Any) -> None:
            ok(self, op, **fields)
            log._succeeded(op, *asked.pop(op, ("", False)))

        return [(HistoryWriter, "invoke", following_invoke), (HistoryWriter, "ok", following_ok)]

    def _succeeded(self, op: int, f: str, has_records: bool) -> None:
        harmful = self._by_answer.pop(op, 0)
        if f == "commit":
            harmful += self._by_commit
            self._by_commit = 0
        if f == "abort":
            harmful += self._by_abort
            self._by_abort = 0
        if harmful and has_records:
            self.harmful(harmful)

    def _write(self, event: Event, times: int) -> None:
        self.counts[event] += times
        if self._fd is not None:
            line = msgspec.json.encode(BugLine(event=event, mono=time.monotonic_ns())) + b"\n"
            os.write(self._fd, line * times)


def read_counts(logs: Path) -> Counter[Event]:
    """Return how often the planted bugs of a run fired and did harm, from the folder `logs` of the run."""
    counts: Counter[Event] = Counter()
    for path in sorted(logs.glob(f"*.{FILE}")):
        with readable(path, "a client of the run writes the file"):
            lines = path.read_bytes().splitlines()
            counts.update(msgspec.json.decode(line, type=BugLine).event for line in lines)
    return counts
