"""Write docs/reference/cli.md and docs/reference/formats.md from the commands and the types of the code."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import click
import msgspec

from harness.base import events
from harness.cli.main import SECTIONS
from harness.evidence.checkers.model import Anomaly, Example, HistoryRef, OffsetRef, Result
from harness.evidence.checkers.verdict import Judgement, Limit
from harness.evidence.run_directory import LimitSummary, PropertySummary, Summary
from harness.report.text_format import format_table

FOLDER: Final = Path(__file__).parents[1] / "docs" / "reference"

_KEPT: Final = {"said": " <!-- prose: keep -->"}
"""Marks for names of fields that the check of the prose would report."""

_CLI_HEAD: Final = """# Command line

For everyone who types `eos`: every command with its options. The option `--help` of a command prints the
same. This page is written by `python -m tools.command_reference`.

Data goes to stdout, and everything else to stderr. The exit codes are in the
[README](../../README.md#exit-codes). An error has two parts: `error:` with the problem, and `hint:` with
what to do. `eos completion bash` prints what a shell needs to complete commands, scenarios and runs.
[Environment variables](environment.md) have a page of their own."""

_FORMATS_HEAD: Final = """# Formats of summary, verdict and events

For everyone who reads the files of a run with a program. This page is written by
`python -m tools.command_reference`.

[How to read a run](run-directory.md) lists all files. A new release may add fields. If a field changes its
meaning, the number in `format` changes. The schema of `summary.json` is
`harness/evidence/schemas/summary.schema.json`."""


def cli_reference() -> str:
    """Return the page about the command line."""
    return "\n".join([_CLI_HEAD, *_command_lines()]) + "\n"


def _command_lines() -> Iterator[str]:
    for heading, commands in SECTIONS:
        yield f"\n## {heading}"
        for command in commands:
            yield from _one_command(command)


def _one_command(command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=f"eos {command.name}")
    yield f"\n### `eos {command.name}`\n"
    yield f"{_paragraphs(command.help or '')}\n"
    yield f"`{' '.join(command.get_usage(context).split())}`"
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if isinstance(parameter, click.Option) and record and record[0] not in ("--help", "-h, --help"):
            rows.append((f"`{record[0]}`", record[1].replace("|", "\\|")))
    if rows:
        yield ""
        yield from format_table(rows, ("option", "meaning"), markdown=True)


def formats_reference() -> str:
    """Return the page about the formats of the outputs of a run."""
    lines = [_FORMATS_HEAD]
    lines += ["\n## `summary.json`\n", "The result of a run in short: one JSON object."]
    lines += _types(Summary, PropertySummary, LimitSummary)
    lines += ["\n## `verdict.json`\n", "The complete verdict: one JSON object. Only evidence goes into it,"]
    lines += ["so `eos check` writes the same bytes again."]
    lines += _types(Judgement, Result, Anomaly, Example, HistoryRef, OffsetRef, Limit)
    lines += [
        "\n## `events.jsonl`\n",
        "One JSON object a line, in the order of time. The field `event` names the kind,",
    ]
    lines += ["and `at` is the time in seconds since the run started."]
    for kind in events.Event.__subclasses__():
        lines += [f"\n### `{kind.__struct_config__.tag}`\n", _paragraphs(inspect.getdoc(kind) or "")]
        lines += _fields(kind, leave_out=("at",))
    return "\n".join(lines) + "\n"


def _types(first: type[msgspec.Struct], *others: type[msgspec.Struct]) -> Iterator[str]:
    yield from _fields(first)
    for kind in others:
        yield f"\n### {kind.__name__}\n"
        yield _paragraphs(inspect.getdoc(kind) or "")
        yield from _fields(kind)


def _fields(kind: type[msgspec.Struct], leave_out: tuple[str, ...] = ()) -> Iterator[str]:
    hints = get_type_hints(kind)
    rows = [
        (
            f"`{field.encode_name}`",
            _type_text(hints[field.name]) + _KEPT.get(field.encode_name, ""),
            "" if field.required else "yes",
        )
        for field in msgspec.structs.fields(kind)
        if field.name not in leave_out
    ]
    if rows:
        yield ""
        yield from format_table(rows, ("field", "type", "may be left out"), markdown=True)


def _type_text(kind: Any) -> str:
    """Return the name of a type for readers who do not know Python."""
    names = {str: "text", int: "whole number", float: "number", bool: "true or false", Any: "any value"}
    parts = [part for part in get_args(kind) if part is not type(None)]
    inner = [f"`{part}`" if get_origin(kind) is Literal else _type_text(part) for part in parts]
    match get_origin(kind):
        case None:
            return names.get(kind) or str(kind.__name__)
        case origin if origin is dict:
            return f"object: {inner[0]} to {inner[1]}"
        case origin if origin in (list, tuple):
            return f"list of {', '.join(inner)}"
        case _:
            return " or ".join([*inner, *(["null"] if type(None) in get_args(kind) else [])])


def _paragraphs(text: str) -> str:
    """Return a help text with one line a paragraph."""
    parts = (" ".join(part.split()) for part in inspect.cleandoc(text).replace("\b", "").split("\n\n"))
    return "\n\n".join(part for part in parts if part)


PAGES: Final = {"cli.md": cli_reference, "formats.md": formats_reference}


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a page is not current.")
def main(*, check: bool) -> None:
    """Write the reference of the command line and of the output formats."""
    for name, text in PAGES.items():
        file = FOLDER / name
        if check and file.read_text() != text():
            sys.exit(1)
        if not check:
            file.write_text(text())
            click.echo(file)


if __name__ == "__main__":
    main()
