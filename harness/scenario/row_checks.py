"""Checks of outputs that are no topic: lines of a command, calls of the HTTP sink, rows of a database."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.app.app_spec import AppSpec
from harness.app.launch_template import IN_OUTPUTS, placeholders, uses
from harness.base.secrets import ALLOWED, is_reference
from harness.base.strict_toml import nearest
from harness.evidence.checkers.model import UNORDERED
from harness.provision.jdbc_rows import COORDINATES
from harness.scenario.app_parts import OutputPart

Mistake = tuple[str, str, str]
"""Key, problem and hint."""


def row_mistakes(app: AppSpec, part: OutputPart, place: str, *, has_topic: bool) -> Iterator[Mistake]:
    """Yield the mistakes about the source of an output, and about rows.

    `has_topic` is whether an output of the scenario is a topic.
    """
    if len(part.sources) != 1:
        problem = f"has {' and '.join(part.sources)}" if part.sources else "has no source"
        yield place, problem, "give one of topic, command, http and jdbc"
        return
    for key in ("query", "driver", "user", "password"):
        if getattr(part, key) and not part.jdbc:
            yield f"{place}.{key}", "needs jdbc", f"add jdbc, or remove {key}"
    yield from _reference_mistakes(app, part, f"{place}.reference")
    if part.is_topic:
        return
    if not part.table:
        yield f"{place}.table", "is missing", 'give the rows a name, such as table = "invoices"'
    if part.columns:
        yield f"{place}.columns", "is only for topics", "rows are JSON objects: remove columns"
    if part.http and not uses(app.all_texts, "http", part.table):
        hint = f"write {{http:{part.table}}}, the address of the sink, in command, env or files"
        yield "app", f"nothing contains {{http:{part.table}}}", hint
    if part.sources[0] in UNORDERED:
        yield from _order_mistakes(part, place)
        if not app.group and not has_topic:
            hint = "add group to [app], or an output that is a topic: it shows when all inputs are processed"
            yield place, "rows do not show when the application has finished", hint
    if part.jdbc:
        yield from _jdbc_mistakes(part, place)
    yield from _text_mistakes(part, place)


def _reference_mistakes(app: AppSpec, part: OutputPart, key: str) -> Iterator[Mistake]:
    if part.reference and not part.is_topic:
        yield key, "is only for topics", "remove reference"
    if part.reference and part.columns:
        yield key, "needs JSON values", "remove columns or reference"
    if part.reference and app.running:
        yield key, "needs runs of its own", "remove reference, or let the harness start the application"


def _order_mistakes(part: OutputPart, place: str) -> Iterator[Mistake]:
    problem = "cannot be checked: the rows of a command or a database have no order"
    ordered = {"order": part.order != "none", "seen": part.seen == "every", "last_by": bool(part.last_by)}
    for key, given in ordered.items():
        if given:
            yield f"{place}.{key}", problem, f"remove {key}"


def _text_mistakes(part: OutputPart, place: str) -> Iterator[Mistake]:
    for key, texts in (("command", part.command), ("jdbc", [part.jdbc])):
        for found in (found for text in texts for found in placeholders(text)):
            if found.name not in IN_OUTPUTS or found.argument:
                names = nearest(found.name, list(IN_OUTPUTS), "placeholders of an output are")
                yield f"{place}.{key}", f"{found} is not a placeholder here", names


def _jdbc_mistakes(part: OutputPart, place: str) -> Iterator[Mistake]:
    if not part.jdbc.startswith("jdbc:"):
        hint = 'write "jdbc:postgresql://127.0.0.1:5432/orders"'
        yield f"{place}.jdbc", f"{part.jdbc!r} is not the address of a database", hint
    if re.search(r"password\s*=", part.jdbc, re.IGNORECASE):
        hint = 'remove it there, and write password = "env:NAME"'
        yield f"{place}.jdbc", "contains a password", hint
    if part.password and not is_reference(part.password):
        yield f"{place}.password", "is not a reference", f"write {ALLOWED}"
    if not part.query:
        yield f"{place}.query", "is missing", 'write "select * from invoices"'
    if not part.driver or not all(re.fullmatch(COORDINATES, each) for each in part.driver.split()):
        hint = 'write Maven coordinates, such as "org.postgresql:postgresql:42.7.4", separated by spaces'
        yield f"{place}.driver", f"{part.driver!r} names no jar", hint
