"""Secrets, which are passed by reference, resolved from the environment or a file, and never shown.

Files and processes pass a secret as a reference (`env:NAME` or `file:/path`). The process that uses the
secret resolves the reference. After a process has resolved a secret or called `beware()`, it redacts its
output and the files that it writes for a run. It redacts the secrets that it has resolved, and any text that
looks like a secret.
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
"""The minimum length of a secret. Redacting a shorter secret would also redact parts of ordinary words."""

# This pattern matches only the end of a longer key, such as `password` in `db_password`. A pattern that also
# matches the beginning would take quadratic time on a long word.
_KEY = r"(?i:password|passwd|secret|token)"
_PATTERNS: Final = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL),
    # This pattern matches the value that follows a key such as `password`. It skips references to secrets,
    # values that are already redacted, and this module's error messages, which begin with "a secret".
    re.compile(
        rf'(?P<kept>{_KEY}\\?["\']?\s*[:=]\s*\\?["\']?)'
        r'(?!env:|file:|\[redacted|a secret )[^\s"\'\\,;)}\]]+'
    ),
)
_known: set[str] = set()
_wary: Final = Event()


def is_reference(text: str) -> bool:
    """Return whether the text is a reference to a secret."""
    kind, _, where = text.partition(":")
    return kind in ("env", "file") and bool(where)


def look_up(reference: str) -> str:
    """Return the secret that a reference names. From then on, this process redacts the secret."""
    kind, _, where = reference.partition(":")
    if not is_reference(reference):
        raise UsageError("a secret is not given as a reference", f"write {ALLOWED}")
    if kind == "env":
        secret, problem = os.environ.get(where), f"the environment variable {where} is not set"
    else:
        secret, problem = _content(Path(where)), f"there is no file {where}"
    if secret is None:
        raise UsageError(f"a secret is missing: {problem}", f"set it, or use another reference: {ALLOWED}")
    if len(secret) < SHORTEST:
        raise UsageError(
            f"the secret at {reference} has fewer than {SHORTEST} characters", "use a longer secret"
        )
    remember(secret)
    return secret


def placed(reference: str, folder: Path) -> str:
    """Resolve the path of a `file:` reference against `folder`; return other references unchanged.

    `folder` is the folder of the file that contains the reference.
    """
    kind, _, where = reference.partition(":")
    return f"file:{folder / where}" if kind == "file" and where else reference


def _content(path: Path) -> str | None:
    try:
        return path.read_text().rstrip("\r\n") if path.is_file() else None
    except (OSError, UnicodeDecodeError) as error:
        # Do not show the message of a decoding error: it quotes the content, which is the secret.
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(
            f"the secret in {path} could not be read: {why}",
            "make it readable for this user; it must contain only the secret",
        ) from None


def remember(secret: str) -> None:
    """Make this process redact a secret that it did not resolve from a reference."""
    text = secret.strip("\r\n")
    if len(text) >= SHORTEST:
        _known.update({text, json.dumps(text)[1:-1], quote(text, safe="")})
    beware()


def beware() -> None:
    """Make this process redact its output and files from now on, even if it has resolved no secret yet."""
    _wary.set()
    sys.stdout, sys.stderr = redacting(sys.stdout), redacting(sys.stderr)


def redact(text: str) -> str:
    """Return the text without known secrets and without text that looks like a secret."""
    if not _wary.is_set():
        return text
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    for pattern in _PATTERNS:
        text = pattern.sub(lambda match: match.groupdict().get("kept", "") + REDACTED, text)
    return text


def redact_bytes(data: bytes) -> bytes:
    """Return the content of a file without secrets. Content that is not valid UTF-8 is returned unchanged."""
    if not _wary.is_set():
        return data
    try:
        return redact(data.decode()).encode()
    except UnicodeDecodeError:
        return data


class Redacting:
    """A text stream that redacts secrets in a text and writes the text to another stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(redact(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    @property
    def buffer(self) -> Any:
        """The binary stream. It is not available, because bytes written to it would not be redacted."""
        raise AttributeError("buffer")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def redacting(stream: TextIO) -> TextIO:
    """Return a redacting stream for `stream`, or `stream` itself if it already redacts."""
    return stream if isinstance(stream, Redacting) else Redacting(stream)  # type: ignore[return-value]
