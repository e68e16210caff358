"""Campaign: many short runs, half of them with a planted client bug, and the number of false verdicts.

A run without a bug must get the verdict that its scenario expects. A run whose bug did harm must be invalid,
with an anomaly of that bug. The clients record themselves what their bug did (harness.clients.bug_log). Every
other verdict is a false one, except for "unknown", which is counted separately.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final, Literal

import click
import msgspec

from harness.base.errors import ExitCode, HarnessError, UsageError
from harness.cli.options import parse_seconds
from harness.clients.bug_log import read_counts
from harness.clients.planted_bugs import BUGS
from harness.cluster.backend import capabilities_of
from harness.cluster.state_directory import BackendName
from harness.evidence.run_directory import RunDirectory, Summary
from harness.provision.docker_engine import engine_problem
from harness.provision.paths import state_dir
from harness.report.text_format import format_table
from harness.scenario import Scenario, find, load

SCENARIOS: Final = (
    "controller-loss",
    "coordinator-kills",
    "everything",
    "jitter",
    "latency",
    "leader-kills",
    "lost-answers",
    "rebalance-storm",
    "resets",
    "running-totals",
    "ten-producers",
    "zombies",
)
"""Scenarios that expect a valid verdict, and whose faults fit into a short run."""
CONTROLS: Final = ("read-uncommitted", "unsafe-durability", "without-idempotence")
"""Negative controls. Each keeps its own duration, and has no planted bug."""
STEADY: Final = "2s"
RUN_LIMIT_S: Final = 600.0
"""Limit of one run: ten times its usual time, so that it ends only a run that hangs."""
STOP_LIMIT_S: Final = 180.0
"""Limit for a run to heal and end after an interrupt."""
RUNS_PER_CLUSTER: Final = 12
"""Maximum number of runs that share a cluster. It keeps the topics of all its runs, and each broker loads
them when it starts. The back end changes after this many runs.
"""
CONTRADICTION: Final = "was sent by two operations"
"""Part of the reason why a history that contradicts itself makes a run unknown."""
Effect = Literal["no bug", "not fired", "harm uncertain", "harmful"]


class Outcome(StrEnum):
    """How a verdict compares with what the run must have."""

    RIGHT = "as expected"
    UNKNOWN = "unknown"
    MISSED = "missed"
    FALSE_ANOMALY = "false anomaly"
    NO_VERDICT = "no verdict"


FALSE_VERDICTS: Final = (Outcome.MISSED, Outcome.FALSE_ANOMALY)


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a campaign, drawn from its seed. `workload` is the index of the clients with the bug."""

    number: int
    seed: int
    scenario: str
    backend: BackendName
    bug: str = ""
    workload: int = -1


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run: a line of campaign.jsonl."""

    run: Drawn
    fired: int = 0
    harmful: int = 0
    verdict: str = ""
    anomalies: dict[str, int] = {}
    reasons: list[str] = []
    exit_code: int | None = None
    outcome: Outcome
    seconds: float = 0.0
    directory: str = ""

    @property
    def effect(self) -> Effect:
        """What the planted bug did, according to the clients that have it."""
        if not self.run.bug:
            return "no bug"
        return "harmful" if self.harmful else "harm uncertain" if self.fired else "not fired"


@cache
def scenario_of(name: str) -> Scenario:
    """Return a shipped scenario."""
    return load(find(name))


def draw(seed: int, runs: int, backends: Sequence[BackendName]) -> list[Drawn]:
    """Draw the runs of a campaign. A longer campaign with the same seed begins with the same runs.

    Every second run has a bug. Each bug occurs once before any bug occurs again.
    """
    drawn: list[Drawn] = []
    bugs: list[str] = []
    for number in range(runs):
        rng = random.Random(f"campaign/{seed}/{number}")
        run_seed, backend = rng.randrange(1_000_000), backends[number // RUNS_PER_CLUSTER % len(backends)]
        bug, workload = "", -1
        if number % 2:
            bugs = bugs or rng.sample(sorted(BUGS), len(BUGS))
            bug = bugs.pop()
            name, workload = rng.choice(places_of(bug))
        else:
            # A quarter of the runs without a bug are negative controls.
            name = rng.choice(controls_on(backend) if rng.random() < 0.25 else SCENARIOS)
        drawn.append(
            Drawn(number=number, seed=run_seed, scenario=name, backend=backend, bug=bug, workload=workload)
        )
    return drawn


def needed_s(name: str) -> float:
    """Return the shortest plan, in whole seconds, that contains every fault with a fixed time."""
    return max((entry.at // 1 + 1 for entry in scenario_of(name).fault if entry.at is not None), default=0)


def controls_on(backend: BackendName) -> list[str]:
    """Return the negative controls whose faults a back end supports."""
    possible = capabilities_of(backend)
    return [name for name in CONTROLS if {entry.capability for entry in scenario_of(name).fault} <= possible]


def places_of(bug: str) -> list[tuple[str, int]]:
    """Return each workload whose clients can have a bug: the scenario's name and the workload's index."""
    return [
        (name, index)
        for name in SCENARIOS
        for index, workload in enumerate(scenario_of(name).workload)
        if workload.kind in BUGS[bug].kinds
    ]


def classify(
    run: Drawn, verdict: str, anomalies: Iterable[str], reasons: Iterable[str], *, fired: int, harmful: int
) -> Outcome:
    """Compare a verdict with what the run must have.

    If a bug fired but its harm is not certain, the verdict may be that of a run without a bug, or name the
    bug's anomalies.
    """
    names = set(anomalies)
    if run.bug and fired:
        contradicts = any(CONTRADICTION in reason for reason in reasons)
        return _classify_bug(run.bug, verdict, names, harmful=harmful > 0, contradicts=contradicts)
    header = scenario_of(run.scenario).scenario
    if verdict == "unknown":
        return Outcome.UNKNOWN
    if header.expect == "invalid":
        return Outcome.RIGHT if names and names >= set(header.anomalies) else Outcome.MISSED
    return Outcome.RIGHT if verdict == header.expect else Outcome.FALSE_ANOMALY


def _classify_bug(name: str, verdict: str, names: set[str], *, harmful: bool, contradicts: bool) -> Outcome:
    bug = BUGS[name]
    if names - {*bug.shows, *bug.also}:
        return Outcome.FALSE_ANOMALY
    if names & {*bug.shows} or (contradicts and not bug.shows):
        return Outcome.RIGHT
    if verdict == "unknown":
        return Outcome.UNKNOWN
    return Outcome.MISSED if harmful else Outcome.RIGHT


def compared(line: Line) -> Line:
    """Return the result of a run with the outcome that follows from its verdict, if it has one."""
    if not line.verdict:
        return msgspec.structs.replace(line, outcome=Outcome.NO_VERDICT)
    outcome = classify(
        line.run, line.verdict, line.anomalies, line.reasons, fired=line.fired, harmful=line.harmful
    )
    return msgspec.structs.replace(line, outcome=outcome)


def format_line(line: Line) -> str:
    """Return one line of text about a run."""
    run = line.run
    bug = f"{run.bug} in workload {run.workload}, {line.effect}" if run.bug else "no bug"
    if line.fired:
        bug += f" (fired {line.fired}, harmful {line.harmful})"
    found = ", ".join(f"{name} {count}" for name, count in sorted(line.anomalies.items()))
    verdict = f"{line.verdict or '-'}{f' ({found})' if found else ''}"
    return (
        f"{run.number:4} seed {run.seed:6} {run.scenario:20} {run.backend:8} {bug}: {verdict}, "
        f"{line.outcome}, {line.seconds:.0f} s"
    )


def tables(lines: Sequence[Line]) -> list[str]:
    """Return two Markdown tables: the runs with a bug by bug, and those without one by expected verdict."""
    ends = (Outcome.MISSED, Outcome.FALSE_ANOMALY, Outcome.UNKNOWN, Outcome.NO_VERDICT)
    effects: tuple[Effect, ...] = ("harmful", "harm uncertain", "not fired")

    def row(name: str, chosen: Sequence[Line], shown: Sequence[Effect]) -> tuple[str, ...]:
        right = [line.effect for line in chosen if line.outcome is Outcome.RIGHT]
        counts = [right.count(effect) for effect in shown]
        counts += [sum(line.outcome is end for line in chosen) for end in ends]
        return name, str(len(chosen)), *map(str, counts)

    planted = [line for line in lines if line.run.bug]
    rows = [row(f"`{bug}`", [line for line in planted if line.run.bug == bug], effects) for bug in BUGS]
    rows.append(row("all", planted, effects))
    head = ("planted bug", "runs", "found", "harm uncertain", "not fired", *map(str, ends))
    healthy = [line for line in lines if not line.run.bug]
    kinds = {"scenarios that expect valid": SCENARIOS, "negative controls": CONTROLS}
    rest = [
        row(kind, [line for line in healthy if line.run.scenario in names], ("no bug",))
        for kind, names in kinds.items()
    ]
    rest_head = ("without a bug", "runs", "as expected", *map(str, ends))
    numbers = tuple(range(1, len(head)))
    return [
        *format_table(rows, head, right=numbers, markdown=True),
        "",
        *format_table(rest, rest_head, right=numbers, markdown=True),
    ]


def read_lines(path: Path) -> list[Line]:
    """Read the results that a campaign has so far; leave out a last line that is incomplete.

    The outcomes are computed again, so that all lines follow the same rules.
    """
    lines = []
    for number, data in enumerate(path.read_bytes().splitlines(keepends=True), 1):
        if not data.endswith(b"\n"):
            break
        try:
            lines.append(compared(msgspec.json.decode(data, type=Line)))
        except msgspec.DecodeError as error:
            raise UsageError(
                f"{path}:{number}: {error}", "another version wrote it: use another --out"
            ) from error
    return lines


def missing_runs(drawn: Sequence[Drawn], lines: Sequence[Line]) -> list[Drawn]:
    """Return the runs that have no result yet."""
    done = {line.run.number: line.run for line in lines}
    for run in drawn:
        if done.get(run.number, run) != run:
            raise UsageError(
                f"run {run.number} of the results is not the one that the seed draws",
                "resume with the same --seed and --backend, or use another --out",
            )
    return [run for run in drawn if run.number not in done]


@dataclass
class Campaign:
    """The runs of a campaign, its clusters and its results."""

    out: Path
    state: Path
    duration: float
    lock: Path | None = None
    keep_runs: bool = False
    _runs_on: dict[BackendName, int] = field(default_factory=dict)
    """Number of runs on each cluster that is up."""

    @property
    def results(self) -> Path:
        return self.out / "campaign.jsonl"

    def carry_out(self, run: Drawn) -> Line:
        """Carry out one run and return its result. The cluster stays up for the next run."""
        folder = self.out / "runs" / f"{run.number:04}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with self._locked():
            started = time.monotonic()
            for other in [backend for backend in self._runs_on if backend != run.backend]:
                self._down(other)
            if self._runs_on.get(run.backend, 0) >= RUNS_PER_CLUSTER:
                self._down(run.backend)
            code = self._attempt(run, folder)
            if code == ExitCode.REFUSED:
                # The cluster was refused before the run began, so there is no verdict yet.
                self._down(run.backend)
                code = self._attempt(run, folder)
            if code not in (ExitCode.VALID, ExitCode.ANOMALY, ExitCode.UNKNOWN, ExitCode.LIMIT):
                self._down(run.backend)
            seconds = round(time.monotonic() - started, 1)
        line = msgspec.structs.replace(result_of(run, folder), exit_code=code, seconds=seconds)
        if line.outcome is Outcome.RIGHT and not self.keep_runs:
            shutil.rmtree(folder)
            line = msgspec.structs.replace(line, directory="")
        with self.results.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
        return line

    def close(self) -> None:
        """Remove the clusters of the campaign."""
        for backend in list(self._runs_on):
            with self._locked():
                self._down(backend)

    def _attempt(self, run: Drawn, folder: Path) -> int:
        with (folder / "output.log").open("ab") as log:
            if run.backend not in self._runs_on:
                command = ["up", "--backend", run.backend, *self._state_args(run.backend)]
                self._runs_on[run.backend] = 0
                if (code := run_eos(command, log.fileno())) != 0:
                    return code
            self._runs_on[run.backend] += 1
            return run_eos(self._arguments(run, folder), log.fileno())

    def _arguments(self, run: Drawn, folder: Path) -> list[str]:
        args = ["run", run.scenario, "--seed", str(run.seed), "--backend", run.backend]
        args += [*self._state_args(run.backend), "--runs", str(folder), "--set", f"plan.steady={STEADY}"]
        if run.scenario not in CONTROLS:
            args += ["--duration", f"{max(self.duration, needed_s(run.scenario)):g}s"]
        if run.bug:
            args += ["--set", f"workload.{run.workload}.planted_bug={run.bug}"]
        return args

    def _state_args(self, backend: BackendName) -> list[str]:
        return ["--state", str(self.state / backend)]

    def _down(self, backend: BackendName) -> None:
        self._runs_on.pop(backend, None)
        with (self.out / "down.log").open("ab") as log:
            run_eos(["down", *self._state_args(backend)], log.fileno())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock file inside the block, so that other work on this machine can take turns."""
        with self.lock.open("ab") if self.lock else nullcontext() as file:
            if file is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def result_of(run: Drawn, folder: Path) -> Line:
    """Return the result of a run from its directory below `folder`."""
    directories = sorted(path.parent for path in folder.glob("*/*/run.json") if not path.parent.is_symlink())
    if not directories:
        return Line(run=run, outcome=Outcome.NO_VERDICT, directory=str(folder))
    directory = directories[-1]
    counts = read_counts(directory / "logs")
    fired, harmful = counts["fired"], counts["harmful"]
    if not (directory / "summary.json").exists():
        return Line(
            run=run, outcome=Outcome.NO_VERDICT, fired=fired, harmful=harmful, directory=str(directory)
        )
    summary = RunDirectory.open(directory).read("summary.json", Summary)
    return compared(
        Line(
            run=run,
            fired=fired,
            harmful=harmful,
            verdict=summary.verdict,
            anomalies=summary.anomalies,
            reasons=summary.reasons,
            outcome=Outcome.UNKNOWN,
            directory=str(directory),
        )
    )


def run_eos(arguments: Sequence[str], output: int) -> int:
    """Run one command of the tool. Interrupt it at its limit, and return its exit code."""
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        env=dict(os.environ),
    )
    try:
        return process.wait(RUN_LIMIT_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if isinstance(error, KeyboardInterrupt):
            raise
        return int(ExitCode.INTERRUPTED)


def backends_of(choice: str) -> list[BackendName]:
    """Return the back ends of a campaign; `auto` is both if a Docker engine answers, else `process`."""
    if choice == "auto":
        choice = "both" if engine_problem() is None else "process"
    both: list[BackendName] = ["process", "compose"]
    return both if choice == "both" else [backend for backend in both if backend == choice]


@click.command(epilog="Example:  python -m tools.campaign --runs 20 --backend process")
@click.option(
    "--runs", type=click.IntRange(1), metavar="N", default=100, show_default=True, help="Number of runs."
)
@click.option(
    "--seed", type=click.IntRange(0), metavar="N", default=1, show_default=True, help="Seed of the runs."
)
@click.option(
    "--backend",
    type=click.Choice(["auto", "process", "compose", "both"]),
    metavar="NAME",
    default="auto",
    show_default=True,
    help="auto, process, compose or both; auto is both if Docker answers.",
)
@click.option(
    "--duration",
    type=click.FloatRange(1),
    metavar="S",
    default=10.0,
    show_default=True,
    help="Time for faults in each run, in seconds.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    default=Path("runs/campaign"),
    show_default=True,
    help="Folder for results.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for the clusters' state.  [default: .eos-campaign]",
)
@click.option(
    "--lock", type=click.Path(path_type=Path), metavar="FILE", help="Hold this lock during each run."
)
@click.option(
    "--budget", callback=parse_seconds, metavar="TIME", help="Start no run after this time, such as 2h."
)
@click.option("--resume", is_flag=True, help="Keep the results in --out, and carry out the missing runs.")
@click.option("--keep-runs", is_flag=True, help="Keep the directories of runs that ended as expected.")
def main(
    *,
    runs: int,
    seed: int,
    backend: str,
    duration: float,
    out: Path,
    state: Path | None,
    lock: Path | None,
    budget: float | None,
    resume: bool,
    keep_runs: bool,
) -> None:
    """Carry out many short runs, half of them with a planted client bug, and count the false verdicts.

    The exit code is 1 if a verdict is false or missing.
    """
    try:
        drawn = draw(seed, runs, backends_of(backend))
        campaign = Campaign(
            out.resolve(), (state or state_dir("eos-campaign")).resolve(), duration, lock, keep_runs
        )
        lines = _earlier_lines(campaign.results, resume=resume)
        missing = missing_runs(drawn, lines)
    except HarnessError as error:
        raise click.UsageError(f"{error.message}\nhint: {error.hint}") from error
    campaign.out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    try:
        for run in missing:
            if budget is not None and time.monotonic() - started > budget:
                break
            lines.append(line := campaign.carry_out(run))
            _print(line)
    finally:
        campaign.close()
        text = tables(lines)
        (campaign.out / "table.md").write_text("\n".join(text) + "\n")
        click.echo("\n".join(["", *text, "", f"results: {campaign.results}"]))
    bad = sum(line.outcome in (*FALSE_VERDICTS, Outcome.NO_VERDICT) for line in lines)
    sys.exit(1 if bad else 0)


def _earlier_lines(results: Path, *, resume: bool) -> list[Line]:
    if not results.exists():
        return []
    if not resume:
        raise UsageError(f"{results} exists already", "add --resume, or name another folder: --out DIR")
    return read_lines(results)


def _print(line: Line) -> None:
    click.echo(format_line(line))
    if line.outcome is not Outcome.RIGHT:
        for reason in line.reasons[:5]:
            click.echo(f"       because {reason}")
        click.echo(f"       {line.directory}")


if __name__ == "__main__":
    main()
