"""Causality: clients do not read each other's records in a cycle.

A poll that returned a record comes after the request that made the record readable: the commit of its
transaction, or its send. Within a client, the lines of the history are in order. No order of all events may
contradict this. Otherwise, two transactions have each read a record that the other one wrote (Adya's G1c), or
several have done so in a longer cycle.

The check needs no clock. With one clock, each such cycle also contains an early read. With several clocks,
the events of each clock are in order as well, and a cycle that needs this order is a G1c-realtime.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from harness.evidence.checkers.consumer_reads import Reads, reads_of
from harness.evidence.checkers.model import Collector, Example, HistoryRef
from harness.evidence.checkers.record_pieces import pieces_of
from harness.evidence.ledger import ABORTED, Ledger


class _Event(NamedTuple):
    """A line of a client's history."""

    client: str
    line: int
    mono: int


class _Poll(NamedTuple):
    """A poll, and the last request of each other client whose records it returned."""

    event: _Event
    causes: list[_Event]


class _Order(NamedTuple):
    """An order of events: those of one timeline are in order, and the timelines are independent."""

    timeline: Callable[[_Event], str]
    position: Callable[[_Event], int]


def check_causality(ledger: Ledger, out: Collector) -> None:
    """Find cycles in which each client read a record that another one wrote later."""
    owners = {ledger.client_of(number) for number in ledger.producers}
    readers = reads_of(ledger)
    if not {reads.client for reads in readers} & owners:
        return  # every cycle contains a client that both reads and writes
    polls = [poll for reads in readers for poll in _polls(ledger, reads)]
    cycles = _cycles(polls, _Order(lambda event: event.client, lambda event: event.line))
    out.add("g1c", "cycles", len(cycles), [_example(cycle) for cycle in cycles])
    clocks = {client.name: client.opening.clock for client in ledger.clients if client.opening}
    if len(set(clocks.values())) > 1:
        known = {cycle[0][0].event for cycle in cycles}
        others = [poll for poll in polls if poll.event not in known]
        cycles = _cycles(others, _Order(lambda event: clocks[event.client], lambda event: event.mono))
        out.add("g1c_realtime", "cycles", len(cycles), [_example(cycle) for cycle in cycles])


def _polls(ledger: Ledger, reads: Reads) -> list[_Poll]:
    """Return the polls of one client that returned records of other clients."""
    pieces, groups = pieces_of(ledger, reads.rows), ledger.groups
    # A record of an aborted transaction has no request that made it readable.
    kept = groups.committing & (groups.fate != ABORTED) & (groups.ask_line > 0)
    if reads.isolation == "read_uncommitted":
        kept &= groups.txn < 0  # such a reader may read a transaction before its commit is requested
    causes: dict[_Event, dict[str, _Event]] = {}
    rows = kept[pieces.group]
    for run, group in np.unique(np.column_stack([pieces.run, pieces.group])[rows], axis=0).tolist():
        row = reads.rows[run]
        poll = _Event(reads.client, int(row["line"]), int(row["mono"]))
        owner = ledger.client_of(int(groups.producer[group]))
        cause = _Event(owner, int(groups.ask_line[group]), int(groups.asked[group]))
        if owner != reads.client:
            last = causes.setdefault(poll, {}).setdefault(owner, cause)
            causes[poll][owner] = max(last, cause)
    return [_Poll(poll, list(by_owner.values())) for poll, by_owner in sorted(causes.items())]


def _cycles(polls: list[_Poll], order: _Order) -> list[list[tuple[_Poll, _Event]]]:
    """Return the cycles; each is a list of polls, each with a cause that comes after the next poll.

    The events are replayed. A poll can take place when all its causes have taken place, and a cause when all
    polls before it in its timeline have. If no poll can take place, the waiting polls form a cycle. It is
    recorded, one of its polls is let through, and the replay continues.
    """
    timelines: dict[str, list[_Poll]] = {}
    for poll in sorted(polls, key=lambda poll: (order.timeline(poll.event), order.position(poll.event))):
        timelines.setdefault(order.timeline(poll.event), []).append(poll)
    next_poll = dict.fromkeys(timelines, 0)

    def reached(timeline: str) -> float:
        events, number = timelines.get(timeline, []), next_poll.get(timeline, 0)
        return order.position(events[number].event) if number < len(events) else math.inf

    def obstacle(poll: _Poll) -> _Event | None:
        home = order.timeline(poll.event)
        for cause in poll.causes:
            timeline = order.timeline(cause)
            if timeline != home and order.position(cause) > reached(timeline):
                return cause
        return None

    cycles: list[list[tuple[_Poll, _Event]]] = []
    while True:
        advanced = False
        for timeline, events in timelines.items():
            while next_poll[timeline] < len(events) and obstacle(events[next_poll[timeline]]) is None:
                next_poll[timeline] += 1
                advanced = True
        stuck = {
            name: events[next_poll[name]]
            for name, events in timelines.items()
            if next_poll[name] < len(events)
        }
        if not stuck:
            return cycles
        if advanced:
            continue
        path: dict[str, tuple[_Poll, _Event]] = {}
        name = min(stuck)
        while name not in path:
            cause = obstacle(stuck[name])
            assert cause is not None
            path[name] = (stuck[name], cause)
            name = order.timeline(cause)
        names = list(path)
        cycles.append([path[member] for member in names[names.index(name) :]])
        next_poll[name] += 1


def _example(cycle: list[tuple[_Poll, _Event]]) -> Example:
    steps = [
        f"{poll.event.client} read a record of {cause.client} (request in line {cause.line}) before "
        f"its own line {poll.event.line} was complete"
        for poll, cause in cycle
    ]
    lines = [HistoryRef(event.client, event.line) for poll, cause in cycle for event in (poll.event, cause)]
    clients = sorted({poll.event.client for poll, _ in cycle})
    return Example(
        what=f"{', '.join(clients)} read each other's records in a cycle: {'; '.join(steps)}",
        weight=len(cycle),
        witness=cycle[0][0].event.client,
        lines=lines,
    )
