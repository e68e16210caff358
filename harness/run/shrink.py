"""Search for a smaller scenario that still breaks: fewer faults, fewer clients, less time.

A scenario breaks if its run has an anomaly of the original run. A seed does not replay the timing, so each
candidate is run several times before it is rejected. The result is run a few times more, to count how often
it breaks. The search is greedy. It tries the largest reductions first, takes the first one that still breaks,
and continues from the reduced scenario.
"""

from __future__ import annotations

import fnmatch
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import TIMEOUT_MAX, Timer
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from harness.base.errors import ExitCode, HarnessError, UsageError
from harness.base.units import Duration, Span
from harness.base.unreadable import readable
from harness.cluster.cluster import Cluster
from harness.evidence.run_directory import RunDirectory, RunInfo, Summary, write_atomic
from harness.faults.heal import heal
from harness.run.factory import make_run
from harness.run.run_names import Names, rename_plan, rename_scenario
from harness.scenario import FaultEntry, Scenario
from harness.scenario.headline import Header, PlanRules
from harness.scenario.model import Workload
from harness.scenario.plan import Plan, PlannedFault, draw, format_replay_command
from harness.scenario.toml_writer import text_of

NAME: Final = "shrunk.toml"
SUFFIX: Final = "-shrunk"
LEAST_FAULT_S: Final = 1.0
LEAST_FAULTS_S: Final = 4.0
LEAST_STEADY_S: Final = 1.0
AFTER_LAST_S: Final = 1.0
"""The fault phase continues for this many seconds after the last fault is healed."""

Log = Callable[[str], None]
T = TypeVar("T")


class SearchLimits(NamedTuple):
    """Limits of the time and the number of runs of a search."""

    budget: float
    """Seconds for the search. The repeated runs of the result are not included."""
    tries: int
    """Maximum number of runs of a candidate. If none of these runs breaks, the candidate is rejected."""
    repeats: int
    """Number of runs of the result, to count how often it breaks."""
    most_runs: int | None = None
    """Maximum number of runs of all candidates together. With None, only the budget limits them."""


@dataclass(frozen=True)
class Failed:
    """An invalid run that is to be shrunk.

    In `scenario`, the injections of the run's plan replace the faults of the original scenario.
    """

    directory: Path
    scenario: Scenario
    seed: int
    anomalies: frozenset[str]


def failed_run(directory: Path) -> Failed:
    """Read an invalid run from its directory. Raise UsageError if the run cannot be shrunk.

    A run can be shrunk if its verdict was invalid and it was no walkthrough.
    """
    run = RunDirectory.open(directory)
    info, summary = run.read("run.json", RunInfo), run.read("summary.json", Summary)
    if summary.verdict != "invalid":
        raise UsageError(f"the run of {directory} was {summary.verdict}", "name a run that was invalid")
    names = run.read("names.json", Names, Names("", info.run))
    scenario = rename_scenario(_stored(run, "scenario.json", Scenario), names.unscoped)
    if scenario.walkthrough is not None:
        raise UsageError(f"{info.scenario} is a walkthrough", "its steps belong together: name another run")
    if scenario.app is not None and scenario.app.running:
        raise UsageError(
            f"the application of {info.scenario} was not started by the harness",
            "each run needs topics that no run has used: let the harness start the application",
        )
    plan = rename_plan(_stored(run, "plan.json", Plan), names.unscoped)
    anomalies = frozenset(summary.anomalies)
    return Failed(directory.resolve(), _with_plan(scenario, plan, sorted(anomalies)), info.seed, anomalies)


def _stored(run: RunDirectory, name: str, kind: type[T]) -> T:
    """Read a scenario or a plan from a run directory.

    In run directories of earlier versions of the harness, the names contain the run id. The caller removes
    it.
    """

    def parsed(kind: type[Any], value: Any) -> object:
        if isinstance(value, str) and hasattr(kind, "parse"):
            return kind.parse(value)
        return kind(*value) if issubclass(kind, Span) else kind(value)

    with readable(run.path / name):
        return msgspec.json.decode((run.path / name).read_bytes(), type=kind, dec_hook=parsed)


def _is_readable(workloads: list[Workload]) -> bool:
    """Return whether every topic that a reader or a pipeline reads is written by another workload."""
    written = {workload.topic for workload in workloads if workload.kind != "reader"}
    read = {workload.topic if workload.kind == "reader" else workload.source for workload in workloads}
    return read - {""} <= written


def _with_plan(scenario: Scenario, plan: Plan, anomalies: list[str]) -> Scenario:
    """Return the scenario with the plan's injections as its faults.

    Their times, targets and durations are fixed.
    """
    return msgspec.structs.replace(
        scenario,
        scenario=msgspec.structs.replace(scenario.scenario, expect="invalid", anomalies=anomalies),
        plan=msgspec.structs.replace(scenario.plan, duration=Duration(plan.duration)),
        fault=[*(each.entry for each in plan.throughout), *map(_fixed_entry, plan.steps)],
    )


def _fixed_entry(step: PlannedFault) -> FaultEntry:
    return msgspec.structs.replace(
        step.entry,
        at=Duration(step.at),
        lasts=Span(step.lasts, step.lasts),
        target=step.entry.target.drawn(step.seed),
    )


def search(scenario: Scenario, breaks: Callable[[Scenario], bool], over: Callable[[], bool]) -> Scenario:
    """Return the smallest scenario whose run still has an anomaly of the original run.

    The search ends when no smaller candidate breaks, or when `over` returns True because the time or the
    number of runs is used up.
    """
    known: set[bytes] = set()
    smallest, cut = scenario, True
    while cut:
        cut = False
        for candidate in smaller(smallest):
            key = _key(candidate, smallest)
            if key in known:
                continue
            if over():
                return smallest
            known.add(key)
            if breaks(candidate):
                smallest, cut = candidate, True
                break
    return smallest


def _key(candidate: Scenario, smallest: Scenario) -> bytes:
    """Return the key under which the search remembers that it has tried a candidate.

    The search does not try two candidates with the same key. If a candidate has other faults or workloads
    than the smallest scenario, its key does not include the table [plan]. The search then does not try the
    same faults and workloads again only because a phase has become shorter.
    """
    parts = (smallest.fault, smallest.workload, smallest.app)
    if (candidate.fault, candidate.workload, candidate.app) != parts:
        candidate = msgspec.structs.replace(candidate, plan=PlanRules())
    return msgspec.json.encode(candidate, enc_hook=str)


def smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield every scenario that is smaller by one reduction, the largest reductions first.

    One reduction removes faults, a workload, or some clients or instances, or it shortens a fault or a phase.
    """
    replace = msgspec.structs.replace
    for fault in _parts(scenario.fault):
        yield _fitted(replace(scenario, fault=fault))
    for index in range(len(scenario.workload)):
        left = [*scenario.workload[:index], *scenario.workload[index + 1 :]]
        if left and _is_readable(left):
            yield replace(scenario, workload=left)
    for index, workload in enumerate(scenario.workload):
        for clients in sorted({1, workload.clients // 2} - {0, workload.clients}):
            changed = replace(workload, clients=clients)
            yield replace(
                scenario, workload=[*scenario.workload[:index], changed, *scenario.workload[index + 1 :]]
            )
    yield from _fewer_instances(scenario)
    for index, entry in enumerate(scenario.fault):
        if not entry.throughout and entry.lasts[0] / 2 >= LEAST_FAULT_S:
            half = round(entry.lasts[0] / 2, 1)
            changed_fault = replace(entry, lasts=Span(half, half))
            fault = [*scenario.fault[:index], changed_fault, *scenario.fault[index + 1 :]]
            yield _fitted(replace(scenario, fault=fault))
    yield from _shorter(scenario)


def _fewer_instances(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario with fewer instances of its application, as far as its faults have targets then."""
    app = scenario.app
    if app is None:
        return
    for instances in sorted({1, app.instances // 2} - {0, app.instances}):
        changed = msgspec.structs.replace(app, instances=instances)
        patterns = [entry.target.app for entry in scenario.fault if entry.target.app is not None]
        if all(fnmatch.filter(changed.names, pattern) for pattern in patterns):
            yield msgspec.structs.replace(scenario, app=changed)


def _shorter(scenario: Scenario) -> Iterator[Scenario]:
    replace = msgspec.structs.replace
    plan = scenario.plan
    if all(entry.throughout for entry in scenario.fault) and plan.duration / 2 >= LEAST_FAULTS_S:
        yield replace(scenario, plan=replace(plan, duration=Duration(round(plan.duration / 2, 1))))
    first = min((entry.at for entry in scenario.fault if entry.at is not None), default=0.0)
    if first >= 2 * LEAST_FAULT_S:
        # Inject all faults earlier, so that the first one starts after one second.
        earlier = [
            entry if entry.at is None else replace(entry, at=Duration(round(entry.at - first + 1.0, 1)))
            for entry in scenario.fault
        ]
        yield _fitted(replace(scenario, fault=earlier))
    if plan.steady > LEAST_STEADY_S:
        yield replace(scenario, plan=replace(plan, steady=Duration(LEAST_STEADY_S)))


def _fitted(scenario: Scenario) -> Scenario:
    """Return the scenario with a fault phase that ends soon after its last fault."""
    ends = [entry.at + entry.lasts[0] for entry in scenario.fault if entry.at is not None]
    if not ends:
        return scenario
    duration = min(float(scenario.plan.duration), max(LEAST_FAULTS_S, round(max(ends) + AFTER_LAST_S, 1)))
    return msgspec.structs.replace(
        scenario, plan=msgspec.structs.replace(scenario.plan, duration=Duration(duration))
    )


def _parts(faults: list[FaultEntry]) -> Iterator[list[FaultEntry]]:
    """Yield shorter lists of faults: the empty list, each half, and each list that lacks one fault."""
    if not faults:
        return
    yield []
    half = len(faults) // 2
    if half:
        yield faults[:half]
        yield faults[half:]
    if len(faults) > 2:
        for index in range(len(faults)):
            yield [*faults[:index], *faults[index + 1 :]]


class CandidateRuns:
    """Runner of candidate scenarios on one cluster; it logs one line for each run."""

    def __init__(
        self,
        cluster: Cluster,
        failed: Failed,
        log: Log,
        limits: SearchLimits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._failed = failed
        self._log = log
        self._limits = limits
        self._clock = clock
        self._end = clock() + limits.budget
        self.runs = 0

    def over(self) -> bool:
        """Return whether the search must end, because its time or its number of runs is used up."""
        most = self._limits.most_runs
        return self._clock() >= self._end or (most is not None and self.runs >= most)

    def breaks(self, scenario: Scenario) -> bool:
        """Run a scenario up to `tries` times; return whether a run had an anomaly of the failed run."""
        misses = 0
        while misses < self._limits.tries and not self.over():
            if hit := self.run_once(scenario, self._end - self._clock()):
                # Write the smallest scenario to its file at once, so that it is kept if the search is
                # interrupted.
                self.write(scenario, [hit, *(frozenset[str]() for _ in range(misses))])
                return True
            misses += 1
        return False

    def run_once(self, scenario: Scenario, limit: float = math.inf) -> frozenset[str]:
        """Run a candidate and stop it after `limit` seconds.

        Return the anomalies that it shares with the failed run.
        """
        started = time.monotonic()
        self.runs += 1
        heal(self._cluster, self._log)
        plan = draw(scenario, self._failed.seed + self.runs)
        root = self._failed.directory / "shrink"
        root.mkdir(exist_ok=True)
        file = root / f"candidate-{self.runs}.toml"
        write_atomic(file, text_of(scenario).encode())
        command = format_replay_command(str(file), plan.seed)
        run = make_run(self._cluster, scenario, plan, root, replay_command=command)
        timer = Timer(min(limit, TIMEOUT_MAX), run.stop, ["the budget is used up"])
        timer.start()
        try:
            outcome = run.execute()
        finally:
            timer.cancel()
        if outcome.exit_code is ExitCode.INTERRUPTED:
            raise KeyboardInterrupt  # the run itself handled Ctrl-C, but the user wants to end the search
        names = sorted(set(outcome.judgement.names()))
        verdict = " ".join([str(outcome.judgement.verdict), *names])
        self._log(f"  {size_of(scenario)}: {verdict}   ({time.monotonic() - started:.0f} s)")
        return self._failed.anomalies & frozenset(names)

    def write(self, scenario: Scenario, hits: list[frozenset[str]]) -> Path:
        """Write the smallest scenario so far to its file. The file states how many of its runs broke.

        `hits` has one set for each of these runs: the anomalies that the run shares with the failed run. The
        file expects the anomalies that occurred in every run that broke. If no anomaly occurred in all of
        them, the file expects all anomalies of the failed run.
        """
        broke = [hit for hit in hits if hit]
        always = frozenset.intersection(*broke) if broke else frozenset()
        name = self._failed.scenario.name.removesuffix(SUFFIX)
        shows = f"Shrunk {name}, seed {self._failed.seed}: it broke in {len(broke)} of {len(hits)} runs."
        header = Header(
            name=f"{name}{SUFFIX}",
            shows=shows,
            expect="invalid",
            anomalies=sorted(always or self._failed.anomalies),
        )
        file = self._failed.directory / NAME
        write_atomic(file, text_of(msgspec.structs.replace(scenario, scenario=header)).encode())
        return file


def shrink(cluster: Cluster, failed: Failed, limits: SearchLimits, log: Log) -> Path:
    """Search for a smaller scenario that has an anomaly of the failed run.

    Return the file with the result.
    """
    anomalies = ", ".join(sorted(failed.anomalies))
    log(f"{size_of(failed.scenario)} broke with {anomalies}; searching for a smaller scenario")
    for entry in failed.scenario.fault:
        cluster.require(entry.capability)
    candidates = CandidateRuns(cluster, failed, log, limits)
    smallest = search(failed.scenario, candidates.breaks, candidates.over)
    log(f"{size_of(smallest)} after {candidates.runs} runs; running it {limits.repeats} times more")
    hits = [candidates.run_once(smallest) for _ in range(limits.repeats)]
    broke = sum(map(bool, hits))
    log(f"broke in {broke} of {limits.repeats} runs")
    file = candidates.write(smallest, hits)
    if not broke:
        raise HarnessError(
            f"{file} did not break again in any of {limits.repeats} runs: it shows nothing",
            "a seed does not replay the timing: search again with more --tries and --repeats",
        )
    return file


def size_of(scenario: Scenario) -> str:
    """Describe the size of a scenario: numbers of faults and of clients or instances, and its seconds."""
    clients = f"{sum(workload.clients for workload in scenario.workload)} clients"
    if scenario.app is not None:
        clients = f"{scenario.app.instances} instances"
    seconds = scenario.plan.steady + scenario.plan.duration
    return f"{len(scenario.fault)} faults, {clients}, {seconds:g} s"
