"""The steps of a walkthrough. Each step compares textbook statements about Kafka with observations.

The steps and their evidence are stored while the walkthrough runs. The checker reads them from the run's
directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

FILE: Final = "walkthrough.json"

Comparison = Literal["same", "different", "missing"]
_COMPARED: Final[dict[Comparison, str]] = {
    "same": "as claimed",
    "different": "other than claimed",
    "missing": "not shown, but claimed",
}


class Claim(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A textbook statement about Kafka, and the observation with which it is compared.

    `comparison` is "missing" if the observation should have proved the statement but did not.
    """

    textbook: str
    observed: str
    comparison: Comparison


class WalkthroughStep(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One step of a walkthrough, with the claims and the evidence that were recorded for it."""

    number: int
    title: str
    claims: list[Claim] = []
    evidence: dict[str, Any] = {}

    def prove(self, textbook: str, observed: str, holds: object) -> None:
        """Add a textbook statement that the observation must prove. If it does not, the step lacks evidence.

        `holds` is whether the observation agrees with the statement.
        """
        self._add(textbook, observed, "same" if holds else "missing")

    def compare(self, textbook: str, observed: str, holds: object) -> None:
        """Add a textbook statement with which an observation may disagree even on a correct cluster."""
        self._add(textbook, observed, "same" if holds else "different")

    def show(self, **evidence: object) -> None:
        """Add evidence to this step. Each argument is stored under its name, as plain data for JSON."""
        self.evidence |= msgspec.to_builtins(evidence)

    @property
    def missing(self) -> list[str]:
        """Statements that had to be proved but were not, with the observations."""
        return [f"{c.textbook}: {c.observed}" for c in self.claims if c.comparison == "missing"]

    @property
    def text(self) -> str:
        """Human-readable text of the step and its claims."""
        return "\n".join(
            [self.title, *(f"{c.observed}  [{_COMPARED[c.comparison]}: {c.textbook}]" for c in self.claims)]
        )

    @classmethod
    def numbered(cls, titles: Sequence[str]) -> list[WalkthroughStep]:
        """Return steps without claims, with these titles, numbered from 1."""
        return [cls(number=n, title=title) for n, title in enumerate(titles, 1)]

    def _add(self, textbook: str, observed: str, comparison: Comparison) -> None:
        self.claims.append(Claim(textbook=textbook, observed=observed, comparison=comparison))
