"""HTML templates of the reports; values are escaped unless they are Markup."""

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
    """Fill a template of the folder `templates`."""
    return Markup(_environment().get_template(template).render(values))  # noqa: S704 - jinja2 has escaped it
