"""Sampled positions of consumer groups, compared with the positions that their members wrote.

The checker of the property `offsets` uses it. Each sampled position must be one that a committed or unknown
transaction of the ledger wrote, or a commit outside of transactions. It must not be after the end of the
input. And it must be the position that was written last: a lower position is explained only if a client may
have written it after the higher one.

A coordinator that is isolated from the controller may report old positions during a fail-over. So after a
fault, a position that is too low is permitted if a later sample is not. Times are compared only within one
clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from typing import Final, NamedTuple

import numpy as np

from harness.base.partition_id import PartitionId, partition_name
from harness.evidence.checkers.model import Collector, Evidence, Example, HistoryRef, OffsetRef
from harness.evidence.history import Ok
from harness.evidence.ledger import COMMITTED, UNKNOWN, Ledger, Scan

_LAST: Final = int(np.iinfo(np.int64).max)

Fates = dict[tuple[int, int], tuple[int, int, int]]
"""Fate, time of the request and time of the answer of each transaction, by its producer and number."""


class Written(NamedTuple):
    """A position that a client wrote: when it was requested, and when it was certain (None: it never was)."""

    clock: str
    asked: int
    certain: int | None


class Sampled(NamedTuple):
    """A position that an observer sampled: when it was requested, and when the answer was recorded."""

    clock: str
    asked: int
    mono: int
    position: int
    lines: tuple[HistoryRef, ...]


class _Place:
    """One partition of the input: the positions that were written to it and sampled from it."""

    def __init__(self) -> None:
        self.written: dict[int, list[Written]] = {}
        self.samples: list[Sampled] = []
        self.wrong: set[Sampled] = set()
        self._end = -1
        self._certain: list[tuple[int, int]] = []
        self._highest_sample = -1

    def finish(self, end: int) -> None:
        """Sort the samples. `end` is the highest end of the partition that is known, or -1."""
        self._end = end
        self.samples.sort(key=lambda sample: sample.mono)
        highest = -1
        writes = [(w.certain, position) for position, ws in self.written.items() for w in ws]
        for certain, position in sorted((at, position) for at, position in writes if at is not None):
            highest = max(highest, position)
            self._certain.append((certain, highest))

    def contradiction(self, sample: Sampled, ledger: Ledger, *, is_recorded: bool) -> str:
        """Return why a sample cannot be right, as part of a sentence; return "" if it can.

        The samples must be passed in their order. `is_recorded` is False if no client recorded any position.
        """
        before, self._highest_sample = self._highest_sample, max(self._highest_sample, sample.position)
        if 0 <= self._end < sample.position:
            return f"but the partition ends at offset {self._end}"
        if not is_recorded:
            return ""
        writes = self.written.get(sample.position, [])
        if not any(w.clock != sample.clock or w.asked <= sample.mono for w in writes):
            return "but no transaction that may have committed had written this position"
        at = bisect_right(self._certain, (sample.asked, _LAST)) - 1
        if max(before, self._certain[at][1] if at >= 0 else -1) <= sample.position:
            return ""
        return self._went_back(sample, writes, ledger)

    def _went_back(self, sample: Sampled, writes: list[Written], ledger: Ledger) -> str:
        if any(w.clock != sample.clock or w.certain is None for w in writes):
            return ""
        latest = max(w.certain or 0 for w in writes)
        earlier = [s for s in self.samples if s.clock == sample.clock and s not in self.wrong]
        sampled = max(
            (s.position for s in earlier if latest < s.asked and s.mono <= sample.asked), default=-1
        )
        committed = -1
        for position, others in self.written.items():
            for w in others:
                if w.clock == sample.clock and w.certain is not None and latest < w.asked:
                    committed = max(committed, position if w.certain <= sample.asked else -1)
        higher = max(sampled, committed)
        if higher <= sample.position:
            return ""
        rises_again = any(s.position >= higher and s.asked > sample.mono for s in earlier)
        if rises_again and _had_fault(ledger, sample):
            return ""
        source = "an earlier sample was" if sampled >= committed else "a committed transaction wrote"
        return f"but {source} {higher}, and no client wrote {sample.position} after that"


def check_group_samples(evidence: Evidence, out: Collector) -> None:
    """Compare every sampled position of every group with the positions that the clients wrote."""
    fates = _fates(evidence.ledger)
    for group in sorted(_sampled_groups(evidence)):
        _check_group(evidence, group, fates, out)


def _check_group(evidence: Evidence, group: str, fates: Fates, out: Collector) -> None:
    ledger = evidence.ledger
    places: dict[PartitionId, _Place] = {}
    for client in ledger.clients:
        _add_samples(client, group, places)
    _add_last_positions(evidence, group, places)
    for client in ledger.clients:
        _add_written(client, group, fates, places)
    pipeline = evidence.expect.pipeline
    is_pipeline = pipeline is not None and pipeline.group == group
    is_recorded = any(place.written for place in places.values())
    is_recorded &= is_pipeline or all(_lists_positions(client, group) for client in ledger.clients)
    is_recorded &= not ledger.with_gaps  # a missing request may have written any position
    # Witnesses that read the same position, and samples of one wrong position, are one case.
    compared: set[Hashable] = set()
    for name, place in sorted(places.items()):
        place.finish(_highest_end(evidence, name))
        for sample in place.samples:
            compared.add((name, sample.position, sample.lines))
            if reason := place.contradiction(sample, ledger, is_recorded=is_recorded):
                place.wrong.add(sample)
                example = Example(
                    what=f"group {group} was at position {sample.position} of "
                    f"{partition_name(name)}, {reason}",
                    lines=list(sample.lines),
                    offsets=[OffsetRef(*name, sample.position, sample.position)],
                )
                found = frozenset({(group, name, sample.position)})
                out.add("offset_drift", "positions", found, [example])
    out.compared += len(compared)


def _sampled_groups(evidence: Evidence) -> set[str]:
    groups = {sample.group for client in evidence.ledger.clients for _, sample in client.samples()}
    groups |= {view.meta.group for view in evidence.observations if view.meta.purpose == "consumed"}
    return {group for group in groups if group}


def _lists_positions(client: Scan, group: str) -> bool:
    """Return whether a client that polls as a member of the group also lists the positions that it writes."""
    polls = any(line.group == group for _, line in client.invokes("poll"))
    written = any(line.group == group for _, line in client.invokes("send_offsets", "commit_offsets"))
    return written or not polls


def _clock(client: Scan) -> str:
    return client.opening.clock if client.opening else ""


def _add_samples(client: Scan, group: str, places: dict[PartitionId, _Place]) -> None:
    for number, sample in client.samples():
        for topic, partition, position in sample.positions if sample.group == group else ():
            place = places.setdefault((topic, partition), _Place())
            times = (sample.asked or sample.mono, sample.mono)
            place.samples.append(
                Sampled(_clock(client), *times, position, (HistoryRef(client.name, number),))
            )


def _add_last_positions(evidence: Evidence, group: str, places: dict[PartitionId, _Place]) -> None:
    """Add the positions that a witness read after the run. A witness without times read after all samples."""
    for view in evidence.observations:
        meta = view.meta
        if meta.purpose != "consumed" or meta.group != group or (meta.finished and not meta.frozen):
            continue
        at = meta.frozen or _LAST
        for topic, partition, position in meta.positions:
            place = places.setdefault((topic, partition), _Place())
            place.samples.append(Sampled(meta.clock, at, meta.finished or _LAST, position, ()))


def _fates(ledger: Ledger) -> Fates:
    groups = ledger.groups
    names = zip(groups.producer.tolist(), groups.txn.tolist(), strict=True)
    times = zip(groups.fate.tolist(), groups.asked.tolist(), groups.answered.tolist(), strict=True)
    return {name: values for name, values in zip(names, times, strict=True) if name[1] >= 0}


def _add_written(client: Scan, group: str, fates: Fates, places: dict[PartitionId, _Place]) -> None:
    answers = {d.op: d.mono for _, d in client.completions("commit_offsets") if isinstance(d, Ok)}
    for _, line in client.invokes("send_offsets", "commit_offsets"):
        if line.group != group:
            continue
        if line.f == "commit_offsets":
            written = Written(_clock(client), line.mono, answers.get(line.op))
        else:
            fate, asked, answered = fates.get((line.producer or 0, line.txn or 0), (UNKNOWN, line.mono, 0))
            if fate not in (COMMITTED, UNKNOWN):
                continue
            certain = answered if fate == COMMITTED else None
            written = Written(_clock(client), asked, certain)
        for topic, partition, position in line.offsets:
            place = places.setdefault((topic, partition), _Place())
            place.written.setdefault(position, []).append(written)


def _highest_end(evidence: Evidence, name: PartitionId) -> int:
    ends = [
        max(window.hw, window.read_to)
        for view in evidence.observations
        for window in view.meta.windows
        if view.meta.kind != "client" and (window.topic, window.partition) == name
    ]
    ends += [
        high
        for client in evidence.ledger.clients
        for _, sample in client.samples()
        for topic, partition, _, _, high in sample.bounds
        if (topic, partition) == name
    ]
    return max(ends, default=-1)


def _had_fault(ledger: Ledger, sample: Sampled) -> bool:
    return any(
        fault.mono <= sample.mono
        for client in ledger.clients
        if _clock(client) == sample.clock
        for _, fault in client.faults()
    )
