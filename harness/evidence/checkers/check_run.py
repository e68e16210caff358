"""`eos check RUN`: compute the verdict of a run from its directory, without a cluster and without Java."""

from __future__ import annotations

from pathlib import Path

from harness.base.errors import ExitCode
from harness.evidence import observation, step_report
from harness.evidence.checkers.consumer_reads import observation_of, reads_of
from harness.evidence.checkers.model import Anomaly, Evidence, Expect
from harness.evidence.checkers.verdict import Judgement, Limit, judge
from harness.evidence.history import history_files
from harness.evidence.ledger import fold
from harness.evidence.observation import Observation
from harness.evidence.run_directory import LimitSummary, PropertySummary, RunDirectory, RunInfo, Summary
from harness.evidence.step_report import WalkthroughStep


def evidence_of(run: RunDirectory) -> Evidence:
    """Compute the ledger from the run's histories, and load the run's observations and expectations."""
    ledger = fold(history_files(run.histories))
    witnesses = sorted(path for path in run.observations.glob("*") if path.is_dir())
    observations = [observation.load(path) for path in witnesses]
    observations += [observation_of(reads) for reads in reads_of(ledger)]
    expect = run.read("expect.json", Expect, Expect())
    return Evidence(ledger, observations, expect, run.read(step_report.FILE, list[WalkthroughStep], []))


def check_run(path: Path) -> tuple[ExitCode, Judgement]:
    """Check a run from its directory, and write verdict.json and summary.json.

    Return the exit code, and the judgement, which is the verdict with its details.
    """
    run = RunDirectory.open(path)
    info = run.read("run.json", RunInfo)
    evidence = evidence_of(run)
    judgement = judge(evidence, run.read("limits.json", list[Limit], []))
    run.write("verdict.json", judgement.encode())
    run.write("summary.json", summarise(info, judgement, evidence.observations))
    return ExitCode(judgement.exit_code), judgement


def summarise(info: RunInfo, judgement: Judgement, observations: list[Observation]) -> Summary:
    """Return the contents of summary.json for a judgement."""
    results = judgement.results
    whole = [view.meta for view in observations if view.meta.complete and view.meta.purpose == "all"]
    return Summary(
        run=info.run,
        scenario=info.scenario,
        seed=info.seed,
        started=info.started,
        verdict=str(judgement.verdict),
        exit_code=judgement.exit_code,
        operations=judgement.operations,
        records=max((meta.records for meta in whole), default=0),
        witnesses=sorted(view.meta.witness for view in observations),
        anomalies=_counts([anomaly for result in results for anomaly in result.anomalies]),
        permitted=_counts([anomaly for result in results for anomaly in result.permitted]),
        properties={
            r.property: PropertySummary(verdict=str(r.verdict), compared=r.compared, unit=r.unit)
            for r in results
        },
        limits={
            limit.name: LimitSummary(
                measured=limit.measured, limit=limit.limit, unit=limit.unit, held=limit.held
            )
            for limit in judgement.limits
        },
        reasons=[f"{result.property}: {reason}" for result in results for reason in result.reasons],
        notes=judgement.notes,
    )


def _counts(anomalies: list[Anomaly]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for anomaly in anomalies:
        # Two properties may report the same anomaly in different units, so their counts cannot be added. Keep
        # the larger count.
        counts[anomaly.name] = max(anomaly.count, counts.get(anomaly.name, 0))
    return counts


def describe(judgement: Judgement) -> str:
    """Return the judgement as text: how much was compared, and which anomalies were found."""
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
                proof = [f"history/{ref.client}.jsonl:{ref.line}" for ref in example.lines]
                proof += [
                    f"{ref.topic}-{ref.partition} offsets {ref.first}-{ref.last}" for ref in example.offsets
                ]
                lines += [f"      {', '.join(proof)}"] if proof else []
            left = anomaly.count - sum(example.weight for example in anomaly.examples)
            lines += [f"    and {left} more"] if left > 0 else []
    for limit in judgement.limits:
        held = "held" if limit.held else "breached"
        lines.append(f"limit {limit.name}: {held}, {limit.measured:g} of {limit.limit:g} {limit.unit}")
    return "\n".join([*lines, f"verdict: {judgement.verdict}"]) + "\n"
