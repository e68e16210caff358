"""Placeholders in the command, environment and files of the application under test.

    {bootstrap}     addresses of the brokers, through the proxies
    {topic:orders}  name that the topic `orders` has in this run
    {group}         name that the consumer group has in this run
    {instance}      name of the instance, such as app-1
    {python}        the Python program that runs the harness, with the packages of its environment
    {java}          the Java program that the harness uses
    {jars:kafka}    class path of Kafka's pinned jars, clients among them; {jars:tools} adds Kafka's tools;
                    {jars:spark} is that of Spark's Kafka connector
    {jars:my.lock}  class path of the jars that the lock file my.lock in the folder of the application pins
    {pip:my.txt}    folder with the packages that the requirements file my.txt pins by hashes, for PYTHONPATH
    {go:app}        program that Go builds from the module in the folder app of the application
    {run}           identifier of the run: eight letters and digits
    {shared}        folder that all instances of the run share, also with commands of [[output]]
    {http:calls}    address of the HTTP sink of the output `calls`
    {state}         folder of the instance that outlives its processes
    {log}           folder of the instance for logs that the application writes itself
    {port:admin}    a free port of the loopback address, the same after each restart of the instance
    {file:app.yml}  path of a rendered file

A doubled brace is a literal one: `{{group}}` becomes `{group}`. `${group}` is not a placeholder. A command or
a variable must not contain an unknown placeholder. A file may, because braces have other meanings there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from harness.base.errors import UsageError
from harness.base.strict_toml import nearest
from harness.provision.jars import JarSet

PLAIN: Final = ("bootstrap", "group", "instance", "python", "java", "run", "shared", "state", "log")
WITH_ARGUMENT: Final = ("topic", "port", "file", "jars", "pip", "go", "http")
IN_OUTPUTS: Final = ("run", "shared", "group", "python", "java")
"""Placeholders that [[output]] may contain."""
JAR_SETS: Final[dict[str, tuple[JarSet, ...]]] = {
    "kafka": ("kafka",),
    "tools": ("kafka", "tools"),
    "spark": ("spark",),
}
"""Jar sets of each argument of `{jars:...}`, unless it is a lock file of the application."""
LOCK_SUFFIX: Final = ".lock"
_PATTERN: Final = re.compile(r"\{(\{[a-z]+(?::[^{}]*)?\})\}|(?<!\$)\{([a-z]+)(?::([^{}]*))?\}")


class Placeholder(NamedTuple):
    """One placeholder: its name, and its argument, such as `orders` in `{topic:orders}`."""

    name: str
    argument: str

    @property
    def is_known(self) -> bool:
        """Whether a placeholder of this form exists."""
        return self.name in (WITH_ARGUMENT if self.argument else PLAIN)

    def __str__(self) -> str:
        return f"{{{self.name}:{self.argument}}}" if self.argument else f"{{{self.name}}}"


def placeholders(text: str) -> Iterator[Placeholder]:
    """Yield the placeholders of a text, known and unknown ones."""
    for match in _PATTERN.finditer(text):
        if match[2]:
            yield Placeholder(match[2], match[3] or "")


def check_text(text: str) -> None:
    """Raise UsageError if a text contains an unknown placeholder."""
    for found in placeholders(text):
        if not found.is_known:
            known = [*PLAIN, *(f"{name}:..." for name in WITH_ARGUMENT)]
            raise UsageError(
                f"{found} is not a placeholder",
                f"{nearest(found.name, known, 'placeholders are')}; write {{{found}}} for literal braces",
            )


def uses(texts: Iterable[str], name: str, argument: str = "") -> bool:
    """Return whether one of the texts contains this placeholder."""
    return any((name, argument) == found for text in texts for found in placeholders(text))


def arguments(texts: Iterable[str], name: str) -> list[str]:
    """Return the different arguments with which the texts contain a placeholder."""
    return sorted({found.argument for text in texts for found in placeholders(text) if found.name == name})


def app_locks(texts: Iterable[str], folder: Path) -> list[Path]:
    """Return the lock files in the folder of the application that the texts name as `{jars:FILE.lock}`."""
    return [folder / name for name in arguments(texts, "jars") if name.endswith(LOCK_SUFFIX)]


def uses_any(texts: Iterable[str], name: str) -> bool:
    """Return whether one of the texts contains a placeholder with this name, whatever its argument is."""
    return any(found.name == name for text in texts for found in placeholders(text))


def fill(text: str, resolve: Callable[[Placeholder], str]) -> str:
    """Replace every known placeholder of a text by the value that `resolve` returns."""

    def replaced(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        found = Placeholder(match[2], match[3] or "")
        return resolve(found) if found.is_known else match[0]

    return _PATTERN.sub(replaced, text)
