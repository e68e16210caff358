"""Run the systems under test of the folder apps/, and write docs/systems.md from their run directories.

    python -m tools.systems run streams            run the cases of a system with three seeds, and record them
    python -m tools.systems record CASE RUN...     record runs that were made by hand
    python -m tools.systems page                   write the page from the recorded runs

A recorded run is a line of docs/evidence/systems/runs.jsonl, and a file beside it with its plan and its
verdict. The page contains only what these files contain.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import click
import msgspec

from harness.base.errors import HarnessError, UsageError
from harness.base.events import Event, Injected, NoBite, PhaseEvent
from harness.evidence.run_directory import RunDirectory, RunInfo, Summary
from harness.faults.catalogue import fault_classes
from harness.report.timeline_data import read_events
from harness.run.resource_usage import APP_MEMORY
from tools.campaign import run_eos

ROOT: Final = Path(__file__).parents[1]
APPS: Final = ROOT / "apps"
CASES: Final = APPS / "systems.toml"
EVIDENCE: Final = ROOT / "docs" / "evidence" / "systems"
RUNS: Final = EVIDENCE / "runs.jsonl"
PAGE: Final = ROOT / "docs" / "systems.md"
SEEDS: Final = (1, 2, 3)
_READY: Final = re.compile(r"ready after ([\d.]+) s")
_MEMORY: Final = re.compile(rf"{re.escape(APP_MEMORY)} (\d+) and (\d+) MB")
_PLACES: Final = re.compile(r" --(?:runs|state) \S+| --keep")
"""Options of a replay command that name folders of the machine on which the run was made."""
_PLACEHOLDER: Final = re.compile(r"\{[a-z]+(:[^{}]*)?\}")


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One way to run a system: a scenario with changes, and how its runs must end."""

    system: str
    title: str
    scenario: str
    changes: dict[str, str] = msgspec.field(name="set", default_factory=dict)
    packages: list[str] = []
    """Parts of the names of packages that are the system; without them, the first two packages."""
    verdict: Literal["valid", "invalid"] = "valid"
    anomalies: list[str] = []
    permitted: list[str] = []

    @property
    def name(self) -> str:
        """Name on the command line, such as `streams/exactly_once_v2`."""
        return f"{self.system}/{self.title.replace(' ', '-')}"

    def missing(self, run: SystemRun) -> list[str]:
        """Return what this case demands and a run has not shown."""
        found = [] if run.verdict == self.verdict else [f"verdict {run.verdict} instead of {self.verdict}"]
        found += [f"no {name}" for name in self.anomalies if name not in run.anomalies]
        return found + [f"no permitted {name}" for name in self.permitted if name not in run.permitted]


class SystemRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A recorded run: a line of runs.jsonl."""

    case: str
    run: str
    seed: int
    started: str
    backend: str
    kafka: str
    commit: str
    versions: list[str]
    settings: dict[str, str]
    guarantee: str
    instances: int
    witnesses: list[str]
    verdict: str
    anomalies: dict[str, int]
    permitted: dict[str, int]
    reasons: list[str]
    inputs: int
    faults: dict[str, int]
    """Number of injections that took effect, by the name of the fault and its target."""
    without_effect: list[str]
    ready_s: float | None
    memory_mb: int | None
    replay: str

    @property
    def file(self) -> str:
        """Name of the file with the plan and the verdict of the run."""
        return f"{self.case.replace('/', '-')}-{self.seed}-{self.backend}-{self.run}.json"


def read_cases() -> list[Case]:
    """Return the cases of apps/systems.toml."""
    return msgspec.toml.decode(CASES.read_bytes(), type=dict[str, list[Case]])["case"]


def case_of(name: str) -> Case:
    """Return a case by its name."""
    cases = {case.name: case for case in read_cases()}
    if name not in cases:
        raise UsageError(f"there is no case {name}", f"the cases are {', '.join(cases)}")
    return cases[name]


def run_of(case: Case, directory: Path) -> tuple[SystemRun, dict[str, Any]]:
    """Return the line and the evidence of a run from its directory."""
    run = RunDirectory.open(directory)
    info, summary = run.read("run.json", RunInfo), run.read("summary.json", Summary)
    scenario, plan = run.read("scenario.json", dict[str, Any]), run.read("plan.json", dict[str, Any])
    verdict = run.read("verdict.json", dict[str, Any])
    app, events = scenario["app"], read_events(directory)
    texts = [event.detail for event in events if isinstance(event, PhaseEvent)]
    ready = [float(match[1]) for text in texts if (match := _READY.search(text))]
    memory = [int(match[2]) for text in texts if (match := _MEMORY.search(text))]
    packages = info.environment.get("app_packages") or []
    line = SystemRun(
        case=case.name,
        run=info.run,
        seed=info.seed,
        started=info.started,
        backend=str(info.environment["backend"]),
        kafka=str(info.environment["kafka"]),
        commit=str(info.environment["git"]),
        versions=_versions(case, packages) or _own_versions(app, info.environment),
        settings={name: text for name, text in app["env"].items() if not _PLACEHOLDER.search(text)},
        guarantee=app.get("guarantee", "exactly once"),
        instances=app.get("instances", 1),
        witnesses=scenario["verify"]["witnesses"],
        verdict=summary.verdict,
        anomalies=summary.anomalies,
        permitted=summary.permitted,
        reasons=summary.reasons,
        inputs=summary.properties["contract"].compared,
        faults=_injected(plan, events),
        without_effect=sorted({event.fault for event in events if isinstance(event, NoBite)}),
        ready_s=ready[0] if ready else None,
        memory_mb=memory[-1] if memory else None,
        replay=_PLACES.sub("", info.replay).replace(f"{ROOT}/", ""),
    )
    scenario["app"]["directory"] = str(Path(case.scenario).parent)
    identity = msgspec.to_builtins(info) | {"replay": line.replay}
    return line, {"run": identity, "plan": plan, "scenario": scenario, "verdict": verdict}


def _injected(plan: dict[str, Any], events: list[Event]) -> dict[str, int]:
    """Return the number of injections that took effect, by the fault, its target and its parameters.

    Injections of one fault are those of the plan, in its order.
    """
    planned: dict[str, list[str]] = {}
    for entry in (step["entry"] for step in [*plan["throughout"], *plan["steps"]]):
        parameters = [f"{name}={value}" for name, value in entry["parameters"].items()]
        planned.setdefault(entry["fault"], []).append(" ".join([entry["target"], *parameters]))
    counts: Counter[str] = Counter()
    for event in events:
        if isinstance(event, Injected | NoBite):
            text = f"{event.fault} {planned[event.fault].pop(0)}"
            counts[text] += isinstance(event, Injected)
    return {text: count for text, count in sorted(counts.items()) if count}


def _versions(case: Case, packages: list[str]) -> list[str]:
    """Return the packages that are the system under test."""
    named = [each for part in case.packages for each in packages if part in each]
    return named or packages[:2]


def _own_versions(app: dict[str, Any], environment: dict[str, Any]) -> list[str]:
    """Return the version of a system that the harness itself has: Spark, or Kafka's tools."""
    jars = [text for text in [*app["command"], *app["env"].values()] if "{jars:" in text]
    if any("{jars:spark}" in text for text in jars):
        return [f"pyspark:{environment['pyspark']}"]
    return [f"org.apache.kafka:kafka-tools:{environment['kafka']}"] if jars else []


def record(case: Case, directory: Path) -> SystemRun:
    """Add a run to the recorded ones; a run that is recorded already is replaced."""
    line, evidence = run_of(case, directory)
    EVIDENCE.mkdir(parents=True, exist_ok=True)
    kept = [each for each in recorded() if each.run != line.run]
    RUNS.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in [*kept, line]))
    (EVIDENCE / line.file).write_bytes(msgspec.json.format(msgspec.json.encode(evidence)) + b"\n")
    return line


def recorded() -> list[SystemRun]:
    """Return the recorded runs, the oldest first."""
    lines = RUNS.read_bytes().splitlines() if RUNS.exists() else []
    return [msgspec.json.decode(line, type=SystemRun) for line in lines]


def page_text() -> str:
    """Return the text of docs/systems.md."""
    runs, cases = recorded(), read_cases()
    lines = [
        "# Systems under test",
        "",
        "For readers who want to know how systems that promise exactly-once behave under the faults of this",
        "harness. `python -m tools.systems page` writes this page from recorded runs, and",
        "[apps/systems.toml](../apps/systems.toml) lists the cases.",
        "",
        "    make systems        # all cases with three seeds each, then this page",
        "",
        "A run is *valid* if nothing was found in it. That is no proof that nothing can happen.",
        "",
    ]
    for system in dict.fromkeys(case.system for case in cases):
        own = [case for case in cases if case.system == system]
        lines += _system(system, own, [run for run in runs if run.case in {case.name for case in own}])
    return "\n".join(lines).rstrip() + "\n"


def _system(system: str, cases: list[Case], runs: list[SystemRun]) -> Iterator[str]:
    title = (APPS / system / "README.md").read_text().partition("\n")[0].lstrip("# ")
    yield from (f"## {title}", "", f"[apps/{system}](../apps/{system}/README.md)", "")
    if versions := list(dict.fromkeys(version for run in runs for version in run.versions)):
        kafka = ", ".join(dict.fromkeys(run.kafka for run in runs))
        yield from (f"Versions: {', '.join(f'`{version}`' for version in versions)}; brokers {kafka}.", "")
    yield "| case | settings | seed | back end | inputs | witnesses | faults with effect | verdict | run |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for case in cases:
        own = sorted((run for run in runs if run.case == case.name), key=lambda run: (run.seed, run.started))
        yield from (_row(case, run) for run in own)
        if not own:
            yield f"| {case.title} |  |  |  |  |  | no run recorded |  |  |"
    yield ""
    yield from _cost(runs)
    yield from _untested(cases, runs)


def _row(case: Case, run: SystemRun) -> str:
    settings = [f"`{name}={text}`" for name, text in run.settings.items()]
    settings += [f"promises {run.guarantee}"] if run.guarantee != "exactly once" else []
    settings.append(f"{run.instances} instances" if run.instances > 1 else "1 instance")
    faults = [f"{count} x {name}" for name, count in run.faults.items()]
    faults += [f"{name} without effect" for name in run.without_effect]
    found = [f"{name} {count}" for name, count in run.anomalies.items()]
    found += [f"{name} {count} (permitted)" for name, count in run.permitted.items()]
    verdict = f"**{run.verdict}**" + (f": {', '.join(found)}" if found else "")
    if missing := case.missing(run):
        verdict += f" (expected otherwise: {', '.join(missing)})"
    cells = [case.title, ", ".join(settings), str(run.seed), run.backend, str(run.inputs)]
    cells += [
        ", ".join(run.witnesses),
        ", ".join(faults) or "none",
        verdict,
        f"[{run.run}](evidence/systems/{run.file})",
    ]
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _cost(runs: list[SystemRun]) -> Iterator[str]:
    ready = sorted(run.ready_s for run in runs if run.ready_s is not None)
    memory = sorted(run.memory_mb for run in runs if run.memory_mb is not None)
    if ready and memory:
        yield (
            f"Ready after {ready[0]:g} to {ready[-1]:g} s. The largest instance had {memory[0]} to "
            f"{memory[-1]} MB of memory at the end of the runs."
        )
        yield ""


def _untested(cases: list[Case], runs: list[SystemRun]) -> Iterator[str]:
    """Yield what the recorded runs of a system do not show."""
    faults = {name.partition(" ")[0] for run in runs for name in run.faults}
    missing = [f"`{name}`" for name in sorted(fault_classes()) if name not in faults]
    backends = [name for name in ("compose", "process") if name not in {run.backend for run in runs}]
    few = [case.title for case in cases if len({r.seed for r in runs if r.case == case.name}) < len(SEEDS)]
    yield "Not tested:"
    yield ""
    yield f"- faults without an injection in these runs: {', '.join(missing) or 'none'}"
    if backends:
        yield f"- back end without a run: {', '.join(backends)}"
    if few:
        yield f"- cases with fewer than three seeds: {', '.join(few)}"
    yield "- other versions of the system and of Kafka, and other settings than those named above"
    yield ""


def make_runs(
    case: Case, seeds: Sequence[int], options: Sequence[str], more: Sequence[str], folder: Path
) -> Iterator[SystemRun]:
    """Run a case with each seed, with these options of `eos run` and further changes. Record each run."""
    for seed in seeds:
        place = folder / case.name / str(seed)
        texts = [*(f"{key}={text}" for key, text in case.changes.items()), *more]
        changes = [part for text in texts for part in ("--set", text)]
        args = [
            "run",
            str((APPS / case.scenario).resolve()),
            "--seed",
            str(seed),
            "--runs",
            str(place),
            *changes,
        ]
        place.mkdir(parents=True, exist_ok=True)
        with (place / "output.log").open("ab") as log:
            run_eos([*args, *options, "--keep"], log.fileno())
        directories = sorted(
            path.parent for path in place.glob("*/*/verdict.json") if not path.parent.is_symlink()
        )
        if not directories:
            raise HarnessError(f"no run of {case.name} has a verdict", f"look at {place / 'output.log'}")
        yield record(case, directories[-1])


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run the systems of the folder apps/, and write docs/systems.md from recorded runs."""


@main.command("run")
@click.argument("names", nargs=-1, metavar="[SYSTEM | CASE]...")
@click.option("--seed", "seeds", type=int, multiple=True, default=SEEDS, show_default=True)
@click.option("--backend", default="auto", show_default=True)
@click.option("--state", default=str(ROOT / ".eos-systems"), show_default=True)
@click.option("--runs", "folder", type=click.Path(path_type=Path), default=ROOT / "runs" / "systems")
@click.option("--set", "more", multiple=True, metavar="KEY=VALUE", help="Change a key of the scenarios.")
def run_cases(
    names: Sequence[str], seeds: Sequence[int], *, backend: str, state: str, folder: Path, more: Sequence[str]
) -> None:
    """Run these systems or cases, by default all, with each seed. Record the runs, and write the page."""
    options = ["--backend", backend, "--state", state]
    cases = read_cases()
    known = {case.system for case in cases} | {case.name for case in cases}
    if unknown := [name for name in names if name not in known]:
        raise click.UsageError(f"{unknown[0]} is no system and no case; they are {', '.join(sorted(known))}")
    bad = 0
    for case in cases:
        if names and case.name not in names and case.system not in names:
            continue
        for line in make_runs(case, seeds, options, more, folder):
            missing = case.missing(line)
            bad += bool(missing)
            click.echo(f"{case.name} seed {line.seed}: {line.verdict} {'; '.join(missing)}".rstrip())
            PAGE.write_text(page_text())
    run_eos(["down", "--state", state], sys.stdout.fileno())
    sys.exit(bool(bad))


@main.command("record")
@click.argument("case")
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path, exists=True), required=True)
def record_runs(case: str, directories: Sequence[Path]) -> None:
    """Record runs of a case from their run directories, and write the page."""
    for directory in directories:
        line = record(case_of(case), directory.resolve())
        click.echo(
            f"{line.case} seed {line.seed}: {line.verdict} {'; '.join(case_of(case).missing(line))}".rstrip()
        )
    PAGE.write_text(page_text())


@main.command("page")
def write_page() -> None:
    """Write docs/systems.md from the recorded runs."""
    PAGE.write_text(page_text())


if __name__ == "__main__":
    try:
        main()
    except HarnessError as error:
        sys.exit(f"error: {error.message}\nhint: {error.hint}")
