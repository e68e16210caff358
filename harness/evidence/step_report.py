"""The steps of a walkthrough: textbook claims, observations and evidence.

The steps are stored while the walkthrough runs, and checked from the run's directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

FILE: Final = "walkthrough.json"

Comparison = Literal["same", "different", "missing"]


class Claim(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A textbook statement about Kafka and the matching observation.

    `comparison` is "missing" if the step needs the observation as evidence and does not have it.
    """

    textbook: str
    observed: str
    comparison: Comparison


class WalkthroughStep(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One step of a walkthrough that was carried out."""

    number: int
    title: str
    claims: list[Claim] = []
    evidence: dict[str, Any] = {}

    def prove(self, textbook: str, observed: str, holds: object) -> None:
        """Add a statement that must hold. If it does not, the step lacks evidence."""
        self._add(textbook, observed, "same" if holds else "missing")

    def compare(self, textbook: str, observed: str, holds: object) -> None:
        """Add a statement of the textbook that even a correct cluster may contradict."""
        self._add(textbook, observed, "same" if holds else "different")

    def show(self, **evidence: object) -> None:
        """Add evidence as plain data."""
        self.evidence |= msgspec.to_builtins(evidence)

    @property
    def missing(self) -> list[str]:
        """Statements that had to hold but did not."""
        return [f"{c.textbook}: {c.observed}" for c in self.claims if c.comparison == "missing"]

    @property
    def text(self) -> str:
        """Human-readable text of the step."""
        return "\n".join(
            [self.title, *(f"{c.observed}  [{c.comparison}: {c.textbook}]" for c in self.claims)]
        )

    @classmethod
    def numbered(cls, titles: Sequence[str]) -> list[WalkthroughStep]:
        """Return empty steps with these titles, numbered from 1."""
        return [cls(number=n, title=title) for n, title in enumerate(titles, 1)]

    def _add(self, textbook: str, observed: str, comparison: Comparison) -> None:
        self.claims.append(Claim(textbook=textbook, observed=observed, comparison=comparison))
