"""Where scenarios are: those that come with the harness by name, any other by its path."""

from __future__ import annotations

import difflib
from pathlib import Path

from harness.base.errors import UsageError

SHIPPED = Path(__file__).resolve().parent / "shipped"


def shipped() -> list[Path]:
    """The scenarios that come with the harness."""
    return sorted(SHIPPED.glob("*.toml"))


def find(name: str) -> Path:
    """The file of a scenario: a shipped one by name, any other by path."""
    if name.endswith(".toml") or "/" in name:
        path = Path(name)
        if path.is_file():
            return path
        raise UsageError(f"there is no scenario file {path}", "name a .toml file, or one of `eos list`")
    path = SHIPPED / f"{name}.toml"
    if path.is_file():
        return path
    names = [p.stem for p in shipped()]
    near = difflib.get_close_matches(name, names, 1)
    raise UsageError(
        f"there is no scenario {name!r}",
        f"did you mean {near[0]}? `eos list` shows all"
        if near
        else f"`eos list` shows all: {', '.join(names)}",
    )
