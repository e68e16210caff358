"""Common base of all log files with one JSON object per line: two timestamps, and a published schema."""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path
from typing import Any, TypedDict

import msgspec


class LogLine(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of every line. It has the host's monotonic time and its wall-clock time, both in nanoseconds."""

    mono: int
    wall: int


class Timestamps(TypedDict):
    mono: int
    wall: int


def timestamps() -> Timestamps:
    """Return the current times of both clocks as keyword arguments of a LogLine."""
    return {"mono": time.monotonic_ns(), "wall": time.time_ns()}


def clock_id() -> str:
    """Return the id of this host's monotonic clock. Times of clocks with different ids cannot be compared."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else platform.node()


def schema_text(title: str, kind: Any) -> str:
    """Return the JSON schema of a type in the form in which harness/evidence/schemas publishes it."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **msgspec.json.schema(kind),
    }
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"
