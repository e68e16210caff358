"""Runs that must be valid, each followed by `eos audit`, which must find nothing.

It shows that the search of the logs reports no damage where there is none: the runs have faults, but no late
or repeated request. Runs share a cluster, and each audit reads all topics of the cluster. A result of an
earlier call in the same folder is kept, and only the missing runs are carried out.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from harness.base.errors import ExitCode
from harness.cli.options import parse_seconds
from harness.cluster.state_directory import BackendName
from harness.provision.paths import state_dir
from tools.campaign import RUNS_PER_CLUSTER, SCENARIOS, STEADY, needed_s, run_eos, scenario_of

AUDIT_LIMIT_S: Final = 300.0
WITNESSES: Final = 'verify.witnesses=["reader", "raw-log"]'
"""Witnesses of the runs. Spark would read the same records again; the audit reads the logs itself."""
COUNTS: Final = re.compile(r"(\d+) damaged, (\d+) suspicious")


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """A run and the audit after it: a line of healthy.jsonl."""

    number: int
    scenario: str
    seed: int
    backend: str
    run_code: int
    audit_code: int
    damaged: int
    suspicious: int
    output: str = ""

    @property
    def silent(self) -> bool:
        """Whether the run was valid and the audit found nothing."""
        return self.run_code == self.audit_code == ExitCode.VALID and not self.damaged + self.suspicious

    @property
    def text(self) -> str:
        """One line of text about the run."""
        return (
            f"{self.number:4} {self.scenario:20} seed {self.seed:6} {self.backend:8} "
            f"run {self.run_code}, audit {self.audit_code}: {self.damaged} damaged, "
            f"{self.suspicious} suspicious"
        )


def transactional() -> list[str]:
    """Return the scenarios that expect a valid verdict and write markers, which the audit compares."""
    kinds = {"transactional", "pipeline"}
    return [name for name in SCENARIOS if kinds & {w.kind for w in scenario_of(name).workload}]


def draw(seed: int, runs: int) -> Iterator[tuple[int, str, int]]:
    """Yield the number, scenario and seed of each run. Each scenario occurs once before any occurs again."""
    left: list[str] = []
    rng = random.Random(f"healthy/{seed}")
    for number in range(runs):
        left = left or rng.sample(names := transactional(), len(names))
        yield number, left.pop(), rng.randrange(1_000_000)


def parse_counts(output: str) -> tuple[int, int]:
    """Return the numbers of damaged and of suspicious places that `eos audit` printed; -1 without them."""
    match = COUNTS.search(output)
    return (int(match[1]), int(match[2])) if match else (-1, -1)


class HealthyRuns:
    """The runs on one back end, their cluster and their results."""

    def __init__(self, out: Path, backend: BackendName, duration: float) -> None:
        self.results = out / "healthy.jsonl"
        self._out = out
        self._backend = backend
        self._duration = duration
        self._state = ["--state", str(state_dir(f"eos-healthy-{backend}").resolve())]
        self._on_cluster = 0

    def carry_out(self, number: int, scenario: str, seed: int) -> Audited:
        """Carry out one run and the audit after it. Return the result, and add it to the file of results."""
        if self._on_cluster == RUNS_PER_CLUSTER:
            self.close()
        folder = self._out / f"{number:04}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with (folder / "output.log").open("ab") as log:
            if not self._on_cluster:
                run_eos(["up", "--backend", self._backend, *self._state], log.fileno())
            duration = f"{max(self._duration, needed_s(scenario)):g}s"
            args = ["run", scenario, "--seed", str(seed), "--duration", duration, "--runs", str(folder)]
            changes = ["--set", f"plan.steady={STEADY}", "--set", WITNESSES]
            run_code = run_eos([*args, *changes, *self._state], log.fileno())
        self._on_cluster += 1
        audit = subprocess.run(
            [sys.executable, "-m", "harness", "audit", *self._state],
            capture_output=True,
            text=True,
            timeout=AUDIT_LIMIT_S,
            check=False,
        )
        damaged, suspicious = parse_counts(audit.stdout)
        result = Audited(
            number=number,
            scenario=scenario,
            seed=seed,
            backend=self._backend,
            run_code=run_code,
            audit_code=audit.returncode,
            damaged=damaged,
            suspicious=suspicious,
        )
        if result.silent:
            shutil.rmtree(folder)
        else:
            result = msgspec.structs.replace(result, output=audit.stdout + audit.stderr)
        with self.results.open("ab") as file:
            file.write(msgspec.json.encode(result) + b"\n")
        return result

    def close(self) -> None:
        """Remove the cluster, if one was started."""
        if self._on_cluster:
            run_eos(["down", *self._state], subprocess.DEVNULL)
        self._on_cluster = 0


def read_results(path: Path) -> list[Audited]:
    """Return the results that the folder has so far."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=Audited) for line in path.read_bytes().splitlines()]


def summarise(results: Sequence[Audited]) -> str:
    """Return one line: how many runs there were, and how many of them had no finding."""
    per_backend = {r.backend: sum(x.backend == r.backend for x in results) for r in results}
    where = ", ".join(f"{count} {backend}" for backend, count in sorted(per_backend.items()))
    silent = sum(result.silent for result in results)
    return f"{silent} of {len(results)} runs valid and without a finding ({where})"


@click.command(epilog="Example:  python -m tools.healthy_runs --runs 50 --backend process")
@click.option("--runs", type=click.IntRange(1), metavar="N", default=50, show_default=True, help="Runs.")
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", default=1, show_default=True, help="Seed of the runs."
)
@click.option(
    "--backend",
    type=click.Choice(["process", "compose"]),
    metavar="NAME",
    default="process",
    show_default=True,
    help="process or compose.",
)
@click.option(
    "--duration",
    type=click.FloatRange(1),
    metavar="S",
    default=6.0,
    show_default=True,
    help="Time for faults in each run, in seconds.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    default=Path("runs/healthy"),
    show_default=True,
    help="Folder for results. Runs with a result are not repeated.",
)
@click.option(
    "--budget", callback=parse_seconds, metavar="TIME", help="Start no run after this time, such as 10m."
)
def main(
    *, runs: int, seed: int, backend: BackendName, duration: float, out: Path, budget: float | None
) -> None:
    """Carry out runs that must be valid, and search the logs after each one.

    The exit code is 1 if a run was not valid, or an audit found something.
    """
    out.mkdir(parents=True, exist_ok=True)
    healthy = HealthyRuns(out.resolve(), backend, duration)
    results = read_results(healthy.results)
    done = {result.number for result in results}
    started = time.monotonic()
    try:
        for number, scenario, run_seed in draw(seed, runs):
            if number in done:
                continue
            if budget is not None and time.monotonic() - started > budget:
                break
            results.append(result := healthy.carry_out(number, scenario, run_seed))
            click.echo(result.text)
    finally:
        healthy.close()
        click.echo(summarise(results))
    sys.exit(0 if all(result.silent for result in results) else 1)


if __name__ == "__main__":
    main()
