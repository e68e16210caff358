"""Weaken every check, one at a time, and require that a test fails.

    python -m tools.mutants            run every mutant; exit 1 if one without an excuse survives
    python -m tools.mutants lost       run the mutants whose name contains a word

A mutant replaces one text in one file of a copy of the project. The planted and unit tests of the evidence
then run on that copy. A mutant that passes all tests shows a gap in the tests, unless it has an excuse.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TESTS = (
    "tests/planted",
    "tests/unit/test_checker.py",
    "tests/unit/test_checker_witness.py",
    "tests/unit/test_walkthroughs.py",
    "tests/unit/test_ledger.py",
)
LIMIT_S = 300


class Mutant(NamedTuple):
    """One weakened check: `old` becomes `new` in `file`; `excuse` is the reason if it may survive."""

    name: str
    file: str
    old: str
    new: str
    excuse: str = ""


def load() -> list[Mutant]:
    """Read the mutants of tests/mutants.toml."""
    table = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text())
    return [Mutant(**row) for row in table["mutant"]]


def copy_project(into: Path) -> None:
    """Copy the files that the tests need."""
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("harness", "tests"):
        shutil.copytree(ROOT / name, into / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", into / "pyproject.toml")


def survives(mutant: Mutant, project: Path) -> bool:
    """Plant a mutant in the copy, run the tests and restore the file; return whether all tests passed."""
    path = project / mutant.file
    text = path.read_text()
    if text.count(mutant.old) < 1:
        raise SystemExit(f"{mutant.name}: {mutant.file} has no {mutant.old!r} any more: renew the mutant")
    path.write_text(text.replace(mutant.old, mutant.new, 1))
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *TESTS]
    try:
        done = subprocess.run(
            command,
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(project)},
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
    finally:
        path.write_text(text)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{mutant.name}: the tests did not run:\n{done.stdout.decode()[-2000:]}")
    return done.returncode == 0


def main() -> None:
    """Run the mutants and print for each whether it was killed, survives, or survives with an excuse."""
    wanted = [m for m in load() if not sys.argv[1:] or any(word in m.name for word in sys.argv[1:])]
    survivors = []
    with tempfile.TemporaryDirectory() as name:
        project = Path(name)
        copy_project(project)
        if not survives(Mutant("nothing changed", TESTS[1], "import", "import"), project):
            raise SystemExit("the tests fail without any mutant: fix them first")
        for mutant in wanted:
            alive = survives(mutant, project)
            result = "killed" if not alive else f"lives: {mutant.excuse}" if mutant.excuse else "LIVES"
            print(f"{result:8} {mutant.name}", flush=True)
            survivors += [mutant.name] if alive and not mutant.excuse else []
    print(f"{len(wanted)} mutants, {len(survivors)} live without an excuse")
    raise SystemExit(1 if survivors else 0)


if __name__ == "__main__":
    main()
