"""Secrets: named in files, read from the environment or a file of their own, and shown nowhere.

A secret is passed on as where it stands (`env:NAME` or `file:/path`) and looked up by the process that uses
it. From the first look on, or from when it is told to beware, what that process writes, to its output or into
the files of a run, is redacted: the secret itself wherever it appears, and whatever looks like one.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from threading import Event
from typing import Any, Final, TextIO
from urllib.parse import quote

from harness.base.errors import UsageError

REDACTED: Final = "[redacted]"
ALLOWED: Final = '"env:NAME" or "file:/path"'
SHORTEST: Final = 4
"""A shorter one could not be told apart from other text, and redacting it would redact everything."""

# What a key begins with stays where it is: to look for it would take quadratic time in a long word.
_KEY = r"(?i:password|passwd|secret|token)"
_PATTERNS: Final = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL),
    # The value of a key that is named like one; where a secret stands may be told, and what is wrong with it.
    re.compile(
        rf'(?P<kept>{_KEY}\\?["\']?\s*[:=]\s*\\?["\']?)'
        r'(?!env:|file:|\[redacted|a secret )[^\s"\'\\,;)}\]]+'
    ),
)
_known: set[str] = set()
_wary: Final = Event()


def is_reference(text: str) -> bool:
    """Whether this says where a secret stands."""
    kind, _, where = text.partition(":")
    return kind in ("env", "file") and bool(where)


def look_up(reference: str) -> str:
    """The secret that stands there; from now on this process redacts it."""
    kind, _, where = reference.partition(":")
    if not is_reference(reference):
        raise UsageError("a secret is not named by where it stands", f"write {ALLOWED}")
    if kind == "env":
        found, place = os.environ.get(where), f"the environment has no {where}"
    else:
        found, place = _content(Path(where)), f"there is no file {where}"
    if found is None:
        raise UsageError(f"a secret is missing: {place}", f"set it, or name another place: {ALLOWED}")
    if len(found) < SHORTEST:
        raise UsageError(
            f"the secret at {reference} has fewer than {SHORTEST} characters", "use a longer one"
        )
    remember(found)
    return found


def placed(reference: str, folder: Path) -> str:
    """The same where a process works in another folder: a file is one beside whoever names it."""
    kind, _, where = reference.partition(":")
    return f"file:{folder / where}" if kind == "file" and where else reference


def _content(path: Path) -> str | None:
    try:
        return path.read_text().rstrip("\r\n") if path.is_file() else None
    except (OSError, UnicodeDecodeError) as error:
        # Not what it says of the content: that is a part of the secret.
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise UsageError(
            f"the secret in {path} could not be read: {why}",
            "let this user read it; it holds the secret alone",
        ) from None


def remember(secret: str) -> None:
    """From now on this process redacts this secret, which it has got from elsewhere."""
    found = secret.strip("\r\n")
    if len(found) >= SHORTEST:
        _known.update({found, json.dumps(found)[1:-1], quote(found, safe="")})
    beware()


def beware() -> None:
    """From now on this process redacts what looks like a secret, whether it knows one or not."""
    _wary.set()
    sys.stdout, sys.stderr = redacting(sys.stdout), redacting(sys.stderr)


def redact(text: str) -> str:
    """The text without any secret that this process knows, and without what looks like one."""
    if not _wary.is_set():
        return text
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    for pattern in _PATTERNS:
        text = pattern.sub(lambda match: match.groupdict().get("kept", "") + REDACTED, text)
    return text


def redact_bytes(data: bytes) -> bytes:
    """The same of what is written to a file; bytes that are no text are left alone."""
    if not _wary.is_set():
        return data
    try:
        return redact(data.decode()).encode()
    except UnicodeDecodeError:
        return data


class Redacting:
    """A text stream in front of another, through which no secret passes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the text without its secrets."""
        self._stream.write(redact(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines without their secrets."""
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> Any:
        """None: nothing goes past this one."""
        raise AttributeError("buffer")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def redacting(stream: TextIO) -> TextIO:
    """The stream itself if it redacts already."""
    return stream if isinstance(stream, Redacting) else Redacting(stream)  # type: ignore[return-value]
