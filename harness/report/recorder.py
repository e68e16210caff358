"""The recorder of a run: writes every event as a line of events.jsonl."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import msgspec

from harness.base.events import Event


class Recorder:
    """Event listener that appends each event at once, so that a killed run keeps its events."""

    def __init__(self, directory: Path) -> None:
        self._file = (directory / "events.jsonl").open("ab", buffering=0)

    def __call__(self, event: Event) -> None:
        self._file.write(msgspec.json.encode(event) + b"\n")

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
