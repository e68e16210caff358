"""Helper that logs the frames of one test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from harness.tap.frame_lines import Line
from harness.tap.tap_client import Tap


@contextmanager
def logged(tap: Tap, folder: Path) -> Iterator[Callable[[], list[Line]]]:
    """Log frames into a folder; yield a function that returns all lines so far."""
    path = tap.log_to(folder)

    def read() -> list[Line]:
        tap.flush()
        return [msgspec.json.decode(line, type=Line) for line in path.read_bytes().splitlines()]

    yield read
    tap.stop_log()
