"""The group of all commands: its help has sections, and each wrong command line gets a message and a hint."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

import click

from harness.base.texts import shorten

ALIASES: Final = {"help": "--help", "-V": "--version"}
"""Words that users of other tools type first, and the option that does the same."""
_LONGEST_MESSAGE: Final = 300
"""Maximum length of a message of the library, which may repeat a value too."""


class CommandGroup(click.Group):
    """Group of commands that its help lists under headings."""

    sections: Sequence[tuple[str, Sequence[click.Command]]] = ()

    def add_sections(self, sections: Sequence[tuple[str, Sequence[click.Command]]]) -> None:
        """Add commands; each section has a heading."""
        self.sections = sections
        for _, commands in sections:
            for command in commands:
                self.add_command(command)

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, a section for each heading."""
        width = max(map(len, self.commands), default=0)
        for heading, commands in self.sections:
            with formatter.section(heading):
                limit = formatter.width - formatter.current_indent - width - 2
                formatter.write_dl(
                    [(f"{command.name:{width}}", command.get_short_help_str(limit)) for command in commands]
                )

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """Parse the command line. `eos help run` is `eos run --help`."""
        if args[:1] == ["help"]:
            args = [*args[1:2], "--help"]
        return super().parse_args(context, [ALIASES.get(args[0], args[0]), *args[1:]] if args else args)


def usage_problem(error: click.ClickException) -> tuple[str, str]:
    """Return the message and the hint for a wrong command line."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = context.command_path if context else "eos"
    hint = f"`{path} --help` shows the options"
    match error:
        case click.exceptions.NoSuchCommand():
            hint = "`eos --help` lists the commands"
            return f"there is no command {shorten(error.command_name)!r}", _suggest(error.possibilities, hint)
        case click.NoSuchOption():
            options = [name for option in context.command.params for name in option.opts] if context else []
            near = difflib.get_close_matches(error.option_name, options, 1)
            return f"{path} has no option {shorten(error.option_name)}", _suggest(near, hint)
        case click.MissingParameter(param=click.Parameter() as parameter):
            return f"{_name_of(parameter)} is missing", hint
        case click.BadParameter(param=click.Parameter() as parameter):
            return f"{_name_of(parameter)}: {_ours(error.message)}", hint
        case click.FileError():
            return f"{error.ui_filename}: {_ours(error.message)}", "name a file that can be opened"
        case _:
            return _ours(error.format_message()), hint


def _suggest(near: Sequence[str] | None, hint: str) -> str:
    return f"did you mean {near[0]}? {hint}" if near else hint


def _name_of(parameter: click.Parameter) -> str:
    return parameter.opts[0] if isinstance(parameter, click.Option) else (parameter.name or "").upper()


def _ours(message: str) -> str:
    """Return a message of the library as our messages are written: a small first letter and no full stop."""
    text = shorten(" ".join(message.split()), _LONGEST_MESSAGE).rstrip(".")
    return text[:1].lower() + text[1:]
