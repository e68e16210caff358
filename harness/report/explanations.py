"""Explanations of anomalies: the paragraphs of docs/anomalies.md, which is part of the package data."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from markupsafe import Markup

from harness.provision.paths import resource
from harness.report.html_template import inline_markdown

DOCUMENT: Final = "anomalies.md"


def explanation_of(anomaly: str, *, of_app: bool = False) -> Markup:
    """Return the text of docs/anomalies.md about an anomaly as HTML; empty if there is none.

    `of_app` is for an anomaly of an application under test, which may have a text of its own.
    """
    general, of_apps = _paragraphs()
    return (of_app and of_apps.get(anomaly)) or general.get(anomaly, Markup())


@cache
def _paragraphs() -> tuple[dict[str, Markup], dict[str, Markup]]:
    """Return the paragraphs that begin with the bold name of an anomaly, and the items of lists that do."""
    text = resource(DOCUMENT).read_text(encoding="utf-8")
    return _named(text.split("\n\n"), ""), _named(re.split(r"\n(?=- )|\n\n", text), "- ")


def _named(parts: list[str], before: str) -> dict[str, Markup]:
    paragraphs = {}
    for part in parts:
        if match := re.match(rf"{before}\*\*(\w+)\*\*: ", part):
            paragraphs[match[1]] = inline_markdown(" ".join(part[match.end() :].split()))
    return paragraphs
