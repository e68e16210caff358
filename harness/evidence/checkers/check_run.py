"""`eos check RUN`: compute the verdict of a run from its directory, without a cluster and without Java.

The files of the run are compared with its manifest first. Damage never raises an error and never causes an
anomaly: it makes the verdict unknown, and the reasons name the files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from harness.base.errors import ExitCode, HarnessError, UsageError, describe_error
from harness.base.unreadable import is_present
from harness.evidence import app_list, client_list, manifest, observation, step_report, stored_logs
from harness.evidence.app_list import AppList
from harness.evidence.checkers.consumer_reads import observation_of, reads_of
from harness.evidence.checkers.model import Anomaly, Evidence, Expect
from harness.evidence.checkers.promises import broken_promises, foreign_plans
from harness.evidence.checkers.run_figures import FILE as FIGURES
from harness.evidence.checkers.run_figures import Figures, figures_of
from harness.evidence.checkers.verdict import Judgement, Limit, judge
from harness.evidence.client_list import ClientList
from harness.evidence.history import history_files
from harness.evidence.ledger import fold
from harness.evidence.manifest import NAME, Manifest
from harness.evidence.observation import Observation
from harness.evidence.run_directory import (
    VERDICT_FILES,
    LimitSummary,
    PropertySummary,
    RunDirectory,
    RunInfo,
    Summary,
)
from harness.evidence.step_report import WalkthroughStep
from harness.evidence.stored_logs import StoredLogs

T = TypeVar("T")


def evidence_of(run: RunDirectory) -> Evidence:
    """Compute the ledger from the run's histories, and load the run's observations and expectations.

    The attribute `damage` of the result lists what is missing, changed or unreadable. If a file differs from
    the manifest, nothing is loaded: the file could contain anything.
    """
    try:
        listed = manifest.read(run)
    except manifest.MissingManifestError as error:
        return _loaded(run, [error.message])
    except HarnessError as error:
        return Evidence(fold([]), [], damage=[error.message])
    if damage := manifest.find_damage(run, listed):
        return Evidence(fold([]), [], damage=damage, files=len(listed.files))
    return _loaded(run, [], listed)


def _loaded(run: RunDirectory, damage: list[str], listed: Manifest | None = None) -> Evidence:
    """Load the evidence of a run, and add what cannot be loaded to `damage`.

    Also compare the files with one another: all belong to one run, and contain what the manifest promises.
    """

    def attempt(load: Callable[[], T], otherwise: T) -> T:
        try:
            return load()
        except HarnessError as error:
            problem = error.message
        except Exception as error:  # noqa: BLE001 - whatever unreadable files cause, the verdict is unknown
            problem = f"the evidence cannot be read: {describe_error(error)}"
        problem = problem.replace(f"{run.path}/", "")
        damage.extend([problem] if problem not in damage else [])
        return otherwise

    about = attempt(lambda: run.read("run.json", RunInfo), None)
    info = about.run if about else ""
    clients = None
    if is_present(run.path / client_list.FILE):
        clients = attempt(lambda: run.read(client_list.FILE, ClientList), None)
    known = (clients.started, clients.finished) if clients else ()
    ledger = attempt(lambda: fold(history_files(run.histories), *known), fold([]))
    no_folders: list[Path] = []
    folders = attempt(lambda: observation_folders(run), no_folders)
    loaded = [attempt(partial(observation.load, path), None) for path in folders]
    views = [view for view in loaded if view is not None]
    app = None
    if is_present(run.path / app_list.FILE):
        app = attempt(lambda: run.read(app_list.FILE, AppList), None)
    logs = None
    if is_present(run.path / stored_logs.FILE):
        logs = attempt(lambda: run.read(stored_logs.FILE, StoredLogs), None)
    owners = {
        NAME: listed.run if listed else "",
        client_list.FILE: clients.run if clients else "",
        app_list.FILE: app.run if app else "",
        stored_logs.FILE: logs.run if logs else "",
    }
    owners |= {f"history/{c.name}.jsonl": c.opening.run for c in ledger.clients if c.opening}
    owners |= {f"observations/{v.meta.witness}": v.meta.run for v in views}
    damage += [
        f"{name} belongs to run {owner}, but run.json names run {info}"
        for name, owner in owners.items()
        if owner and info and owner != info
    ]
    damage += attempt(lambda: foreign_plans(run, about), []) if about else []
    damage += attempt(lambda: broken_promises(run, listed.promised), []) if listed else []
    views += attempt(lambda: [observation_of(reads) for reads in reads_of(ledger)], [])
    expect = attempt(lambda: run.read("expect.json", Expect), Expect())
    no_steps: list[WalkthroughStep] = []
    steps = attempt(lambda: run.read(step_report.FILE, list[WalkthroughStep], no_steps), no_steps)
    files = len(listed.files) if listed else 0
    return Evidence(
        ledger, views, expect, steps, clients=clients, app=app, logs=logs, damage=damage, files=files
    )


def observation_folders(run: RunDirectory) -> list[Path]:
    """Return the folders of the run's observations; the manifest lists their files."""
    folders = [path for path in run.observations.glob("*") if path.is_dir()]
    return sorted(path for path in folders if not path.name.startswith("."))


def judge_run(run: RunDirectory) -> tuple[Evidence, Judgement]:
    """Load the evidence of a run and check it. Write nothing."""
    evidence = evidence_of(run)
    limits: list[Limit] = []
    if not evidence.damage:
        try:
            limits = run.read("limits.json", list[Limit], [])
        except UsageError as error:
            evidence.damage.append(error.message.replace(f"{run.path}/", ""))
    return evidence, judge(evidence, limits)


def check_run(path: Path, *, write: bool = False) -> tuple[ExitCode, Judgement]:
    """Check a run from its directory.

    Return the exit code, and the judgement, which is the verdict with its details. Write verdict.json,
    summary.json and figures.json only if `write` is true, or if the run has none of them although its
    evidence is intact, and its directory can be written. Raise HarnessError if `write` is true and they
    cannot be written.
    """
    run = RunDirectory.open(path)
    evidence, judgement = judge_run(run)
    # Record nothing for a run that has not finished: it may still be running.
    missing = not evidence.damage and not any(is_present(run.path / name) for name in VERDICT_FILES)
    if write or missing:
        try:
            _write(run, evidence, judgement)
        except OSError as error:
            if write:
                raise HarnessError(
                    f"the verdict {judgement.verdict} cannot be written to {run.path}: {error.strerror}",
                    "make the directory writable, or leave out --write",
                ) from error
        except UsageError:
            if write:
                raise
    return ExitCode(judgement.exit_code), judgement


def _write(run: RunDirectory, evidence: Evidence, judgement: Judgement) -> None:
    summary = summarise(run.read("run.json", RunInfo), judgement, evidence.observations)
    run.write("verdict.json", judgement.encode())
    run.write("summary.json", summary)
    run.write(FIGURES, msgspec.json.encode(compute_figures(evidence)) + b"\n")


def compute_figures(evidence: Evidence) -> Figures:
    """Return the figures of a run. They do not affect its verdict, so strange evidence raises no error."""
    try:
        return figures_of(evidence.ledger, evidence.observations)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with the evidence, the verdict stays
        return Figures(problem=describe_error(error))


def summarise(info: RunInfo, judgement: Judgement, observations: list[Observation]) -> Summary:
    """Return the contents of summary.json for a judgement."""
    results = judgement.results
    whole = [view.meta for view in observations if view.meta.complete and view.meta.purpose == "all"]
    return Summary(
        run=info.run,
        scenario=info.scenario,
        seed=info.seed,
        started=info.started,
        kafka=str(info.environment.get("kafka", "")),
        verdict=str(judgement.verdict),
        exit_code=judgement.exit_code,
        operations=judgement.operations,
        records=max((meta.records for meta in whole), default=0),
        witnesses=sorted(view.meta.witness for view in observations),
        spark_rows=_spark_rows(observations),
        spark_readers={v.meta.witness: v.meta.reading.reader for v in observations if v.meta.reading.reader},
        anomalies=_counts([anomaly for result in results for anomaly in result.anomalies]),
        permitted=_counts([anomaly for result in results for anomaly in result.permitted]),
        seen_by=_witnesses([a for result in results for a in (*result.anomalies, *result.permitted)]),
        properties={
            r.property: PropertySummary(verdict=str(r.verdict), compared=r.compared, unit=r.unit)
            for r in results
        },
        limits={
            limit.name: LimitSummary(
                measured=limit.measured,
                limit=limit.limit,
                unit=limit.unit,
                held=limit.held,
                where=limit.where,
            )
            for limit in judgement.limits
        },
        reasons=[f"{result.property}: {reason}" for result in results for reason in result.reasons],
        notes=judgement.notes,
    )


def _spark_rows(observations: list[Observation]) -> dict[Literal["stream", "batch"], int]:
    """Return the number of rows that Spark's stream and its batch job read; empty if one left nothing.

    In a run that an older version recorded, the observation `spark` does not show which of the two read it.
    """
    rows = {view.meta.witness: view.rows for view in observations}
    if not {"spark", "spark-batch"} <= rows.keys():
        return {}
    return {"stream": rows["spark"], "batch": rows["spark-batch"]}


def _witnesses(anomalies: list[Anomaly]) -> dict[str, list[str]]:
    """Return the witnesses that found each anomaly, if any witness did."""
    names: dict[str, set[str]] = {}
    for anomaly in anomalies:
        if anomaly.witnesses:
            names.setdefault(anomaly.name, set()).update(anomaly.witnesses)
    return {name: sorted(witnesses) for name, witnesses in names.items()}


def _counts(anomalies: list[Anomaly]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for anomaly in anomalies:
        # Two properties may report the same anomaly in different units, so their counts cannot be added. Keep
        # the larger count.
        counts[anomaly.name] = max(anomaly.count, counts.get(anomaly.name, 0))
    return counts


def describe(judgement: Judgement, recorded: str = "") -> str:
    """Return the judgement as text: how much was compared, and which anomalies were found.

    `recorded` is the recorded verdict, which is listed beside the new one.
    """
    lines = [f"{judgement.operations} operations"]
    lines += [f"note: {note}" for note in judgement.notes]
    for result in judgement.results:
        lines.append(f"{result.property}: {result.verdict}, compared {result.compared} {result.unit}")
        lines += [f"  permitted: {anomaly.name}, {anomaly.counted}" for anomaly in result.permitted]
        lines += [f"  because {reason}" for reason in result.reasons]
        for anomaly in result.anomalies:
            lines.append(f"  {anomaly.name}: {anomaly.counted}")
            for example in anomaly.examples:
                lines.append(f"    {example.what}")
                proof = [f"token {token}" for token in example.tokens]
                proof += [f"history/{ref.client}.jsonl:{ref.line}" for ref in example.lines]
                proof += [ref.text for ref in example.offsets]
                lines += [f"      {', '.join(proof)}"] if proof else []
            left = anomaly.count - sum(example.weight for example in anomaly.examples)
            lines += [f"    and {left} more"] if left > 0 else []
        lines += [f"  not counted: {anomaly.name}, {anomaly.counted}" for anomaly in result.not_counted]
    for limit in judgement.limits:
        held = "held" if limit.held else "breached"
        lines.append(f"limit {limit.name}: {held}, {limit.comparison}")
        lines += [f"  because {limit.breach}"] if limit.breach else []
    lines += [f"recorded verdict: {recorded}"] if recorded else []
    return "\n".join([*lines, f"verdict: {judgement.verdict}"]) + "\n"
