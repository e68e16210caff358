"""Differences between what a page shows and what was observed."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click

from harness.walkthroughs.kips import Seen


def stop_at_differences(observed: Iterable[tuple[str, Seen]]) -> None:
    """Print each observation that differs from the expected one; if there is any, exit with 1."""
    differing = [(name, seen) for name, seen in observed if not seen.same]
    for name, seen in differing:
        click.echo(f"{name}: {seen.what}: expected {seen.expected}, observed {seen.observed}", err=True)
    if differing:
        sys.exit(1)
