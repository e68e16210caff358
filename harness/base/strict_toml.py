"""Strict reader of TOML files. Its errors name the file, line, key, value and allowed values."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec

from harness.base.errors import UsageError
from harness.base.texts import shorten

T = TypeVar("T", bound=msgspec.Struct)
_TYPES: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text in quotes",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
"""Words for the types of values in a file."""
_HOW_TO_WRITE: Final = {
    "int": "write a whole number, such as 5",
    "float": "write a number, such as 0.5",
    "bool": "write true or false, without quotes",
    "array": "write a list in brackets, such as [1, 2]",
}
"""Hints for a value of another type."""


def text_in(path: Path) -> str:
    """Return the text of a file; raise UsageError with the reason if the file cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8: {error}", "save the file as UTF-8") from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", "name an existing file that you may read"
        ) from error


def parse(path: Path, text: str) -> dict[str, Any]:
    """Parse the text of a TOML file into its tables; raise UsageError with the position of a syntax error."""
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise UsageError(f"{path}: its brackets are nested too deeply", "write a flat list") from error
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"{path}: not TOML: {error}", "put texts and durations in quotes, and lists in brackets"
        ) from error


class StrictFile:
    """Converter of a parsed TOML file into a struct. It raises a UsageError with a hint for every mistake."""

    def __init__(self, path: Path, text: str, example: str, replaced: Iterable[str] = ()) -> None:
        """`replaced` are keys such as workload.0.rate that the option --set replaced."""
        self._path = path
        self._replaced = {re.sub(r"\.(\d+)", r"[\1]", key): key for key in replaced}
        self._lines = text.splitlines()
        self._example = example

    def convert(self, data: dict[str, Any], kind: type[T]) -> T:
        """Convert the parsed file into a struct of type `kind`; the struct has one field for every table."""
        try:
            return msgspec.convert(data, kind, dec_hook=_decode_text)
        except msgspec.ValidationError as error:
            raise self._explained(_with_name(str(error), data), kind) from error

    def fail(self, key: str, problem: str, hint: str) -> UsageError:
        """Return a UsageError for a key such as fault[1].target, with the key's file and line.

        The error of a key that `--set` replaced names this option instead of the file.
        """
        given = [option for name, option in self._replaced.items() if re.match(rf"{re.escape(name)}\b", key)]
        if given:
            return UsageError(f"--set {max(given, key=len)}: {problem}", hint)
        if self._replaced:
            problem = f"{problem} (after --set {', '.join(map(shorten, self._replaced.values()))})"
        where = self._line_of(key)
        return UsageError(f"{self._path}{f':{where}' if where else ''}: {key}: {problem}", hint)

    def _line_of(self, key: str) -> int:
        """Return the number of the line of a key such as fault[1].target, or 0 if there is no such line."""
        match = re.fullmatch(r"(\w+)(?:\[(\d+)\])?(?:\.(\w+).*)?", key)
        if not match:
            return 0
        table, index, name = match[1], int(match[2] or 0), match[3]
        position = -1
        for number, line in enumerate(self._lines, 1):
            if re.match(rf"\s*\[\[?\s*{table}\s*\]", line):
                position += 1
                if position == index and name is None:
                    return number
            elif position == index and name is not None and re.match(rf"\s*{name}\s*=", line):
                return number
            elif position == index and line.lstrip().startswith("["):
                break
        return 0

    def _explained(self, message: str, kind: type[msgspec.Struct]) -> UsageError:
        """Convert an error message of msgspec to a UsageError with the key and its allowed values."""
        problem, _, where = message.partition(" - at `$")
        key = where.rstrip("`").lstrip(".")
        key = re.sub(r"\[\.\.\.\]", "[0]", key)
        if match := re.search(r"unknown field `(.+)`", problem):
            full = f"{key}.{match[1]}" if key else match[1]
            hint = nearest(match[1], keys_of(_struct_at(kind, key) or kind), "allowed are")
            return self.fail(full, "there is no such key", hint)
        if match := re.search(r"missing required field `(.+)`", problem):
            return self.fail(
                key or match[1], f"{match[1]} is missing", _addition(kind, match[1], is_table=not key)
            )
        problem, hint = _explained_value(problem, _type_at(kind, key), key)
        if problem == "must be a list, and not a table" and "." not in key:
            hint = f"write [[{key}]], with two brackets"
        return self.fail(key or "the file", problem, hint or self._example)


def convert_value(value: object, kind: Any, key: str) -> Any:
    """Convert one value of a file to a type; raise UsageError with the allowed values if it differs."""
    try:
        return msgspec.convert(value, kind, dec_hook=_decode_text)
    except msgspec.ValidationError as error:
        problem, hint = _explained_value(str(error).partition(" - at `$")[0], kind, key)
        expected = re.match(r"Expected `(\w+)", str(error))
        default = _HOW_TO_WRITE.get(expected[1], "") if expected else ""
        raise UsageError(problem, hint or default or "see docs/reference/scenario.md") from error


def _explained_value(problem: str, kind: Any, key: str) -> tuple[str, str]:
    """Convert a message of msgspec about a value to a problem and a hint; "" is no hint.

    `kind` is the type that the value must have.
    """
    problem = problem.replace(" | null`", "`")  # a file has no null: the key may only be missing
    choices = choices_of(kind)
    if match := re.fullmatch(r"Invalid enum value (.+)", problem):
        wrong = match[1].strip("'")
        return f"{shorten(wrong)!r} is not allowed", nearest(wrong, choices, "allowed are")
    if choices:
        return _plain(problem), f"allowed are {', '.join(choices)}"
    if problem.startswith("Expected `str`"):
        return _plain(problem), f"write the value in quotes; in a shell: --set '{key}=\"...\"'"
    return _plain(problem), ""


def _addition(kind: type[msgspec.Struct], name: str, *, is_table: bool) -> str:
    """Return a hint to add a missing key, or a missing table with the keys that it needs."""
    table = _struct_at(kind, name) if is_table else None
    if table is None:
        return f"add {name} = ..."
    needed = [field.encode_name for field in msgspec.structs.fields(table) if field.required]
    return f"add the table [{name}]" + (f" with {', '.join(needed)}" if needed else "")


def choices_of(kind: Any) -> list[str]:
    """Return the texts that a type allows, also as entries of a list; an empty list if it allows any text."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(member.value) for member in kind]
    if get_origin(kind) is Literal:
        return [value for value in get_args(kind) if isinstance(value, str) and value]
    return [choice for part in get_args(kind) for choice in choices_of(part)]


def _type_at(kind: type[msgspec.Struct], key: str) -> Any:
    """Return the type of a key such as app.limits or output[0].is, from the file's type; None if unknown."""
    found: Any = kind
    for name in re.sub(r"\[\d+\]", "", key).split("."):
        table = _struct_in(found)
        fields = msgspec.structs.fields(table) if table is not None else ()
        found = next((field.type for field in fields if field.encode_name == name), None)
    return found


def _struct_at(kind: type[msgspec.Struct], key: str) -> type[msgspec.Struct] | None:
    """Return the type of a table of a file; None if the key is no table."""
    return _struct_in(_type_at(kind, key))


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct in a type such as a list of tables, or a table that may be missing."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    return next((found for part in get_args(kind) if (found := _struct_in(part))), None)


def _with_name(message: str, data: dict[str, Any]) -> str:
    """Return a message of msgspec about an entry of a table of texts with the name of the entry."""
    problem, place, where = message.partition(" - at `$.")
    table: Any = data
    for name in where.removesuffix("[...]`").split("."):
        table = table.get(name) if isinstance(table, dict) else None
    if not where.endswith("[...]`") or not isinstance(table, dict):
        return message
    wrong = next((name for name, value in table.items() if not isinstance(value, str)), "")
    return f"{problem}{place}{where.removesuffix('[...]`')}.{wrong}`" if wrong else message


def _plain(problem: str) -> str:
    """Return a message of the library about a wrong type in plain words."""
    match = re.fullmatch(r"Expected `([^`]+)`, got `([^`]+)`(.*)", problem)
    if match is None:
        return problem
    wanted = " or ".join(_TYPES.get(name.strip(), name.strip()) for name in match[1].split("|"))
    given = "a text" if match[2] == "str" else _TYPES.get(match[2], match[2])
    return f"must be {wanted}, and not {given}{match[3]}"


def keys_of(kind: type[msgspec.Struct]) -> list[str]:
    """Return the keys of a table as they are written in a file."""
    return sorted(field.encode_name for field in msgspec.structs.fields(kind))


def nearest(name: str, allowed: list[str], intro: str) -> str:
    """Return a hint that suggests the most similar allowed name and lists all allowed names.

    `intro` is the text before the list, such as "allowed are".
    """
    return f"{meant(name, allowed)} {intro} {', '.join(allowed) or 'none'}".lstrip()


def meant(name: str, known: Iterable[str]) -> str:
    """Return the question "did you mean NAME?" with the most similar known name.

    Return an empty text if no known name is similar.
    """
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else ""


def _decode_text(kind: type, value: object) -> object:
    """Convert the value of a field whose type has a `parse` method, such as Duration or Target."""
    if hasattr(kind, "parse"):
        return kind.parse(value)
    raise NotImplementedError(kind)
