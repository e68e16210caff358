"""Explanations of anomalies: the paragraphs of docs/anomalies.md, which is part of the package data."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from markupsafe import Markup

from harness.provision.paths import resource
from harness.report.html_template import inline_markdown

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
            paragraphs[match[1]] = inline_markdown(" ".join(paragraph[match.end() :].split()))
    return paragraphs
