"""The rules of the tap: which frames a fault hits, and the action on them.

    lose_response   the broker receives and executes the request; its answer is lost
    lose_request    the broker never receives the request
    hold            the frame and all bytes after it are kept back until the frame is released
    delay           the frame and all bytes after it are kept back for a time
    duplicate       the frame is sent a second time, on a connection of the tap
    cut_after       the frame is delivered, then the client's connection is cut

A TCP stream cannot continue after the loss of a frame. If `then` is "cut", the tap therefore cuts the
connection. If `then` is "silence", the connection stays open, but the tap drops all later bytes in the
direction of the lost frame.
"""

from __future__ import annotations

import time
from typing import Final, Literal

import msgspec

from harness.base.errors import UsageError
from harness.tap import api_keys
from harness.tap.decoded_fields import Facts
from harness.tap.frame_lines import Side
from harness.tap.framing import Head

Verb = Literal["lose_response", "lose_request", "hold", "delay", "duplicate", "cut_after"]
HOLD_LIMIT_S = 60.0
ANY_API: Final = "*"
"""Value of `api` in a rule for the requests of every api."""


class Rule(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A fault on single frames: its action (`verb`) and its selectors. A request must match all selectors."""

    id: str
    verb: Verb
    api: str
    nth: int = 1
    """Number of the first matching request on which the rule acts. Matching requests are counted from 1
    since the rule was armed.
    """
    times: int | None = 1
    """Number of consecutive matches that are hit. None: every match from the nth on."""
    brokers: tuple[int, ...] = ()
    client_id: str | None = None
    transactional_id: str | None = None
    producer_id: int | None = None
    """Selects also WriteTxnMarkers requests, which contain no transactional id."""
    topic: str | None = None
    partition: int | None = None
    side: Side = "request"
    """For hold and delay: whether the request or its answer is kept back. For cut_after and duplicate:
    whether the request or its answer triggers the action.
    """
    then: Literal["cut", "silence"] = "cut"
    drop_client: bool = False
    """For hold: cut the client's connection at once. The held frame can still be sent to the broker."""
    seconds: float | None = None
    """For delay and duplicate: time until the frame is sent. For hold: time until it is discarded."""
    until: str | None = None
    """For hold and duplicate: name of an api. The frame is released after the answer to a later request of
    this api by the same client.
    """

    def check(self) -> None:
        """Raise UsageError if no frame can match the rule, or if its fields contradict each other."""
        if self.api != ANY_API:
            api_keys.key_of(self.api)
        if self.api == ANY_API and self.reads_facts:
            raise UsageError("a rule for every api selects by fields", "select by client_id and brokers")
        if self.until:
            api_keys.key_of(self.until)
        if self.nth < 1 or (self.times is not None and self.times < 1):
            raise UsageError(
                f"{self.verb} of match {self.nth}, {self.times} times", "set nth and times to 1 or more"
            )
        if self.verb == "delay" and not self.seconds:
            raise UsageError("a delay needs seconds", "set seconds, or use hold")
        if self.partition is not None and self.topic is None:
            raise UsageError(f"partition {self.partition} without a topic", "name the topic too")

    @property
    def reads_facts(self) -> bool:
        """Whether the rule selects by fields that are known only after the request is decoded."""
        return not (self.transactional_id is None and self.producer_id is None and self.topic is None)


class Hit(msgspec.Struct, kw_only=True):
    """One frame that a rule hit, and its outcome."""

    conn: int
    broker: int
    n: int
    client_id: str
    bytes: int
    mono: int
    did: str
    """What happened to the frame. At first: held, delayed, lost, copied or cut. Later: released, discarded,
    delivered or undeliverable.
    """
    ended: int | None = None
    answer: str | None = None
    """The broker's answer to a frame that was sent late or twice: `NONE` or an error name."""


class Armed(msgspec.Struct, kw_only=True):
    """An armed rule, the number of requests that matched it, and its hits."""

    rule: Rule
    matched: int = 0
    hits: list[Hit] = []

    @property
    def spent(self) -> bool:
        """Whether the rule has hit as many frames as it may, so that it acts on no more frames."""
        return self.rule.times is not None and self.matched >= self.rule.nth + self.rule.times - 1


class RuleBook:
    """Armed rules, in the order in which they were armed."""

    def __init__(self) -> None:
        self.armed: dict[str, Armed] = {}

    def __bool__(self) -> bool:
        return bool(self.armed)

    def arm(self, rule: Rule) -> None:
        rule.check()
        if rule.id in self.armed:
            raise UsageError(f"rule {rule.id!r} is already armed", "disarm it first, or use another id")
        self.armed[rule.id] = Armed(rule=rule)

    def needs_facts(self, head: Head) -> bool:
        """Return whether an armed rule can decide about a request only after the request is decoded."""
        return any(a.rule.reads_facts and not a.spent and _names(a.rule, head) for a in self.armed.values())

    def match(self, broker: int, head: Head, facts: Facts | None) -> Armed | None:
        """Return the first rule that hits a request, or None. Every rule counts its matches separately."""
        chosen = None
        for armed in self.armed.values():
            if armed.spent or not matches(armed.rule, broker, head, facts):
                continue
            armed.matched += 1
            if armed.matched >= armed.rule.nth and chosen is None:
                chosen = armed
        return chosen


def matches(rule: Rule, broker: int, head: Head, facts: Facts | None) -> bool:
    """Return whether a request matches all selectors of a rule."""
    if not _names(rule, head) or (rule.brokers and broker not in rule.brokers):
        return False
    if rule.client_id is not None and rule.client_id != head.client_id:
        return False
    if not rule.reads_facts:
        return True
    if facts is None:
        return False
    ident, producer = rule.transactional_id, rule.producer_id
    return (
        (ident is None or facts.names_transactional_id(ident))
        and (producer is None or facts.names_producer_id(producer))
        and (rule.topic is None or facts.touches(rule.topic, rule.partition))
    )


def _names(rule: Rule, head: Head) -> bool:
    return rule.api == ANY_API or api_keys.key_of(rule.api) == head.key


def add_hit(armed: Armed, *, conn: int, broker: int, n: int, client_id: str, size: int, did: str) -> Hit:
    """Add a hit to an armed rule, and return the hit."""
    hit = Hit(
        conn=conn, broker=broker, n=n, client_id=client_id, bytes=size, mono=time.monotonic_ns(), did=did
    )
    armed.hits.append(hit)
    return hit
