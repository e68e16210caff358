"""Reader of a history file. It reads blocks of complete lines, so memory use is constant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from harness.base.errors import UsageError
from harness.base.unreadable import readable
from harness.evidence.history.lines import FORMAT, HistoryOpened, Line

BLOCK_BYTES: Final = 1 << 18
"""Size of a block in bytes.

A block of this size and its decoded lines fit into the processor's cache. Decoding such blocks is twice as
fast as decoding blocks of megabytes.
"""


class Block(NamedTuple):
    """Consecutive complete lines of a file, and the line number of the first one. Line numbers start at 1."""

    first_line: int
    data: bytes

    def lines(self) -> list[bytes]:
        """Return the lines without their newlines."""
        return self.data.split(b"\n")[:-1]

    def parts(self, size: int) -> Iterator[Block]:
        """Split the block into blocks of about `size` bytes."""
        start, first_line = 0, self.first_line
        while start < len(self.data):
            end = self.data.find(b"\n", min(start + size, len(self.data)) - 1) + 1
            part = Block(first_line, self.data[start:end])
            yield part
            start, first_line = end, first_line + part.data.count(b"\n")


def count_lines(data: bytes) -> int:
    """Return the number of complete lines."""
    return data.count(b"\n")


class HistoryFile:
    """The history file of one client.

    Iterating over `blocks` sets two attributes: `lines` is the number of complete lines, and `torn` is an
    incomplete last line.
    """

    def __init__(self, path: Path, data: bytes | None = None) -> None:
        """Use the content of the file at `path`; if `data` is given, use `data` instead."""
        self.path = path
        self._data = data
        self.lines = 0
        self.torn: bytes | None = None

    @property
    def name(self) -> str:
        """Name of the client, which is the name of the file."""
        return self.path.stem

    @property
    def size(self) -> int:
        """Size of the history in bytes."""
        if self._data is not None:
            return len(self._data)
        with readable(self.path):
            return self.path.stat().st_size

    def blocks(
        self, size: int = BLOCK_BYTES, count_lines: Callable[[bytes], int] = count_lines
    ) -> Iterator[Block]:
        """Yield the complete lines in blocks, and store an incomplete last line in `torn`."""
        self.lines, self.torn = 0, None
        rest = b""
        with readable(self.path), self._open() as file:
            while data := file.read(size):
                data = rest + data
                end = data.rfind(b"\n") + 1
                rest = data[end:]
                if end:
                    block = Block(self.lines + 1, data[:end])
                    self.lines += count_lines(block.data)
                    yield block
        if rest:
            # The writer writes a line and its newline with one call. A last line without a newline means that
            # the writer was killed during that call.
            self.torn = rest

    def _open(self) -> BinaryIO:
        return self.path.open("rb") if self._data is None else BytesIO(self._data)

    def read(self) -> Iterator[tuple[int, Line]]:
        """Decode every complete line; yield it with its line number."""
        decoder = msgspec.json.Decoder(Line)
        for block in self.blocks():
            for number, data in enumerate(block.lines(), block.first_line):
                yield number, decode_line(decoder, data, self.path, number)

    def opening(self) -> HistoryOpened:
        """Return the opening line, which identifies the client that wrote the file."""
        for number, line in self.read():
            if isinstance(line, HistoryOpened):
                if line.format != FORMAT:
                    raise UsageError(
                        f"{self.path}:{number}: format {line.format}, but this version reads {FORMAT}",
                        "read it with the version of the harness that wrote it",
                    )
                return line
            break
        raise UsageError(
            f"{self.path}: the first line is not an opening line",
            "the client died before its first line was complete: remove the file",
        )


def decode_line(decoder: msgspec.json.Decoder[Line], data: bytes, path: Path, number: int) -> Line:
    """Decode one line. Raise UsageError with the file and the line number if the line is damaged."""
    try:
        return decoder.decode(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path}:{number}: not a history line: {error}",
            "only the last line of a history may be incomplete; this one was changed after it was written",
        ) from error


def history_files(directory: Path) -> list[HistoryFile]:
    """Return the histories in a directory, sorted by name.

    Files whose names begin with a dot are left out: other programs write them, such as those that copy files.
    """
    files = [path for path in directory.glob("*.jsonl") if not path.name.startswith(".")]
    return [HistoryFile(path) for path in sorted(files)]
