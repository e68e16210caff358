"""The messages of a diagram, numbered in order of time, from a frame log and the brokers' logs.

A request is a retry if the same client sent an equal request before and received no successful answer to that
request. An answer is a refusal if it contains an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec

from harness.base.errors import UsageError
from harness.base.unreadable import readable
from harness.report.diagram.message_text import request_text, response_text
from harness.report.diagram.operation_join import Operations
from harness.tap.coordinator_entries import CoordinatorEntry
from harness.tap.decoded_fields import Facts
from harness.tap.frame_lines import Frame, FrameLogOpened, Line, Sampled, Touch

Mark = Literal["", "retry", "refused", "fault", "log"]
TAP = "wire tap"
# Requests that clients repeat all the time and that belong to no transaction. By default, a diagram leaves
# them out.
NOISE = frozenset({"ApiVersions", "Metadata", "Heartbeat", "ConsumerGroupHeartbeat", "ListOffsets"})
_KEPT = ("held", "delayed")


@dataclass
class Message:
    """One arrow of a sequence diagram."""

    wall: int
    source: str
    target: str
    text: str
    answer: bool = False
    mark: Mark = ""
    lost: bool = False
    retry_of: Message | None = None
    answer_lost: bool = False
    """For a request: True if the broker answered but a fault dropped the answer."""
    number: int = 0


@dataclass
class Sequence:
    """The messages of a diagram, and its participants from left to right, each with its roles."""

    roles: dict[str, list[str]] = field(default_factory=dict)
    messages: list[Message] = field(default_factory=list)
    left_out: int = 0
    """Number of messages after the last one in the diagram. The diagram leaves them out because of its size
    limit.
    """
    not_logged: int = 0
    """Number of exchanges (a request and its answer) that the frame log counted without logging them."""


@dataclass(frozen=True)
class SequenceFilter:
    """Selection of the part of a frame log that a diagram shows."""

    window: tuple[float, float] | None = None
    """The first and the last second of the run to show. None shows the whole log."""
    transactional_id: str | None = None
    clients: frozenset[str] = frozenset()
    """Client ids to show. An empty set shows all clients."""
    most: int = 120
    everything: bool = False
    """Also show heartbeats, metadata and other frequent requests, and fetches that returned no records."""


def read_log(path: Path) -> list[Line]:
    """Read every complete line of a frame log. Skip an incomplete last line."""
    if not path.exists():
        raise UsageError(
            f"{path} does not exist: the run wrote no frame log",
            "run a scenario with verify.frames: its clients then use the TAPPED listener",
        )
    with readable(path):
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        return [msgspec.json.decode(line, type=Line) for line in whole.splitlines()]


def build_sequence(
    log: list[Line],
    entries: Iterable[CoordinatorEntry],
    operations: Operations | None,
    chosen: SequenceFilter,
    began: int | None = None,
) -> Sequence:
    """Build the content of a diagram from a frame log and from entries of the brokers' logs.

    `began` is the wall clock in ns when the run began. If it is unknown, the seconds of `chosen` are counted
    from the start of the frame log.
    """
    builder = _SequenceBuilder(chosen, operations)
    opened = next((line.wall for line in log if isinstance(line, FrameLogOpened)), 0)
    begin = opened if began is None else began
    first, last = 0, 1 << 63
    if chosen.window:
        first, last = (begin + int(seconds * 1e9) for seconds in chosen.window)
    entries = list(entries)
    builder.prepare(log, entries)
    timed = [entry for entry in entries if entry.kind != "copy"]
    for line in sorted([*log, *timed], key=lambda line: line.wall):
        if first <= line.wall <= last:
            builder.add(line)
    return builder.build()


class _SequenceBuilder:
    def __init__(self, chosen: SequenceFilter, operations: Operations | None) -> None:
        self._chosen = chosen
        self._operations = operations
        self._messages: list[Message] = []
        self._roles: dict[str, list[str]] = {}
        self._asked: dict[tuple[int, int], tuple[Frame, Message]] = {}
        self._kept: dict[tuple[int, int], Message] = {}
        self._unsettled: dict[object, Message] = {}
        self._coordinator: dict[int, str] = {}
        self._clients: set[str] = set()
        self._producer_ids: set[int] = set()
        self._copies: dict[tuple[str, int, int], list[CoordinatorEntry]] = {}
        self._not_logged = 0

    def prepare(self, log: list[Line], entries: list[CoordinatorEntry]) -> None:
        """Collect from the whole log the facts that `add` needs in advance.

        These are the clients and producer ids of the chosen transactional id, and the batches that followers
        copied. A follower's log does not record when the follower copied a batch. With acks=all, the
        followers copy a batch before the broker answers the producer. The diagram therefore shows the copy
        directly before that answer.
        """
        for copy in entries:
            if copy.kind == "copy":
                self._copies.setdefault((copy.topic, copy.partition, copy.offset), []).append(copy)
        exchanges: set[tuple[int, int]] = set()
        for line in log:
            if not isinstance(line, Frame) or line.facts is None:
                continue
            if line.side == "request" and line.facts.transactional_id == self._chosen.transactional_id:
                self._clients.add(line.client_id)
                exchanges.add((line.conn, line.n))
            if (line.conn, line.n) in exchanges and line.facts.producer_id is not None:
                self._producer_ids.add(line.facts.producer_id)

    def add(self, line: Line | CoordinatorEntry) -> None:
        """Add a line of a log to the sequence. The caller must add the lines in order of time."""
        if isinstance(line, Frame):
            if line.facts is not None and self._shows(line):
                self._add_frame(line, line.facts)
        elif isinstance(line, CoordinatorEntry):
            if not self._chosen.transactional_id or line.producer_id in self._producer_ids:
                self._add_entry(line)
        elif isinstance(line, Touch):
            self._add_touch(line)
        elif isinstance(line, Sampled):
            self._not_logged += sum(line.exchanges.values())

    def build(self) -> Sequence:
        """Number the messages and return the sequence."""
        shown = self._messages[: self._chosen.most]
        for number, message in enumerate(shown, 1):
            message.number = number
        for message in shown:
            if message.retry_of and message.retry_of.number:  # a message that is not shown has no number
                message.text += f" (retry of {message.retry_of.number})"
        present = {name for message in shown for name in (message.source, message.target)}
        names = sorted(present, key=_column)
        return Sequence(
            {name: self._roles.get(name, []) for name in names},
            shown,
            len(self._messages) - len(shown),
            self._not_logged,
        )

    def _shows(self, frame: Frame) -> bool:
        if self._chosen.transactional_id and frame.client_id not in self._clients:
            return False
        if self._chosen.clients and frame.client_id not in self._chosen.clients:
            return False
        return self._chosen.everything or frame.api not in NOISE

    def _add_frame(self, frame: Frame, facts: Facts) -> None:
        client = TAP if frame.fate == "copy" else frame.client_id or "client"
        broker = f"broker {frame.broker}"
        if frame.side == "request":
            message = self._request(frame, facts, client, broker)
            if frame.api != "Fetch" or self._chosen.everything:
                self._messages.append(message)
        else:
            self._add_response(frame, facts, client, broker)

    def _request(self, frame: Frame, facts: Facts, client: str, broker: str) -> Message:
        message = Message(frame.wall, client, broker, request_text(frame.api, facts))
        self._role(client, _role_of(frame.api))
        if operation := self._operations.of(frame) if self._operations else None:
            message.text += f" [{operation.text}]"
        if client == TAP:
            message.mark, message.text = "fault", f"{message.text} (sent again by the tap)"
        elif earlier := self._unsettled.get(_signature(frame, facts)):
            message.mark, message.retry_of = "retry", earlier
        self._unsettled[_signature(frame, facts)] = message
        if frame.fate in (*_KEPT, "lost"):
            message.mark, message.target, message.lost = "fault", TAP, frame.fate == "lost"
            self._kept[frame.conn, frame.n] = replace(message)
            message.text += f" ({frame.fate})"
        self._asked[frame.conn, frame.n] = frame, message
        return message

    def _add_response(self, frame: Frame, facts: Facts, client: str, broker: str) -> None:
        request, asked = self._asked.pop((frame.conn, frame.n), (None, None))
        if request is None or asked is None or request.facts is None:
            return
        message = Message(frame.wall, broker, client, response_text(frame.api, facts), answer=True)
        if facts.refusals:
            message.mark = "refused"
        if frame.fate in (*_KEPT, "lost", "cut"):
            message.mark, message.target, message.lost = "fault", TAP, frame.fate in ("lost", "cut")
            asked.answer_lost = message.lost
            self._kept[frame.conn, frame.n] = replace(message, target=client)
            message.text += f" ({'its client was cut off' if frame.fate == 'cut' else frame.fate})"
        elif not facts.refusals:
            self._unsettled.pop(_signature(request, request.facts), None)
            self._learn_role(request.api, request.facts, facts, broker)
        if frame.api == "Fetch" and not self._chosen.everything:
            if not facts.batches and not facts.refusals:
                return
            self._messages.append(asked)
        if frame.api == "Produce":
            for part in facts.partitions:
                for copy in self._copies.pop((part.topic, part.partition, part.offset or 0), []):
                    self._add_copy(copy, frame.wall)
        self._messages.append(message)

    def _add_copy(self, copy: CoordinatorEntry, wall: int) -> None:
        follower = f"broker {copy.what}"
        text = f"copy of {copy.topic}-{copy.partition} at {copy.offset}"
        self._messages.append(Message(wall, f"broker {copy.node}", follower, text, mark="log"))
        self._role(follower, f"follower of {copy.topic}-{copy.partition}")

    def _add_touch(self, touch: Touch) -> None:
        kept = self._kept.get((touch.conn, touch.n))
        if kept is None or touch.did not in ("released", "discarded", "undeliverable"):
            return
        target = kept.target if kept.answer else f"broker {touch.broker}"
        text = f"{touch.did}: {kept.text}"
        lost = touch.did != "released"
        self._messages.append(
            Message(touch.wall, TAP, target, text, answer=kept.answer, mark="fault", lost=lost)
        )

    def _add_entry(self, entry: CoordinatorEntry) -> None:
        producer = f"pid {entry.producer_id} epoch {entry.epoch}"
        node = f"broker {entry.node}"
        if entry.kind == "marker":
            place = f"{entry.topic}-{entry.partition}"
            text = f"marker {entry.what.upper()} into {place} at {entry.offset}, {producer}"
            source, target = self._coordinator.get(entry.producer_id, node), node
            role = f"leader of {place}"
        elif entry.kind == "decision":
            self._coordinator[entry.producer_id] = node
            text = f"{entry.transactional_id} is {entry.what}, {producer}"
            source, target, role = node, node, f"coordinator of {entry.transactional_id}"
        else:
            node = f"controller {entry.node}"
            text = f"block of producer ids from {entry.producer_id}"
            source, target, role = node, f"broker {entry.what}", "active controller"
        self._messages.append(Message(entry.wall, source, target, text, mark="log"))
        self._role(node, role)

    def _learn_role(self, api: str, asked: Facts, answer: Facts, broker: str) -> None:
        if api == "FindCoordinator":
            for coordinator in answer.coordinators:
                role = f"coordinator of {asked.transactional_id or asked.group}"
                self._role(f"broker {coordinator.broker}", role)
        elif api in ("Produce", "Fetch"):
            for part in answer.partitions:
                self._role(broker, f"leader of {part.topic}-{part.partition}")

    def _role(self, name: str, role: str) -> None:
        roles = self._roles.setdefault(name, [])
        if role and role not in roles:
            roles.append(role)


def _signature(frame: Frame, facts: Facts) -> object:
    """Return a key that is equal for a request and all of its retries."""
    batches = tuple((b.topic, b.partition, b.producer_id, b.epoch, b.base_sequence) for b in facts.batches)
    places = tuple((p.topic, p.partition, p.offset) for p in facts.partitions)
    return (
        frame.client_id,
        frame.api,
        facts.transactional_id,
        facts.producer_id,
        facts.epoch,
        facts.committed,
        facts.group,
        batches,
        places,
    )


def _role_of(api: str) -> str:
    if api in ("InitProducerId", "Produce", "AddPartitionsToTxn", "EndTxn"):
        return "producer"
    return "consumer" if api in ("Fetch", "JoinGroup", "OffsetFetch") else ""


def _column(name: str) -> tuple[int, str]:
    """Return the sort key of a participant: clients come first, then the tap, brokers and controllers."""
    kinds = (TAP, "broker ", "controller ")
    return next((i for i, kind in enumerate(kinds, 1) if name.startswith(kind)), 0), name
