"""The rules of the tap: which frames a fault hits, and the action on them.

    lose_response   the broker receives and executes the request; its answer is lost
    lose_request    the broker never receives the request
    hold            the frame is kept back until it is released, with everything behind it
    delay           the frame is kept back for a time
    duplicate       the frame is sent a second time, on the tap's own connection
    cut_after       the frame is delivered, then the client's connection is cut

A TCP stream cannot continue with a frame missing. After a lost frame, the connection is therefore cut
(`then = "cut"`), or stays open without carrying any more bytes (`then = "silence"`).
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
    """A fault on single frames: a verb, and selectors. A request must match all selectors."""

    id: str
    verb: Verb
    api: str
    nth: int = 1
    """Number of the first match to hit, counted from 1 since the rule was armed."""
    times: int | None = 1
    """Number of matches in a row that are hit; None: every match from the nth on."""
    brokers: tuple[int, ...] = ()
    client_id: str | None = None
    transactional_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    side: Side = "request"
    """hold, delay: the frame that is kept back. cut_after, duplicate: the frame that triggers the action."""
    then: Literal["cut", "silence"] = "cut"
    drop_client: bool = False
    """hold: cut the client's connection at once; the held frame can still go to the broker."""
    seconds: float | None = None
    """delay, duplicate: time until the frame is sent. hold: time until it is discarded."""
    until: str | None = None
    """hold, duplicate: release after the answer to a later request of this api by the same client."""

    def check(self) -> None:
        """Raise UsageError if no frame can match, or if fields contradict each other."""
        api_keys.key_of(self.api)
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
        """Whether matching needs the decoded request."""
        return self.transactional_id is not None or self.topic is not None


class Hit(msgspec.Struct, kw_only=True):
    """One frame that a rule hit, and its outcome."""

    conn: int
    broker: int
    n: int
    client_id: str
    bytes: int
    mono: int
    did: str
    """First: held, delayed, lost, copied or cut. Later: released, discarded, delivered or undeliverable."""
    ended: int | None = None
    answer: str | None = None
    """The broker's answer to a frame that was sent late or twice: NONE or an error name."""


class Armed(msgspec.Struct, kw_only=True):
    """An armed rule with its matches and hits."""

    rule: Rule
    matched: int = 0
    hits: list[Hit] = []

    @property
    def spent(self) -> bool:
        """Whether the rule has made all of its hits."""
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
        """Return whether a rule needs the decoded request."""
        return any(
            a.rule.reads_facts and not a.spent and api_keys.key_of(a.rule.api) == head.key
            for a in self.armed.values()
        )

    def match(self, broker: int, head: Head, facts: Facts | None) -> Armed | None:
        """Return the first rule that hits a request; every rule counts its own matches."""
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


def add_hit(armed: Armed, *, conn: int, broker: int, n: int, client_id: str, size: int, did: str) -> Hit:
    """Record a hit of a rule and return it."""
    hit = Hit(
        conn=conn, broker=broker, n=n, client_id=client_id, bytes=size, mono=time.monotonic_ns(), did=did
    )
    armed.hits.append(hit)
    return hit
