"""The steps of a diagram, from a frame log and from what the logs tell: who asked whom what, and the answer.

Numbered in the order of time. A request is a retry if the same client asked for the same before and was
not told that it had been done; an answer is a refusal if it carries an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec

from harness.base.errors import UsageError
from harness.report.diagram.message_text import request_text, response_text
from harness.report.diagram.operation_join import Operations
from harness.tap.coordinator_entries import CoordinatorEntry
from harness.tap.decoded_fields import Facts
from harness.tap.frame_lines import Frame, FrameLogOpened, Line, Sampled, Touch

Mark = Literal["", "retry", "refused", "fault", "log"]
TAP = "wire tap"
# What every client says all the time, and what tells nothing of a transaction.
NOISE = frozenset({"ApiVersions", "Metadata", "Heartbeat", "ConsumerGroupHeartbeat", "ListOffsets"})
_KEPT = ("held", "delayed")


@dataclass
class Message:
    """One arrow of the diagram."""

    wall: int
    source: str
    target: str
    text: str
    answer: bool = False
    mark: Mark = ""
    lost: bool = False
    retry_of: Message | None = None
    unheard: bool = False
    """It was answered, and the answer never came."""
    number: int = 0


@dataclass
class Sequence:
    """What a diagram shows: participants in their order, each with its roles, and the steps between them."""

    roles: dict[str, list[str]] = field(default_factory=dict)
    steps: list[Message] = field(default_factory=list)
    left_out: int = 0
    """Steps behind the last that is shown."""
    not_logged: int = 0
    """Exchanges that the frame log counted and did not write."""


@dataclass(frozen=True)
class SequenceFilter:
    """What a diagram is to show."""

    window: tuple[float, float] | None = None
    """Seconds since the frame log began."""
    transactional_id: str | None = None
    clients: frozenset[str] = frozenset()
    """Only these clients; none: all."""
    most: int = 120
    everything: bool = False
    """Also what every client says all the time, and fetches that brought nothing."""


def read_log(path: Path) -> list[Line]:
    """Every whole line of a frame log."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"{path} does not exist: the run wrote no frame log",
            "a run writes one when its clients use the TAPPED listener",
        ) from None
    whole = data[: data.rfind(b"\n") + 1]
    return [msgspec.json.decode(line, type=Line) for line in whole.splitlines()]


def build_sequence(
    log: list[Line],
    log_steps: Iterable[CoordinatorEntry],
    operations: Operations | None,
    wanted: SequenceFilter,
) -> Sequence:
    """The story of a frame log."""
    teller = _SequenceBuilder(wanted, operations)
    begin = next((line.wall for line in log if isinstance(line, FrameLogOpened)), 0)
    first, last = 0, 1 << 63
    if wanted.window:
        first, last = (begin + int(seconds * 1e9) for seconds in wanted.window)
    steps = list(log_steps)
    teller.learn(log, steps)
    timed = [step for step in steps if step.kind != "copy"]
    for each in sorted([*log, *timed], key=lambda line: line.wall):
        if first <= each.wall <= last:
            teller.take(each)
    return teller.story()


class _SequenceBuilder:
    def __init__(self, wanted: SequenceFilter, operations: Operations | None) -> None:
        self._wanted = wanted
        self._operations = operations
        self._steps: list[Message] = []
        self._roles: dict[str, list[str]] = {}
        self._asked: dict[tuple[int, int], tuple[Frame, Message]] = {}
        self._kept: dict[tuple[int, int], Message] = {}
        self._unsettled: dict[object, Message] = {}
        self._coordinator: dict[int, str] = {}
        self._clients: set[str] = set()
        self._producer_ids: set[int] = set()
        self._copies: dict[tuple[str, int, int], list[CoordinatorEntry]] = {}
        self._not_logged = 0

    def learn(self, log: list[Line], log_steps: list[CoordinatorEntry]) -> None:
        """Learn who belongs to the transactional id that is asked for, and which batches were copied.

        A log does not tell when a follower copied a batch; with acks=all that was before its answer.
        """
        for copy in log_steps:
            if copy.kind == "copy":
                self._copies.setdefault((copy.topic, copy.partition, copy.offset), []).append(copy)
        mine: set[tuple[int, int]] = set()
        for line in log:
            if not isinstance(line, Frame) or line.facts is None:
                continue
            if line.side == "request" and line.facts.transactional_id == self._wanted.transactional_id:
                self._clients.add(line.client_id)
                mine.add((line.conn, line.n))
            if (line.conn, line.n) in mine and line.facts.producer_id is not None:
                self._producer_ids.add(line.facts.producer_id)

    def take(self, line: Line | CoordinatorEntry) -> None:
        """Take in what happened next."""
        if isinstance(line, Frame):
            if line.facts is not None and self._shows(line):
                self._frame(line, line.facts)
        elif isinstance(line, CoordinatorEntry):
            if not self._wanted.transactional_id or line.producer_id in self._producer_ids:
                self._log_step(line)
        elif isinstance(line, Touch):
            self._touch(line)
        elif isinstance(line, Sampled):
            self._not_logged += sum(line.exchanges.values())

    def story(self) -> Sequence:
        """What was told."""
        shown = self._steps[: self._wanted.most]
        for number, step in enumerate(shown, 1):
            step.number = number
        for step in shown:
            if step.retry_of and step.retry_of.number:  # what is not shown has no number
                step.text += f" (retry of {step.retry_of.number})"
        present = {name for step in shown for name in (step.source, step.target)}
        names = sorted(present, key=_place)
        return Sequence(
            {name: self._roles.get(name, []) for name in names},
            shown,
            len(self._steps) - len(shown),
            self._not_logged,
        )

    def _shows(self, frame: Frame) -> bool:
        if self._wanted.transactional_id and frame.client_id not in self._clients:
            return False
        if self._wanted.clients and frame.client_id not in self._wanted.clients:
            return False
        return self._wanted.everything or frame.api not in NOISE

    def _frame(self, frame: Frame, facts: Facts) -> None:
        client = TAP if frame.fate == "copy" else frame.client_id or "client"
        broker = f"broker {frame.broker}"
        if frame.side == "request":
            step = self._request(frame, facts, client, broker)
            if frame.api != "Fetch" or self._wanted.everything:
                self._steps.append(step)
        else:
            self._response(frame, facts, client, broker)

    def _request(self, frame: Frame, facts: Facts, client: str, broker: str) -> Message:
        step = Message(frame.wall, client, broker, request_text(frame.api, facts))
        self._role(client, _role_of(frame.api))
        if operation := self._operations.of(frame) if self._operations else None:
            step.text += f" [{operation.text}]"
        if client == TAP:
            step.mark, step.text = "fault", f"{step.text} (sent again by the tap)"
        elif earlier := self._unsettled.get(_signature(frame, facts)):
            step.mark, step.retry_of = "retry", earlier
        self._unsettled[_signature(frame, facts)] = step
        if frame.fate in (*_KEPT, "lost"):
            step.mark, step.target, step.lost = "fault", TAP, frame.fate == "lost"
            self._kept[frame.conn, frame.n] = replace(step)
            step.text += f" ({frame.fate})"
        self._asked[frame.conn, frame.n] = frame, step
        return step

    def _response(self, frame: Frame, facts: Facts, client: str, broker: str) -> None:
        request, asked = self._asked.pop((frame.conn, frame.n), (None, None))
        if request is None or asked is None or request.facts is None:
            return
        step = Message(frame.wall, broker, client, response_text(frame.api, facts), answer=True)
        if facts.refusals:
            step.mark = "refused"
        if frame.fate in (*_KEPT, "lost", "cut"):
            step.mark, step.target, step.lost = "fault", TAP, frame.fate in ("lost", "cut")
            asked.unheard = step.lost
            self._kept[frame.conn, frame.n] = replace(step, target=client)
            step.text += f" ({'its client was cut off' if frame.fate == 'cut' else frame.fate})"
        elif not facts.refusals:
            self._unsettled.pop(_signature(request, request.facts), None)
            self._learn_role(request.api, request.facts, facts, broker)
        if frame.api == "Fetch" and not self._wanted.everything:
            if not facts.batches and not facts.refusals:
                return
            self._steps.append(asked)
        if frame.api == "Produce":
            for part in facts.partitions:
                for copy in self._copies.pop((part.topic, part.partition, part.offset or 0), []):
                    self._copy(copy, frame.wall)
        self._steps.append(step)

    def _copy(self, copy: CoordinatorEntry, wall: int) -> None:
        follower = f"broker {copy.what}"
        text = f"copy of {copy.topic}-{copy.partition} at {copy.offset}"
        self._steps.append(Message(wall, f"broker {copy.node}", follower, text, mark="log"))
        self._role(follower, f"follower of {copy.topic}-{copy.partition}")

    def _touch(self, touch: Touch) -> None:
        kept = self._kept.get((touch.conn, touch.n))
        if kept is None or touch.did not in ("released", "discarded", "undeliverable"):
            return
        target = kept.target if kept.answer else f"broker {touch.broker}"
        text = f"{touch.did}: {kept.text}"
        lost = touch.did != "released"
        self._steps.append(
            Message(touch.wall, TAP, target, text, answer=kept.answer, mark="fault", lost=lost)
        )

    def _log_step(self, step: CoordinatorEntry) -> None:
        who = f"pid {step.producer_id} epoch {step.epoch}"
        if step.kind == "marker":
            node = f"broker {step.node}"
            text = f"marker {step.what.upper()} into {step.topic}-{step.partition} at {step.offset}, {who}"
            self._add_log(step, self._coordinator.get(step.producer_id, node), node, text)
            self._role(node, f"leader of {step.topic}-{step.partition}")
        elif step.kind == "decision":
            node = f"broker {step.node}"
            self._coordinator[step.producer_id] = node
            self._add_log(step, node, node, f"{step.transactional_id} is {step.what}, {who}")
            self._role(node, f"coordinator of {step.transactional_id}")
        else:
            node = f"controller {step.node}"
            self._add_log(step, node, f"broker {step.what}", f"block of producer ids from {step.producer_id}")
            self._role(node, "active controller")

    def _add_log(self, step: CoordinatorEntry, source: str, target: str, text: str) -> None:
        self._steps.append(Message(step.wall, source, target, text, mark="log"))

    def _learn_role(self, api: str, asked: Facts, answer: Facts, broker: str) -> None:
        if api == "FindCoordinator":
            for found in answer.coordinators:
                self._role(
                    f"broker {found.broker}", f"coordinator of {asked.transactional_id or asked.group}"
                )
        elif api in ("Produce", "Fetch"):
            for part in answer.partitions:
                self._role(broker, f"leader of {part.topic}-{part.partition}")

    def _role(self, name: str, role: str) -> None:
        roles = self._roles.setdefault(name, [])
        if role and role not in roles:
            roles.append(role)


def _signature(frame: Frame, facts: Facts) -> object:
    """What makes two requests ask for the same."""
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


def _place(name: str) -> tuple[int, str]:
    """Clients first, then the tap, brokers and controllers: the order of the textbook."""
    kinds = (TAP, "broker ", "controller ")
    return next((i for i, kind in enumerate(kinds, 1) if name.startswith(kind)), 0), name
