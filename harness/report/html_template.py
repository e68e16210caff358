"""HTML templates of the reports. The templates escape every value that is not Markup."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape


@cache
def _environment() -> Environment:
    folder = Path(__file__).with_name("templates")
    return Environment(loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined)


def render(template: str, /, **values: Any) -> Markup:
    """Fill in a template from the folder `templates`, and return the HTML."""
    return Markup(_environment().get_template(template).render(values))  # noqa: S704 - jinja2 has escaped it


def link_to(folder: Path, file: str, text: str) -> Markup:
    """Return a link to a file in the folder of the report, or only the text if the file does not exist."""
    if not (folder / file).exists():
        return escape(text)
    return Markup('<a href="{}">{}</a>').format(quote(file), text)


def inline_markdown(text: str) -> Markup:
    """Convert the Markdown of a paragraph to HTML: code, and links, of which only the text remains."""
    text = re.sub(r"\[([^]]+)]\([^)]+\)", r"\1", text)
    parts = text.split("`")
    return Markup().join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )
