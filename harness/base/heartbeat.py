"""Lines that show that a long step is still in progress."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

EVERY_S: Final = 30.0


@contextmanager
def heartbeat(report: Callable[[str], None], step: str, every_s: float = EVERY_S) -> Iterator[None]:
    """Report `step` when the block begins, and the seconds that passed as long as it lasts."""
    ended = threading.Event()
    began = time.monotonic()

    def beat() -> None:
        while not ended.wait(every_s):
            report(f"  ... {time.monotonic() - began:.0f} s")

    report(step)
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
