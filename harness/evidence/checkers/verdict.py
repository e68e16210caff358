"""The verdict: every property's result, worst wins; limits are judged apart from safety.

A checker that crashes is unknown, never valid. The same evidence gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from harness.base.errors import ExitCode, describe_error
from harness.evidence.bit_words import EXAMPLES
from harness.evidence.checkers import (
    aggregates,
    atomicity,
    coverage,
    exactly_once,
    fencing,
    liveness,
    offsets,
    order,
    pipeline_outputs,
    step_coverage,
)
from harness.evidence.checkers.model import SEVERITY, Evidence, Result, Verdict, worst

FORMAT: Final = 1

Checker = Callable[[Evidence], Result]

CHECKERS: Final[dict[str, Checker]] = {
    "exactly_once": exactly_once.check,
    "atomicity": atomicity.check,
    "order": order.check,
    "offsets": offsets.check,
    "pipeline": pipeline_outputs.check,
    "aggregates": aggregates.check,
    "fencing": fencing.check,
    "liveness": liveness.check,
    "walkthrough": step_coverage.check,
    "coverage": coverage.check,
}


class Limit(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A bound on how well a run went: it never touches safety."""

    name: str
    measured: float
    limit: float
    unit: str

    @property
    def held(self) -> bool:
        """Whether what was measured lies within the limit."""
        return self.measured <= self.limit


class Judgement(msgspec.Struct, kw_only=True):
    """The verdict on a run with everything it rests on."""

    format: int = FORMAT
    verdict: Verdict
    exit_code: int
    operations: int
    results: list[Result]
    limits: list[Limit] = []
    breached: list[str] = []
    notes: list[str] = []

    def encode(self) -> bytes:
        """Return the judgement as JSON text: the same bytes for the same evidence."""
        return msgspec.json.format(msgspec.json.encode(self)) + b"\n"

    def names(self) -> list[str]:
        """Return the names of the anomalies that were found."""
        return [anomaly.name for result in self.results for anomaly in result.anomalies]


def properties_of(evidence: Evidence) -> list[str]:
    """Return which properties to check: what the run promised, or what its clients give rise to."""
    if evidence.expect.properties:
        return [name for name in CHECKERS if name in evidence.expect.properties]
    ids = [one.producer.transactional_id for one in evidence.ledger.producers.values()]
    known = [one for one in ids if one is not None]
    wanted = {"exactly_once", "order", "offsets", "liveness", "coverage"}
    wanted |= {"atomicity"} if known else set()
    wanted |= {"pipeline"} if evidence.expect.pipeline else set()
    wanted |= {"aggregates"} if evidence.expect.pipeline and evidence.expect.pipeline.changelog else set()
    wanted |= {"walkthrough"} if evidence.expect.walkthrough_steps else set()
    raw = any(one.meta.epochs.compared for one in evidence.observations)
    wanted |= {"fencing"} if raw or len(set(known)) < len(known) else set()
    return [name for name in CHECKERS if name in wanted]


def judge(evidence: Evidence, limits: list[Limit] | None = None) -> Judgement:
    """Run the checkers and merge their results."""
    results = [_run(name, CHECKERS[name], evidence) for name in properties_of(evidence)]
    missing = [name for name in evidence.expect.properties if name not in CHECKERS]
    results += [_unknown(name, "there is no such checker") for name in missing]
    verdict = worst([result.verdict for result in results])
    limits = limits or []
    breached = [limit.name for limit in limits if not limit.held]
    return Judgement(
        verdict=verdict,
        exit_code=_exit_code(verdict, bool(breached)),
        operations=evidence.ledger.operations,
        results=results,
        limits=limits,
        breached=breached,
        notes=_notes(evidence),
    )


def _run(name: str, checker: Checker, evidence: Evidence) -> Result:
    try:
        result = checker(evidence)
        return held_to_exactly_once(result) if evidence.expect.hold_to == "exactly_once" else result
    except Exception as error:  # noqa: BLE001 - whatever a checker dies of, its verdict is unknown and says why
        return _unknown(name, f"the checker crashed: {describe_error(error)}")


def held_to_exactly_once(result: Result) -> Result:
    """Return the result with what Kafka permits for these settings counted as anomalies, and said so."""
    if not result.permitted:
        return result
    merged = {(anomaly.name, anomaly.unit): anomaly for anomaly in result.anomalies}
    for one in result.permitted:
        forbidden = merged.get((one.name, one.unit))
        merged[one.name, one.unit] = (
            one
            if forbidden is None
            else msgspec.structs.replace(
                forbidden,
                count=forbidden.count + one.count,
                examples=[*forbidden.examples, *one.examples][:EXAMPLES],
            )
        )
    names = ", ".join(sorted({one.name for one in result.permitted}))
    return msgspec.structs.replace(
        result,
        verdict=Verdict.INVALID,
        anomalies=sorted(merged.values(), key=lambda one: SEVERITY[one.name]),
        permitted=[],
        reasons=[
            *result.reasons,
            f"{names}: these settings promise no better, and the run holds them to exactly-once",
        ],
    )


def _unknown(name: str, reason: str) -> Result:
    return Result(property=name, verdict=Verdict.UNKNOWN, compared=0, unit="things", reasons=[reason])


def _exit_code(verdict: Verdict, breached: bool) -> int:
    if verdict is Verdict.VALID:
        return int(ExitCode.LIMIT if breached else ExitCode.VALID)
    return int(ExitCode.ANOMALY if verdict is Verdict.INVALID else ExitCode.UNKNOWN)


def _notes(evidence: Evidence) -> list[str]:
    clients = evidence.ledger.clients
    torn = [f"{c.name}: the last line is torn, and was left out" for c in clients if c.torn]
    killed = [
        f"{c.name}: the history has no closing line: its process was killed" for c in clients if not c.closing
    ]
    return torn + killed
