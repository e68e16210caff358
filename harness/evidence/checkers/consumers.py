"""Consumers: each reader was given every readable record, in order, and no effect came before its cause.

Anomalies:

    a poll passed over a readable record                              poll_skip
    a poll returned an offset again, or offsets out of order          nonmonotonic_poll
    a reader read to the end but was not given a readable record      unseen
    clients read each other's records in a cycle                      g1c, g1c_realtime

An offset counts as readable only if a complete read_committed witness read a record there. So markers,
aborted records and offsets that the witness did not reach are no skips.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from harness.base.partition_id import PartitionId, partition_name
from harness.evidence.bit_words import EXAMPLES
from harness.evidence.checkers.causality import check_causality
from harness.evidence.checkers.model import Collector, Evidence, Example, HistoryRef, OffsetRef, Result
from harness.evidence.checkers.offset_ranges import OffsetRanges
from harness.evidence.checkers.poll_order import Jump, jumps, skipped_polls
from harness.evidence.checkers.word_readers import WordReaders, certain_offsets
from harness.evidence.history import Ok
from harness.evidence.ledger import Ledger
from harness.evidence.ledger.history_scan import MOVES

Readable = dict[PartitionId, OffsetRanges]
_Reading = tuple[str, PartitionId]
"""Reader and partition."""


def check(evidence: Evidence) -> Result:
    """Check the polls of all consumers."""
    out = Collector("consumers", "polls with records")
    readable, with_runs = _readable(evidence)
    words = WordReaders(evidence, with_runs)
    _check_order(evidence.ledger, readable, words, out)
    _check_caught_up(evidence.ledger, readable, words, out)
    _check_idle(evidence, readable, out)
    check_causality(evidence.ledger, out)
    out.reasons += skipped_polls(evidence.ledger).values()
    for client in evidence.ledger.clients:
        out.compared += sum(bool(done.read) for _, done in client.completions("poll"))
    return out.result()


def has_consumers(ledger: Ledger) -> bool:
    """Return whether the histories contain polls or positions of consumers."""
    return any(True for client in ledger.clients for _ in client.invokes("poll", *MOVES))


def _readable(evidence: Evidence) -> tuple[Readable, set[PartitionId]]:
    """Return the offsets of each partition at which a complete witness read a record.

    Also return the partitions in which all of them are known, because a witness recorded its runs.
    """
    tables = defaultdict(list)
    with_runs = set()
    for view in evidence.committed_views():
        for index, window in enumerate(view.meta.windows if view.meta.complete else ()):
            place = (window.topic, window.partition)
            if view.runs is None:
                tables[place].append(certain_offsets(view, index))
                continue
            runs = view.runs[view.runs["partition"] == index]
            offsets = runs["offset"]
            tables[place].append(np.column_stack([offsets, offsets + runs["count"]]))
            with_runs.add(place)
    readable = {place: OffsetRanges.of(np.concatenate(parts)) for place, parts in tables.items()}
    return readable, with_runs


def _check_order(ledger: Ledger, readable: Readable, words: WordReaders, out: Collector) -> None:
    back: list[Example] = []
    skips: dict[PartitionId, list[tuple[int, int]]] = defaultdict(list)
    examples: list[Example] = []
    steps_back = 0
    for jump in jumps(ledger):
        if jump.offset < jump.expected:
            steps_back += 1
            back = sorted([*back, _back(jump)], key=lambda e: e.what)[:EXAMPLES]
            continue
        if jump.place not in readable or not readable[jump.place].count(jump.expected, jump.offset):
            # Most jumps pass over a transaction marker.
            if missing := words.skipped(jump):
                out.add("poll_skip", "records", missing, [_skip(jump, len(missing), [])])
            continue
        records = readable[jump.place].within(jump.expected, jump.offset)
        # A poll that returned its records in the wrong order skipped none of them.
        skipped = records.minus(OffsetRanges.of(jump.returned))
        if len(skipped):
            skips[jump.place] += skipped.pairs()
            examples.append(_skip(jump, len(skipped), skipped.pairs()))
            examples = sorted(examples, key=lambda e: -e.weight)[:EXAMPLES]
    out.add("nonmonotonic_poll", "steps back", steps_back, back)
    # Several readers may skip the same record, which counts once.
    out.add("poll_skip", "records", sum(len(OffsetRanges.of(pairs)) for pairs in skips.values()), examples)


def _back(jump: Jump) -> Example:
    where = "in one poll" if jump.inside else "at its next poll"
    return Example(
        what=f"{jump.client} had to continue {partition_name(jump.place)} at offset {jump.expected}, but "
        f"was given offset {jump.offset} {where}, without a rebalance or seek",
        witness=jump.client,
        lines=[HistoryRef(jump.client, jump.line)],
        offsets=[OffsetRef(*jump.place, jump.offset, jump.expected - 1)],
    )


def _skip(jump: Jump, number: int, skipped: list[tuple[int, int]]) -> Example:
    cause = "in one poll" if jump.inside else "at its next poll, without a rebalance or seek"
    if jump.rebalanced:
        cause = f"after a rebalance, although its group had committed at most {jump.expected}"
    return Example(
        what=f"{jump.client} passed over {number} readable records of {partition_name(jump.place)}: "
        f"it was given offset {jump.offset} instead of {jump.expected} {cause}",
        weight=number,
        witness=jump.client,
        lines=[HistoryRef(jump.client, jump.line)],
        offsets=[OffsetRef(*jump.place, first, end - 1) for first, end in skipped[:EXAMPLES]],
    )


@dataclass
class _Claim:
    """A consumer's record that it was given all readable records of a partition before an offset."""

    client: str
    line: int
    group: str | None
    place: PartitionId
    end: int


def _check_caught_up(ledger: Ledger, readable: Readable, words: WordReaders, out: Collector) -> None:
    """Find readable records that a reader was not given, although it read the partition to its end.

    The members of a group share the partitions, so what one of them was given counts for all of them.
    """
    incomplete = ledger.with_gaps | skipped_polls(ledger).keys()
    claims = [
        _Claim(client.name, number, line.group, (topic, partition), end)
        for client in ledger.clients
        for number, line in client.invokes("caught_up")
        for topic, partition, end in line.offsets
        # A missing poll may have returned the records.
        if client.name not in incomplete and not (line.group and incomplete)
    ]
    given, starts = _given(ledger) if claims else ({}, {})
    members = _members(ledger) if claims else {}
    unseen: dict[PartitionId, list[tuple[int, int]]] = defaultdict(list)
    examples: list[Example] = []
    for claim in claims:
        key = (_reader(claim.client, claim.group), claim.place)
        ranges = OffsetRanges.of(given.get(key, []))
        if key not in starts and not len(ranges):
            out.reasons.append(
                f"{claim.client} recorded that it had read {partition_name(claim.place)} to offset "
                f"{claim.end}, but its history lists neither an assignment nor a record of it"
            )
            continue
        # Without an assignment in the history, consider only what follows the first record of the reader.
        start = starts.get(key, int(ranges.first[0]) if len(ranges) else claim.end)
        out.compared += 1
        records = readable.get(claim.place, OffsetRanges.of([])).within(start, claim.end).minus(ranges)
        if len(records):
            unseen[claim.place] += records.pairs()
            examples.append(_unseen(claim, len(records), records.pairs()))
            examples = sorted(examples, key=lambda e: -e.weight)[:EXAMPLES]
            continue
        if missing := words.unseen(members.get(key[0], []), claim.place, start, claim.end):
            out.add("unseen", "records", missing, [_unseen(claim, len(missing), [])])
    out.add("unseen", "records", sum(len(OffsetRanges.of(pairs)) for pairs in unseen.values()), examples)


def _check_idle(evidence: Evidence, readable: Readable, out: Collector) -> None:
    """Find readers that polled to the end of the run and were given nothing, although records are readable.

    They prove nothing about any record. A broker that never answers a consumer leaves no other trace.
    """
    ledger = evidence.ledger
    given, starts = _given(ledger)
    with_records = {reader for reader, _ in given}
    waited = {reader for reader, clients in _members(ledger).items() if _waited(evidence, clients)}
    for (reader, place), start in sorted(starts.items()):
        records = readable.get(place, OffsetRanges.of([]))
        number = len(records.within(start, int(records.end[-1]))) if len(records) else 0
        if reader in waited and reader not in with_records and number:
            out.reasons.append(
                f"{reader} polled, but was given none of the {number} readable records of "
                f"{partition_name(place)} from offset {start} on"
            )


def _waited(evidence: Evidence, names: list[str]) -> bool:
    """Return whether one of the clients polled with success, and ended because the run asked it to."""
    ended = evidence.clients
    for client in evidence.ledger.clients:
        record = ended.get(client.name) if ended else None
        stopped = client.closing is not None and (record is None or record.ended != "by a fault")
        if client.name in names and stopped and any(isinstance(d, Ok) for _, d in client.completions("poll")):
            return True
    return False


def unfinished_readings(evidence: Evidence) -> list[str]:
    """Return a note for each partition that a reader did not read to its end, as far as it recorded this."""
    ledger = evidence.ledger
    writers = {_reader(ledger.client_of(number), None) for number in ledger.producers}
    readers = {
        (_reader(client.name, line.group), (topic, partition))
        for client in ledger.clients
        if _reader(client.name, None) not in writers and client.closing is not None
        for _, line in client.invokes("assign")
        for topic, partition, _ in line.offsets
    }
    reached = {
        (_reader(client.name, line.group), (topic, partition))
        for client in ledger.clients
        for _, line in client.invokes("caught_up")
        for topic, partition, _ in line.offsets
    }
    return [
        f"{reader} did not read {partition_name(place)} to its end, so it is not checked for unseen records"
        for reader, place in sorted(readers - reached)
    ]


def _reader(client: str, group: str | None) -> str:
    """Return the name of a reader. The members of a group are one reader."""
    return f"client {client}" if group is None else f"group {group}"


def _members(ledger: Ledger) -> dict[str, list[str]]:
    """Return the clients that polled as each reader."""
    members: dict[str, list[str]] = defaultdict(list)
    for client in ledger.clients:
        for group in {line.group for _, line in client.invokes("poll")}:
            members[_reader(client.name, group)].append(client.name)
    return members


def _given(ledger: Ledger) -> tuple[dict[_Reading, list[tuple[int, int]]], dict[_Reading, int]]:
    """Return the offsets that each reader was given in each partition, and where it began to read."""
    given: dict[_Reading, list[tuple[int, int]]] = defaultdict(list)
    starts: dict[_Reading, int] = {}
    for client in ledger.clients:
        groups = {line.op: line.group for _, line in client.invokes("poll")}
        for _, line in client.invokes("assign"):
            for topic, partition, offset in line.offsets:
                key = (_reader(client.name, line.group), (topic, partition))
                # A group that has committed no position begins at the first offset.
                start = max(0, offset)
                starts[key] = min(start, starts.get(key, start))
        for _, done in client.completions("poll"):
            reader = _reader(client.name, groups.get(done.op))
            for topic, partition, offset, _, _, _, count in done.read:
                given[reader, (topic, partition)].append((offset, offset + count))
    return given, starts


def _unseen(claim: _Claim, number: int, records: list[tuple[int, int]]) -> Example:
    reader = claim.client if claim.group is None else f"no member of group {claim.group}"
    verb = "was not given" if claim.group is None else "was given"
    return Example(
        what=f"{reader} {verb} {number} readable records of {partition_name(claim.place)}, although "
        f"{claim.client} read it to offset {claim.end}",
        weight=number,
        witness=claim.client,
        lines=[HistoryRef(claim.client, claim.line)],
        offsets=[OffsetRef(*claim.place, first, end - 1) for first, end in records[:EXAMPLES]],
    )
