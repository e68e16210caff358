"""Explanations of anomalies: the paragraphs of docs/anomalies.md, which is part of the package data."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from markupsafe import Markup, escape

from harness.provision.paths import resource

DOCUMENT: Final = "anomalies.md"


def explanation_of(anomaly: str) -> Markup:
    """Return the paragraph of docs/anomalies.md about an anomaly as HTML; empty if there is none."""
    return _paragraphs().get(anomaly, Markup())


@cache
def _paragraphs() -> dict[str, Markup]:
    """Return every paragraph of the document that begins with the name of an anomaly in bold."""
    paragraphs = {}
    for paragraph in resource(DOCUMENT).read_text(encoding="utf-8").split("\n\n"):
        if match := re.match(r"\*\*(\w+)\*\*: ", paragraph):
            paragraphs[match[1]] = _html(" ".join(paragraph[match.end() :].split()))
    return paragraphs


def _html(text: str) -> Markup:
    """Convert the Markdown of a paragraph: code, and links, of which only the text remains."""
    text = re.sub(r"\[([^]]+)]\([^)]+\)", r"\1", text)
    parts = text.split("`")
    return Markup().join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )
