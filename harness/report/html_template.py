"""HTML templates of the reports. The templates escape every value that is not Markup."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup


@cache
def _environment() -> Environment:
    folder = Path(__file__).with_name("templates")
    return Environment(loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined)


def render(template: str, /, **values: Any) -> Markup:
    """Fill in a template from the folder `templates`, and return the HTML."""
    return Markup(_environment().get_template(template).render(values))  # noqa: S704 - jinja2 has escaped it
