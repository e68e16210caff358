"""Encoders of the user: they turn the text of an input into the bytes of a format, such as Avro or Protobuf.

A function in a Python file gets the text and returns bytes. A command reads one text a line and prints the
bytes of each as one line of base64. The token must be in the bytes as it is in the text, because every
witness looks for it there. Strings of Avro and Protobuf contain it.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.base.errors import UsageError

Encoder = Callable[[str], bytes]


def encoder_of(function: str, command: Sequence[str], folder: str) -> Encoder | None:
    """Return the encoder of an input; None if its values are texts."""
    if function:
        return _of_function(function, folder)
    return _Command(list(command), folder) if command else None


def split_function(text: str) -> tuple[str, str]:
    """Return file and name of a function such as "codec.py:encode"; two empty texts if it is none."""
    file, _, name = text.rpartition(":")
    return (file, name) if file.endswith(".py") and name.isidentifier() else ("", "")


def close_encoder(encoder: Encoder | None) -> None:
    """End the process of an encoder, if it has one."""
    if isinstance(encoder, _Command):
        encoder.close()


def check_encoded(encode: Encoder, text: str, token: str) -> bytes:
    """Return the bytes of an input; raise UsageError if they do not contain its token."""
    encoded: Any = encode(text)
    if not isinstance(encoded, bytes):
        raise UsageError(f"the encoder returned {type(encoded).__name__}, not bytes", "let it return bytes")
    if token.encode() not in encoded.lower():
        raise UsageError(
            f"the encoder changed the token {token}, so no witness can find it",
            "it must keep the text of {id}; a compressed or encrypted value does not",
        )
    return encoded


def _of_function(text: str, folder: str) -> Encoder:
    file, name = split_function(text)
    path = Path(folder) / file
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)
        spec.loader.exec_module(module)
        encode = getattr(module, name)
    except Exception as error:
        raise UsageError(
            f"the encoder {text} cannot be loaded: {error}", f"{path} must define the function {name}"
        ) from error
    if not callable(encode):
        raise UsageError(f"the encoder {text} is no function", f"{path} must define the function {name}")
    function: Encoder = encode
    return function


class _Command:
    """Encoder that is a running command. Its process ends when its input ends."""

    def __init__(self, command: list[str], folder: str) -> None:
        self._command = command
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
            )
        except OSError as error:
            raise UsageError(
                f"the encoder {command[0]} cannot be started: {error.strerror}", "correct encoder_command"
            ) from error

    def __call__(self, text: str) -> bytes:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        problem = "it ended"
        try:
            stdin.write(text.replace("\n", " ").encode() + b"\n")
            stdin.flush()
            if line := stdout.readline():
                return base64.b64decode(line.strip(), validate=True)
        except OSError:
            pass  # reported below
        except binascii.Error:
            problem = "it printed no base64"
        self.close()
        raise UsageError(
            f"the encoder {' '.join(self._command)} did not encode an input: {problem}",
            "it must print one line of base64 for each line that it reads, and flush it",
        )

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        with suppress(OSError, ValueError):
            self._process.communicate()
