"""Lookup of scenario files. A shipped scenario is found by its name, any other scenario by its path."""

from __future__ import annotations

from pathlib import Path

from harness.base.errors import UsageError
from harness.base.texts import shorten

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
        if _exists(path) and not path.is_dir():  # a pipe is allowed too
            return path
        problem = f"{path} is a folder" if _exists(path) else f"there is no scenario file {shorten(name)}"
        raise UsageError(problem, "name a .toml file or a shipped scenario")
    names = [p.stem for p in shipped()]
    if name in names:
        return SHIPPED / f"{name}.toml"
    import difflib

    files = [path.name for path in Path().glob("*.toml")] if "." in name else []
    if near := difflib.get_close_matches(name, files, 1):
        raise UsageError(f"there is no file {shorten(name)!r}", f"did you mean {near[0]}?")
    near = difflib.get_close_matches(name.lower(), names, 1)
    hint = f"did you mean {near[0]}? `eos list` shows all" if near else "`eos list` shows all"
    raise UsageError(f"there is no scenario {shorten(name)!r}", hint)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # the name is too long
        return False
