"""How late threads wake on this machine, and how long small work takes, beside busy processes.

The rule of harness/evidence/checkers/starvation.py was chosen from these figures.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import click

from harness.evidence.history.lateness_recorder import SLEEP_S, read_pressure

WORK_MS: Final = 5


class Figures(NamedTuple):
    """Figures of one measurement: lateness of wakes, and seconds for each second of work."""

    wakes: int
    mean_ms: float
    largest_ms: float
    stretch: float
    pressure: float | None


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Run processes that do nothing but use a processor, each in a session of its own."""
    command = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(command, start_new_session=True) for _ in range(number)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def measure(seconds: float) -> Figures:
    """Sleep and work in turn for some seconds."""
    late: list[float] = []
    took: list[float] = []
    began, pressure = time.monotonic(), read_pressure()
    while time.monotonic() < began + seconds:
        due = time.monotonic() + SLEEP_S
        time.sleep(SLEEP_S)
        late.append(max(0.0, time.monotonic() - due) * 1000)
        if len(late) % 2:
            continue  # work makes the next wake later, so only every second wake is followed by work
        _work(WORK_MS / 1000)
        took.append((time.monotonic() - due) * 1000)
    after, passed = read_pressure(), time.monotonic() - began
    share = None if pressure is None or after is None else (after - pressure) / 1e6 / passed
    stretch = statistics.mean(took) / WORK_MS if took else 0.0
    return Figures(len(late), statistics.mean(late), max(late), stretch, share)


def _work(seconds: float) -> None:
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass


@click.command(epilog="Example:  python -m tools.lateness --seconds 5 0 30 60")
@click.argument("busy", type=click.IntRange(0, 500), nargs=-1, metavar="[BUSY]...")
@click.option("--seconds", default=5.0, show_default=True, help="Seconds of each measurement.")
def main(busy: tuple[int, ...], seconds: float) -> None:
    """Measure beside each number of BUSY processes (default: 0)."""
    click.echo(f"{os.cpu_count()} cores; work of {WORK_MS} ms; load average {os.getloadavg()[0]:.1f}")
    for number in busy or (0,):
        with busy_processes(number):
            time.sleep(1.0)  # until the processes compete
            found = measure(seconds)
        waited = "" if found.pressure is None else f", some task waited {found.pressure:.0%} of the time"
        click.echo(
            f"{number:3d} busy: woke {found.wakes} times, {found.mean_ms:.1f} ms late (mean), "
            f"{found.largest_ms:.1f} ms (largest); work took {found.stretch:.1f} times as long{waited}"
        )


if __name__ == "__main__":
    main()
