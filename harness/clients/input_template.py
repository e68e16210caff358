"""Templates of inputs: the text of a key or value, with fields that differ from input to input.

    {id}            the token, by which the input is found again in outputs
    {n}             the sequence of the input in its lane: 0, 1, 2, ...
    {key}           the number of the key, from 0; only for inputs with `keys`
    {uuid}          a UUID of version 8
    {int 1..500}    an integer from this range
    {choice a b c}  one of these words
    {time +10ms}    milliseconds since 1970, which advance by this step from input to input of a lane

Each field is a pure function of the seed of the run and the numbers in the token, so the same seed gives the
same values. A doubled brace is a literal one: `{{id}}` becomes `{id}`. Braces in front of other characters
need no doubling.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Callable
from typing import Final, NamedTuple

from harness.base.errors import UsageError
from harness.base.strict_toml import nearest
from harness.base.units import Duration
from harness.evidence.token import NUMBERS_WIDTH

FIELDS: Final = ("id", "n", "key", "uuid", "int", "choice", "time")
FIRST_TIME_MS: Final = 1_767_225_600_000
"""Time of the first input of each lane: the beginning of the year 2026 in UTC."""

_PATTERN: Final = re.compile(r"\{(\{[a-z]+(?: [^{}]*)?\})\}|\{([a-z]+)(?: ([^{}\"]*))?\}")


class InputValues(NamedTuple):
    """Everything on which the fields of one input depend."""

    seed: int
    token: str
    seq: int
    key: int


Part = Callable[[InputValues], str]


class InputTemplate:
    """Template of the key or value of inputs. `place` distinguishes the fields of several templates."""

    def __init__(self, text: str, place: str = "value") -> None:
        self.names: list[str] = []
        """Names of the fields that the text contains."""
        self._parts: list[str | Part] = []
        end = 0
        for match in _PATTERN.finditer(text):
            self._parts.append(text[end : match.start()])
            end = match.end()
            if match[1]:
                self._parts.append(match[1])
            else:
                self.names.append(match[2])
                self._parts.append(_part(match[2], match[3] or "", f"{place}{len(self._parts)}"))
        self._parts.append(text[end:])

    def fill(self, values: InputValues) -> str:
        """Return the text of one input."""
        return "".join(part if isinstance(part, str) else part(values) for part in self._parts)


def _part(name: str, argument: str, place: str) -> Part:
    if name not in FIELDS:
        raise UsageError(
            f"{{{name}}} is not a field of an input",
            f"{nearest(name, list(FIELDS), 'fields are')}; write {{{{{name}}}}} for literal braces",
        )
    simple: dict[str, Part] = {
        "id": lambda values: values.token,
        "n": lambda values: str(values.seq),
        "key": lambda values: str(values.key),
        "uuid": lambda values: _uuid(_digest(values, place, 16)),
    }
    if name in simple:
        if argument:
            raise UsageError(f"{{{name} {argument}}}: {name} takes nothing", f"write {{{name}}}")
        return simple[name]
    return {"int": _integer, "choice": _choice, "time": _time}[name](argument, place)


def _integer(argument: str, place: str) -> Part:
    match = re.fullmatch(r"\s*(-?\d+)\.\.(-?\d+)\s*", argument)
    if match is None or int(match[1]) > int(match[2]):
        raise UsageError(f"{{int {argument}}} is not a range", "write {int 1..500}, the lower number first")
    low, size = int(match[1]), int(match[2]) - int(match[1]) + 1
    return lambda values: str(low + _number(values, place) % size)


def _choice(argument: str, place: str) -> Part:
    words = argument.split()
    if not words:
        raise UsageError("{choice} has no words", "write {choice red green blue}")
    return lambda values: words[_number(values, place) % len(words)]


def _time(argument: str, _: str) -> Part:
    try:
        if not argument.startswith("+"):
            raise ValueError  # noqa: TRY301 - the same error as for a wrong unit
        step = round(Duration.parse(argument[1:]) * 1000)
    except ValueError:
        raise UsageError(f"{{time {argument}}} has no step", "write {time +10ms}") from None
    if step < 1:
        raise UsageError(f"{{time {argument}}}: the step is below 1ms", "write {time +1ms} or more")
    return lambda values: str(FIRST_TIME_MS + values.seq * step)


def _digest(values: InputValues, place: str, size: int) -> bytes:
    numbers = values.token[-NUMBERS_WIDTH:]  # without the id of the run, which differs from run to run
    return hashlib.blake2b(f"{values.seed}/{numbers}/{place}".encode(), digest_size=size).digest()


def _number(values: InputValues, place: str) -> int:
    return int.from_bytes(_digest(values, place, 8), "big")


def _uuid(random: bytes) -> str:
    """Return a UUID of version 8 and of the variant of RFC 9562, with the other bits from `random`."""
    bits = int.from_bytes(random, "big")
    bits &= ~(0xF << 76) & ~(0x3 << 62)
    return str(uuid.UUID(int=bits | 0x8 << 76 | 0x2 << 62))
