"""Mutation tests of the checkers: each mutant weakens one check, and a test must then fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

import click

ROOT = Path(__file__).resolve().parent.parent
TESTS = (
    "tests/planted",
    "tests/unit/test_checker.py",
    "tests/unit/test_checker_guards.py",
    "tests/unit/test_checker_witness.py",
    "tests/unit/test_distinct_counts.py",
    "tests/unit/test_walkthroughs.py",
    "tests/unit/test_ledger.py",
    "tests/unit/test_raw_log.py",
    "tests/unit/test_second_opinion.py",
    "tests/unit/test_liveness.py",
    "tests/unit/test_client_ends.py",
    "tests/unit/test_transactor.py",
    "tests/unit/test_burst_producer.py",
    "tests/unit/test_pipeline_worker.py",
    "tests/unit/test_run_shutdown.py",
    "tests/unit/test_log_ends.py",
    "tests/unit/test_monitor.py",
    "tests/unit/test_witness_agreement.py",
    "tests/unit/test_witness_reading.py",
    "tests/unit/test_consumer_checks.py",
    "tests/unit/test_consumer_recording.py",
    "tests/unit/test_manifest.py",
    "tests/unit/test_run_directory.py",
)
"""Tests that run against a mutant, unless the file of the mutant names its own tests."""
LIMIT_S = 300


class Mutant(NamedTuple):
    """One weakened check: a text in a file, and the text that replaces it.

    `excuse` is the reason why the tests may pass with this mutant. It is empty if the tests must fail.
    """

    name: str
    file: str
    old: str
    new: str
    excuse: str = ""
    tests: tuple[str, ...] = TESTS


def load() -> list[Mutant]:
    """Read the mutants of all files in tests/mutants.

    A file may name the tests that run against its mutants in the key `tests`.
    """
    mutants = []
    for file in sorted((ROOT / "tests" / "mutants").glob("*.toml")):
        content = tomllib.loads(file.read_text())
        tests = tuple(content.get("tests", TESTS))
        mutants += [Mutant(**row, tests=tests) for row in content["mutant"]]
    return mutants


def copy_project(into: Path) -> None:
    """Copy the code and the tests of the project into a folder."""
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("harness", "spark_jobs", "tests"):
        shutil.copytree(ROOT / name, into / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", into / "pyproject.toml")


def survives(mutant: Mutant, project: Path) -> bool:
    """Put a mutant into the copy of the project, run the tests, and restore the file.

    Return whether all tests passed.
    """
    path = project / mutant.file
    text = path.read_text()
    if text.count(mutant.old) < 1:
        raise click.ClickException(
            f"{mutant.name}: {mutant.file} has no {mutant.old!r}: update tests/mutants"
        )
    path.write_text(text.replace(mutant.old, mutant.new, 1))
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests]
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
        raise click.ClickException(f"{mutant.name}: the tests did not run:\n{done.stdout.decode()[-2000:]}")
    return done.returncode == 0


@click.command(epilog="Example:  python -m tools.mutants lost")
@click.argument("words", nargs=-1, metavar="[WORD]...")
def main(words: tuple[str, ...]) -> None:
    """Run the tests against each mutant whose name contains a WORD; without words, against all.

    A mutant replaces one text in one file of a copy of the project, and so weakens one check. The tests in
    tests/planted and the unit tests of checkers, ledger and walkthroughs run on the copy, or those that the
    file of the mutant names; at least one must fail. The exit code is 1 if a mutant survives without an
    excuse in its entry.
    """
    chosen = [mutant for mutant in load() if not words or any(word in mutant.name for word in words)]
    survivors = []
    with tempfile.TemporaryDirectory() as name:
        project = Path(name)
        copy_project(project)
        for tests in {mutant.tests for mutant in chosen}:
            if not survives(
                Mutant("no change", "harness/evidence/manifest.py", "import", "import", tests=tests), project
            ):
                raise click.ClickException("the tests fail without a mutant: repair them first")
        for mutant in chosen:
            alive = survives(mutant, project)
            outcome = "killed" if not alive else f"lives: {mutant.excuse}" if mutant.excuse else "LIVES"
            click.echo(f"{outcome:8} {mutant.name}")
            survivors += [mutant.name] if alive and not mutant.excuse else []
    click.echo(f"{len(chosen)} mutants, {len(survivors)} live without an excuse")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
