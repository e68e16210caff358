"""Which frame a fault hits, and what it does to it: the rules that are armed in the tap.

    lose_response   the broker gets the request and executes it; its answer is lost
    lose_request    the broker never gets the request
    hold            kept back until it is released; everything behind it on the connection waits too
    delay           kept back for a time
    duplicate       sent again, on a connection of the tap's own
    cut_after       delivered, and the client's connection is cut behind it

TCP has no overtaking: one frame cannot be missing from a stream that goes on. After a lost frame the
connection is therefore cut (`then = "cut"`), or carries nothing any more (`then = "silence"`).
"""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from harness.base.errors import UsageError
from harness.tap import api_keys
from harness.tap.decoded_fields import Facts
from harness.tap.frame_lines import Side
from harness.tap.framing import Head

Verb = Literal["lose_response", "lose_request", "hold", "delay", "duplicate", "cut_after"]
HOLD_LIMIT_S = 60.0


class Rule(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A fault of single frames: the verb, and the selectors that all must hold for a request to match."""

    id: str
    verb: Verb
    api: str
    nth: int = 1
    """The first match that is hit, counted from 1 since the rule was armed."""
    times: int | None = 1
    """How many matches in a row are hit; None: every one from the nth on."""
    brokers: tuple[int, ...] = ()
    client_id: str | None = None
    transactional_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    side: Side = "request"
    """hold, delay: which is kept back; cut_after: behind which; duplicate: sent again after which."""
    then: Literal["cut", "silence"] = "cut"
    drop_client: bool = False
    """hold: cut the client's connection at once; the held frame stays, and still goes to the broker."""
    seconds: float | None = None
    """delay, duplicate: for how long; hold: after how long the frame is discarded."""
    until: str | None = None
    """hold, duplicate: release when a later request of this api, of the same client, has been answered."""

    def check(self) -> None:
        """Refuse what no frame can match, or what contradicts itself."""
        api_keys.key_of(self.api)
        if self.until:
            api_keys.key_of(self.until)
        if self.nth < 1 or (self.times is not None and self.times < 1):
            raise UsageError(f"{self.verb} of match {self.nth}, {self.times} times", "both count from 1")
        if self.verb == "delay" and not self.seconds:
            raise UsageError("a delay without seconds", "say for how long, or use hold")
        if self.partition is not None and self.topic is None:
            raise UsageError(f"partition {self.partition} of no topic", "name the topic too")

    @property
    def reads_facts(self) -> bool:
        """Whether a request must be decoded to know whether it matches."""
        return self.transactional_id is not None or self.topic is not None


class Hit(msgspec.Struct, kw_only=True):
    """One frame that a rule hit, and what became of it."""

    conn: int
    broker: int
    n: int
    client_id: str
    bytes: int
    mono: int
    did: str
    """held, delayed, lost, duplicated, cut; then released, discarded, delivered."""
    ended: int | None = None
    answer: str | None = None
    """The broker's answer to a frame that was sent late or twice: NONE, or an error's name."""


class Armed(msgspec.Struct, kw_only=True):
    """A rule that is armed, and what it has done so far."""

    rule: Rule
    matched: int = 0
    hits: list[Hit] = []

    @property
    def spent(self) -> bool:
        """Whether it will hit nothing more."""
        return self.rule.times is not None and self.matched >= self.rule.nth + self.rule.times - 1


class Book:
    """The rules that are armed, in the order of arming."""

    def __init__(self) -> None:
        self.armed: dict[str, Armed] = {}

    def __bool__(self) -> bool:
        return bool(self.armed)

    def arm(self, rule: Rule) -> None:
        """Add a rule."""
        rule.check()
        if rule.id in self.armed:
            raise UsageError(f"rule {rule.id!r} is armed already", "disarm it first, or give it another id")
        self.armed[rule.id] = Armed(rule=rule)

    def needs_facts(self, head: Head) -> bool:
        """Whether some rule must see inside this request."""
        return any(
            a.rule.reads_facts and not a.spent and api_keys.key_of(a.rule.api) == head.key
            for a in self.armed.values()
        )

    def match(self, broker: int, head: Head, facts: Facts | None) -> Armed | None:
        """The first rule that hits this request; every rule counts its own matches."""
        chosen = None
        for armed in self.armed.values():
            if armed.spent or not matches(armed.rule, broker, head, facts):
                continue
            armed.matched += 1
            if armed.matched >= armed.rule.nth and chosen is None:
                chosen = armed
        return chosen


def matches(rule: Rule, broker: int, head: Head, facts: Facts | None) -> bool:
    """Whether a request is of those that a rule speaks of."""
    if api_keys.key_of(rule.api) != head.key or (rule.brokers and broker not in rule.brokers):
        return False
    if rule.client_id is not None and rule.client_id != head.client_id:
        return False
    if not rule.reads_facts:
        return True
    if facts is None:
        return False
    if rule.transactional_id is not None and rule.transactional_id != facts.transactional_id:
        return False
    return rule.topic is None or facts.touches(rule.topic, rule.partition)


def hit_of(armed: Armed, *, conn: int, broker: int, n: int, client_id: str, size: int, did: str) -> Hit:
    """Note in the rule that it hit a frame."""
    hit = Hit(
        conn=conn, broker=broker, n=n, client_id=client_id, bytes=size, mono=time.monotonic_ns(), did=did
    )
    armed.hits.append(hit)
    return hit
