"""Mutation tests of the checkers: each mutant weakens one check, and a test must then fail."""

from __future__ import annotations

import compileall
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import NamedTuple

import click

from tools import first_failure

ROOT = Path(__file__).resolve().parent.parent
TESTS = (
    "tests/planted",
    "tests/unit/test_checker.py",
    "tests/unit/test_checker_guards.py",
    "tests/unit/test_checker_witness.py",
    "tests/unit/test_walkthroughs.py",
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
    "tests/unit/test_manifest.py",
    "tests/unit/test_ledger.py",
    "tests/unit/test_run_directory.py",
    "tests/unit/test_consumer_recording.py",
    "tests/unit/test_distinct_counts.py",
)
"""Tests of a mutant, unless the file of the mutant names its own tests. The slowest tests come last."""
PLUGINS = ("no:cacheprovider", "pytest_timeout", "first_failure", "tests.unit.conftest")
OPTIONS = (
    *("-B", "-m", "pytest", "-x", "-q", "-m", "not soak", "-o", "addopts=", "--noconftest"),
    *(f"-p{plugin}" for plugin in PLUGINS),
)
"""Without tests/conftest.py: it imports all of the harness, which takes longer than most tests."""
SWITCHES = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
LIMIT_S = 300
JOBS = 2
KILLERS = ROOT / "tests" / "mutants" / "killers.json"
"""The test that killed each mutant when `--record` was last used. It runs first."""


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


class Failure(NamedTuple):
    """How the tests failed with a mutant: the id of the first test that failed; empty after a time-out."""

    test: str


class NoTestsError(Exception):
    """Error for tests that pytest could not run, for example because there is no test with this id."""


class Outcome(NamedTuple):
    """The result for one mutant: how the tests failed, or None if all of them passed."""

    mutant: Mutant
    failure: Failure | None

    @property
    def is_undecided(self) -> bool:
        """Whether no test failed: the time limit passed, or a file of tests could not be imported."""
        return self.failure is not None and "::" not in self.failure.test

    @property
    def is_survivor(self) -> bool:
        """Whether no test failed and the mutant has no excuse."""
        return (self.failure is None or self.is_undecided) and not self.mutant.excuse

    def __str__(self) -> str:
        name, excuse = self.mutant.name, self.mutant.excuse
        if self.is_undecided:
            file = self.failure.test if self.failure else ""
            why = f"{file} cannot be imported" if file else f"no test failed within {LIMIT_S} s"
            return f"UNDECIDED {name}: {why}"
        if self.failure is not None:
            return f"killed   {name}"
        return f"lives: {excuse} {name}" if excuse else f"LIVES    {name}"


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
    shutil.copy(first_failure.__file__, into / "first_failure.py")
    # Compiled files that Python compares with the content of their sources. By their times, a file that was
    # changed twice in a second would look unchanged.
    compileall.compile_dir(into, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)


def run_tests(tests: tuple[str, ...], project: Path) -> Failure | None:
    """Run tests in a copy of the project. Return the first failure, or None if all tests passed.

    Raise NoTestsError if pytest failed without a failed test.
    """
    failed = project / "first_failure.txt"
    failed.unlink(missing_ok=True)
    try:
        done = subprocess.run(
            [sys.executable, *OPTIONS, *tests],
            cwd=project,
            env={**os.environ, **SWITCHES, "PYTHONPATH": str(project), first_failure.VARIABLE: str(failed)},
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Failure("")
    if done.returncode and not failed.exists():
        raise NoTestsError(done.stdout.decode()[-2000:])
    return Failure(failed.read_text()) if done.returncode else None


def kill(mutant: Mutant, project: Path, killer: str = "") -> Outcome:
    """Put a mutant into a copy of the project, run the tests, and restore the file.

    `killer` is the test that killed the mutant before.
    """
    path = project / mutant.file
    text = path.read_text()
    if text.count(mutant.old) < 1:
        raise click.ClickException(
            f"{mutant.name}: {mutant.file} has no {mutant.old!r}: update tests/mutants"
        )
    path.write_text(text.replace(mutant.old, mutant.new, 1))
    failure = None
    try:
        if killer:
            with suppress(NoTestsError):
                failure = run_tests((killer,), project)
        return Outcome(mutant, failure or run_tests(mutant.tests, project))
    except NoTestsError as error:
        raise click.ClickException(f"{mutant.name}: the tests did not run:\n{error}") from error
    finally:
        path.write_text(text)


def read_killers(mutants: list[Mutant]) -> dict[str, str]:
    """Return the recorded killer of each mutant, if its test file exists and is among the mutant's tests."""
    recorded = json.loads(KILLERS.read_text()) if KILLERS.exists() else {}
    killers = {m.name: recorded[m.name] for m in mutants if m.name in recorded}
    return {m.name: killers[m.name] for m in mutants if m.name in killers and is_among(killers[m.name], m)}


def is_among(killer: str, mutant: Mutant) -> bool:
    """Return whether the file of a recorded killer exists and contains tests of the mutant."""
    file = killer.partition("::")[0]
    own = [test.partition("::")[0] for test in mutant.tests]
    return (ROOT / file).exists() and any(file == test or file.startswith(f"{test}/") for test in own)


def outcomes(mutants: list[Mutant], killers: dict[str, str], jobs: int) -> Iterator[Outcome]:
    """Yield the outcome of each mutant, in their order. Each job has its own copy of the project."""
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(jobs) as executor:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            copies.put(Path(name) / str(number))
            copy_project(Path(name) / str(number))

        @contextmanager
        def a_copy() -> Iterator[Path]:
            project = copies.get()
            try:
                yield project
            finally:
                copies.put(project)

        def attempt(mutant: Mutant) -> Outcome:
            with a_copy() as project:
                return kill(mutant, project, killers.get(mutant.name, ""))

        with a_copy() as project:
            every_test = tuple(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
            if failure := run_tests(every_test, project):
                raise click.ClickException(f"{failure.test} fails without a mutant: repair it first")
        try:
            yield from executor.map(attempt, mutants)
        finally:
            executor.shutdown(cancel_futures=True)


@click.command(epilog="Example:  python -m tools.mutants lost")
@click.argument("words", nargs=-1, metavar="[WORD]...")
@click.option("--jobs", default=JOBS, show_default=True, help="Mutants that are tested at the same time.")
@click.option("--record", is_flag=True, help=f"Write the tests that killed the mutants to {KILLERS.name}.")
def main(words: tuple[str, ...], jobs: int, record: bool) -> None:
    """Run the tests against each mutant whose name contains a WORD; without words, against all.

    A mutant replaces one text in one file of a copy of the project, and so weakens one check. The test that
    killed the mutant before runs first. If it passes, all tests run that the file of the mutant names, or
    else those in tests/planted and the unit tests of the verdict; at least one must fail. The exit code is 1
    if a mutant survives without an excuse in its entry.
    """
    chosen = [mutant for mutant in load() if not words or any(word in mutant.name for word in words)]
    killers = read_killers(chosen)
    survivors = 0
    for outcome in outcomes(chosen, killers, jobs):
        click.echo(str(outcome))
        if outcome.failure is not None:
            killers[outcome.mutant.name] = outcome.failure.test
        survivors += outcome.is_survivor
        if record:
            known = read_killers(load())
            known |= {name: test for name, test in killers.items() if test}
            KILLERS.write_text(json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    click.echo(f"{len(chosen)} mutants, {survivors} live without an excuse")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
