"""Lookup of scenario files. A shipped scenario is found by its name, any other scenario by its path."""

from __future__ import annotations

import difflib
from pathlib import Path

from harness.base.errors import UsageError

SHIPPED = Path(__file__).resolve().parent / "shipped"


def shipped() -> list[Path]:
    """Return the paths of the scenario files that are part of the harness."""
    return sorted(SHIPPED.glob("*.toml"))


def find(name: str) -> Path:
    """Return the path of a scenario file.

    `name` is the name of a shipped scenario, or the path of any other file.
    """
    if name.endswith(".toml") or "/" in name:
        path = Path(name)
        if path.is_file():
            return path
        raise UsageError(f"there is no scenario file {path}", "name a .toml file or a shipped scenario")
    path = SHIPPED / f"{name}.toml"
    if path.is_file():
        return path
    names = [p.stem for p in shipped()]
    near = difflib.get_close_matches(name, names, 1)
    hint = (
        f"did you mean {near[0]}? `eos list` shows all" if near else f"the scenarios are {', '.join(names)}"
    )
    raise UsageError(f"there is no scenario {name!r}", hint)
