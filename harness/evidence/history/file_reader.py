"""Reads a history file as a stream: blocks of whole lines, never the file as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from harness.base.errors import UsageError
from harness.evidence.history.lines import FORMAT, HistoryOpened, Line

BLOCK_BYTES: Final = 1 << 18
"""A block and what is decoded from it stay in the processor's cache: twice as fast as blocks of megabytes."""


class Block(NamedTuple):
    """Some whole lines, and the number of the first of them, counted from 1."""

    first_line: int
    data: bytes


class HistoryFile:
    """One client's history; after `blocks` has ended, `lines` and `torn` say what was found."""

    def __init__(self, path: Path, data: bytes | None = None) -> None:
        """Read the file at `path`, or `data` under its name."""
        self.path = path
        self._data = data
        self.lines = 0
        self.torn: bytes | None = None

    @property
    def name(self) -> str:
        """The client's name, which is the file's."""
        return self.path.stem

    @property
    def size(self) -> int:
        """Bytes to read."""
        return self.path.stat().st_size if self._data is None else len(self._data)

    def blocks(self, size: int = BLOCK_BYTES) -> Iterator[Block]:
        """Yield the whole lines in blocks; a last line without its newline is kept apart in `torn`."""
        self.lines, self.torn = 0, None
        rest = b""
        with self.path.open("rb") if self._data is None else BytesIO(self._data) as file:
            while data := file.read(size):
                data = rest + data
                end = data.rfind(b"\n") + 1
                rest = data[end:]
                if end:
                    block = Block(self.lines + 1, data[:end])
                    self.lines += block.data.count(b"\n")
                    yield block
        if rest:
            # A line is written with its newline in one write: without it the writer died within the line.
            self.torn = rest

    def read(self) -> Iterator[tuple[int, Line]]:
        """Yield every whole line, typed, with its number."""
        decoder = msgspec.json.Decoder(Line)
        for block in self.blocks():
            for number, data in enumerate(block.data.splitlines(), block.first_line):
                yield number, decode_line(decoder, data, self.path, number)

    def opening(self) -> HistoryOpened:
        """Return the first line, which says who wrote the file."""
        for number, line in self.read():
            if isinstance(line, HistoryOpened):
                if line.format != FORMAT:
                    raise UsageError(
                        f"{self.path}:{number}: format {line.format}, and this version reads {FORMAT}",
                        "read it with the version of the harness that wrote it",
                    )
                return line
            break
        raise UsageError(
            f"{self.path}: the first line is no opening line",
            "a client that died before its first line was whole wrote nothing else: remove the file",
        )


def decode_line(decoder: msgspec.json.Decoder[Line], data: bytes, path: Path, number: int) -> Line:
    """Decode one line, or say which line of which file is broken."""
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{path}:{number}: not a history line: {error}",
            "only the last line of a history may be torn; this one was damaged after it was written",
        ) from error


def history_files(directory: Path) -> list[HistoryFile]:
    """Return the histories of a run, by name."""
    return [HistoryFile(path) for path in sorted(directory.glob("*.jsonl"))]
