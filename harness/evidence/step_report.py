"""What a flow tells of each of its steps: what the textbook says, what was observed, and the evidence.

It is written while the flow runs and judged from the run's directory, like every other account.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

FILE: Final = "flow.json"

Comparison = Literal["same", "different", "missing"]


class Claim(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A sentence of the textbook beside what was seen; `missing` is what the step cannot do without."""

    textbook: str
    observed: str
    comparison: Comparison


class WalkthroughStep(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One step of a flow, as it went."""

    number: int
    title: str
    claims: list[Claim] = []
    evidence: dict[str, Any] = {}

    def prove(self, textbook: str, observed: str, holds: object) -> None:
        """Add a sentence that the step must have seen to be true; nothing seen is evidence missing."""
        self._add(textbook, observed, "same" if holds else "missing")

    def compare(self, textbook: str, observed: str, holds: object) -> None:
        """Add a sentence of the textbook that the real thing may contradict without being broken."""
        self._add(textbook, observed, "same" if holds else "different")

    def show(self, **evidence: object) -> None:
        """Add evidence in full, as plain data."""
        self.evidence |= msgspec.to_builtins(evidence)

    @property
    def missing(self) -> list[str]:
        """What had to be seen and was not."""
        return [f"{c.textbook}: {c.observed}" for c in self.claims if c.comparison == "missing"]

    @property
    def text(self) -> str:
        """The step in lines for a person."""
        return "\n".join(
            [self.title, *(f"{c.observed}  [{c.comparison}: {c.textbook}]" for c in self.claims)]
        )

    @classmethod
    def numbered(cls, titles: Sequence[str]) -> list[WalkthroughStep]:
        """The steps of a flow, from 1 on, with nothing seen yet."""
        return [cls(number=n, title=title) for n, title in enumerate(titles, 1)]

    def _add(self, textbook: str, observed: str, comparison: Comparison) -> None:
        self.claims.append(Claim(textbook=textbook, observed=observed, comparison=comparison))
