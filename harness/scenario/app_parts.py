"""Tables [[input]] and [[output]] of a scenario file: what an application reads, and what it must write."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from harness.base.units import Duration
from harness.evidence.checkers.model import OutputContract

MOST_EACH = 1000


class EachRule(str):
    """Number of outputs of each input: "1", "0..1" (at most one), "2..3", or "1.." (at least one)."""

    __slots__ = ("least", "most")
    least: int
    most: int | None
    allowed = '1, "0..1" or "1.."'

    @classmethod
    def parse(cls, written: object) -> EachRule:
        """Parse a number or a range; raise ValueError with the allowed formats."""
        text = str(written) if isinstance(written, int | str) and not isinstance(written, bool) else ""
        match = re.fullmatch(r"\s*(\d{1,4})(?:(\.\.)(\d{1,4})?)?\s*", text)
        if match is None:
            raise ValueError(f"{written!r} is not {cls.allowed}")
        rule = super().__new__(cls, text.strip())
        rule.least = int(match[1])
        rule.most = int(match[3]) if match[3] else None if match[2] else rule.least
        if rule.least > MOST_EACH or not (rule.most is None or max(1, rule.least) <= rule.most <= MOST_EACH):
            raise ValueError(
                f"{written!r} is not a number or range from 1 to {MOST_EACH}, such as {cls.allowed}"
            )
        return rule


class InputPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Table [[input]]: a topic that the application reads, and the inputs that the harness writes to it.

    `value` and `key` are templates. With `keys`, each key is a lane. `aborted` is the share of transactions
    that are aborted; their inputs are decoys.
    """

    topic: str
    value: str
    key: str = ""
    keys: int = 0
    partitions: int = 3
    rate: int = 500
    aborted: float = 0.1
    transaction: tuple[int, int] = (5, 50)
    transaction_timeout: Duration = Duration(20)


class OutputPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Table [[output]]: a topic that the application writes, and what it must contain for each input."""

    topic: str
    each: EachRule = EachRule.parse("1")
    order: Literal["key", "partition", "none"] = "none"
    partitions: int = 3

    @property
    def contract(self) -> OutputContract:
        """The contract as the checkers need it."""
        return OutputContract(topic=self.topic, least=self.each.least, most=self.each.most, order=self.order)
