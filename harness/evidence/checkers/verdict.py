"""The verdict: the worst result of all properties. Performance limits do not change it.

If a checker crashes, its result is unknown, never valid. The same evidence always gives the same verdict
file, byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from harness.base.errors import ExitCode, describe_error
from harness.evidence.bit_words import EXAMPLES
from harness.evidence.checkers import (
    aggregates,
    app_outputs,
    app_transactions,
    atomicity,
    audit_findings,
    consumers,
    coverage,
    exactly_once,
    fencing,
    liveness,
    log_ends,
    offsets,
    order,
    pipeline_outputs,
    second_opinion,
    starvation,
    step_coverage,
)
from harness.evidence.checkers.app_statements import single_witnesses
from harness.evidence.checkers.contract_coverage import not_checked
from harness.evidence.checkers.model import SEVERITY, Evidence, Result, Verdict, nothing_compared, worst
from harness.evidence.checkers.reading_lag import reading_lags
from harness.evidence.run_directory import IDLE_PHASES, RECOVERY

FORMAT: Final = 1

Checker = Callable[[Evidence], Result]

CHECKERS: Final[dict[str, Checker]] = {
    "exactly_once": exactly_once.check,
    "atomicity": atomicity.check,
    "second_opinion": second_opinion.check,
    "audit": audit_findings.check,
    "order": order.check,
    "consumers": consumers.check,
    "offsets": offsets.check,
    "log_ends": log_ends.check,
    "pipeline": pipeline_outputs.check,
    "aggregates": aggregates.check,
    "contract": app_outputs.check,
    "fencing": fencing.check,
    "liveness": liveness.check,
    "walkthrough": step_coverage.check,
    "coverage": coverage.check,
}

CHECKED_BY: Final = {
    "lost": {"exactly_once"},
    "log_truncated": {"log_ends"},
    "torn_transaction": {"atomicity"},
    "fate_mismatch": {"second_opinion"},
    "undecided_marker": {"audit"},
    "wrong_transaction": {"second_opinion"},
    "zombie_write": {"fencing"},
    "aborted_read": {"atomicity", "contract"},
    "duplicate": {"exactly_once"},
    "reused_sequence": {"audit"},
    "poll_skip": {"consumers"},
    "unseen": {"consumers"},
    "never_processed": {"pipeline", "contract"},
    "processed_twice": {"pipeline", "contract"},
    "corrupted_output": {"second_opinion"},
    "wrong_output": {"contract"},
    "aggregate_drift": {"aggregates", "contract"},
    "offset_drift": {"offsets"},
    "position_went_back": {"audit"},
    "phantom": {"exactly_once", "contract"},
    "inconsistent_offset": {"offsets"},
    "early_read": {"atomicity", "order"},
    "g1c": {"consumers"},
    "g1c_realtime": {"consumers"},
    "reordered": {"order", "contract"},
    "nonmonotonic_poll": {"consumers"},
    "hanging_transaction": {"liveness"},
    "stalled": {"liveness", "contract"},
}
"""The properties whose checkers may find each anomaly."""


_BREACHES: Final = {
    RECOVERY: "after the faults, the cluster and its clients needed {measured:g} s to work again, and "
    "limits.recovery allows {limit:g} s: the report shows what was slow; a slow machine needs more",
    IDLE_PHASES: "no record was acknowledged in {where}, so the run does not show that clients worked "
    "then: make plan.steady or plan.duration longer, transactions shorter, or the rate higher",
}
"""What it means that a limit was exceeded, and what to do, by the name of the limit."""


class Limit(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A limit on the performance of a run; it does not affect the verdict on safety.

    `where` names the phases in which it was exceeded, if the limit counts phases. For the recovery, it names
    what the run waited for in vain; it is empty if everything worked again.
    """

    name: str
    measured: float
    limit: float
    unit: str
    where: str = ""

    @property
    def held(self) -> bool:
        """Whether the measured value is within the limit."""
        return self.measured <= self.limit

    @property
    def comparison(self) -> str:
        """The measured value and the limit, such as "1.14 of 60 s"; only the value if nothing is allowed."""
        if not self.limit:
            return f"{self.measured:g} {self.unit}" if self.measured else "none"
        return f"{self.measured:g} of {self.limit:g} {self.unit}"

    @property
    def breach(self) -> str:
        """What it means that this limit was exceeded, and what to do; empty if it was held."""
        if self.held:
            return ""
        if self.name == RECOVERY and self.where:
            return (
                "after the faults, the cluster and its clients did not work again within "
                f"{self.measured:g} s ({self.where}), and limits.recovery allows {self.limit:g} s"
            )
        measured = f"measured were {self.measured:g} {self.unit}, and the limit is {self.limit:g} {self.unit}"
        where = self.where or "a phase"
        return _BREACHES.get(self.name, measured).format(
            measured=self.measured, limit=self.limit, where=where
        )


class Judgement(msgspec.Struct, kw_only=True):
    """The verdict on a run, with the results of all properties and limits."""

    format: int = FORMAT
    verdict: Verdict
    exit_code: int
    operations: int
    results: list[Result]
    limits: list[Limit] = []
    breached: list[str] = []
    notes: list[str] = []

    def encode(self) -> bytes:
        """Return the judgement as JSON; the same evidence always gives the same bytes."""
        return msgspec.json.format(msgspec.json.encode(self)) + b"\n"

    def names(self) -> list[str]:
        """Return the names of all anomalies that were found."""
        return [anomaly.name for result in self.results for anomaly in result.anomalies]


def properties_of(evidence: Evidence) -> list[str]:
    """Return the properties to check.

    They are listed in the expectations. By default they are those that apply to the run, such as `pipeline`
    if it has a pipeline.
    """
    if evidence.expect.properties:
        return [name for name in CHECKERS if name in evidence.expect.properties]
    declared = [producer.producer.transactional_id for producer in evidence.ledger.producers.values()]
    ids = [transactional_id for transactional_id in declared if transactional_id is not None]
    wanted = {"exactly_once", "order", "offsets", "liveness", "coverage"}
    wanted |= {"log_ends"} if log_ends.applies(evidence) else set()
    groups, intervals = evidence.ledger.groups, evidence.ledger.intervals
    wanted |= {"atomicity"} if ids or (groups.txn[intervals.group] >= 0).any() else set()
    wanted |= {"consumers"} if consumers.has_consumers(evidence.ledger) else set()
    wanted |= {"pipeline"} if evidence.expect.pipeline else set()
    wanted |= {"aggregates"} if evidence.expect.pipeline and evidence.expect.pipeline.changelog else set()
    wanted |= {"contract"} if evidence.expect.contract else set()
    wanted |= {"walkthrough"} if evidence.expect.walkthrough_steps else set()
    wanted |= {"second_opinion"} if second_opinion.applies(evidence) else set()
    wanted |= {"audit"} if audit_findings.applies(evidence) else set()
    raw = any(view.meta.epochs.compared for view in evidence.observations)
    wanted |= {"fencing"} if raw or len(set(ids)) < len(ids) else set()
    return [name for name in CHECKERS if name in wanted]


def judge(evidence: Evidence, limits: list[Limit] | None = None) -> Judgement:
    """Run the checkers of all properties, and combine their results into one judgement."""
    results = [_run(name, CHECKERS[name], evidence) for name in properties_of(evidence)]
    results = [result for result in results if not _does_not_apply(result, evidence)]
    missing = [name for name in evidence.expect.properties if name not in CHECKERS]
    results += [_unknown(name, "no checker has this name") for name in missing]
    if evidence.files is not None or evidence.damage:
        results = [_completeness(evidence), *(_set_aside(results) if evidence.damage else results)]
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
        if name == "contract":
            return result  # what the guarantee of an application permits is no deviation of Kafka
        return held_to_exactly_once(result) if evidence.expect.hold_to == "exactly_once" else result
    except Exception as error:  # noqa: BLE001 - any crash of a checker makes its result unknown
        return _unknown(name, f"the checker crashed: {describe_error(error)}")


def _does_not_apply(result: Result, evidence: Evidence) -> bool:
    """Return whether no two sources report the same offset, so that the property `offsets` has no meaning.

    This is so if the clients did not record offsets and only one witness read the topics.
    """
    idle = result.compared == 0 and not (result.anomalies or result.permitted)
    only_idle = result.reasons == [nothing_compared(result.unit)]
    return result.property == "offsets" and idle and only_idle and not evidence.expect.properties


def _completeness(evidence: Evidence) -> Result:
    """Return the result of the comparison of the evidence files with the run's manifest."""
    return Result(
        property="evidence",
        verdict=Verdict.UNKNOWN if evidence.damage else Verdict.VALID,
        compared=evidence.files or 0,
        unit="files with the manifest",
        reasons=evidence.damage,
    )


def _set_aside(results: list[Result]) -> list[Result]:
    """Return the results that compared anything, as unknown: they are based on damaged evidence.

    Their anomalies do not count. For example, each record of a missing history looks like a phantom.
    """
    return [
        msgspec.structs.replace(
            result, verdict=Verdict.UNKNOWN, anomalies=[], permitted=[], not_counted=result.anomalies
        )
        for result in results
        if result.compared or result.anomalies
    ]


def held_to_exactly_once(result: Result) -> Result:
    """Return the result with permitted deviations also counted as anomalies.

    A deviation is permitted if Kafka allows it with the producer's settings. If there is one, the result
    becomes invalid and gets a reason that names the deviation.
    """
    if not result.permitted:
        return result
    merged = {(anomaly.name, anomaly.unit): anomaly for anomaly in result.anomalies}
    for permitted in result.permitted:
        forbidden = merged.get((permitted.name, permitted.unit))
        merged[permitted.name, permitted.unit] = (
            permitted
            if forbidden is None
            else msgspec.structs.replace(
                forbidden,
                count=forbidden.count + permitted.count,
                examples=[*forbidden.examples, *permitted.examples][:EXAMPLES],
                witnesses=sorted({*forbidden.witnesses, *permitted.witnesses}),
            )
        )
    names = ", ".join(sorted({anomaly.name for anomaly in result.permitted}))
    return msgspec.structs.replace(
        result,
        verdict=Verdict.INVALID,
        anomalies=sorted(merged.values(), key=lambda anomaly: SEVERITY[anomaly.name]),
        permitted=[],
        reasons=[
            *result.reasons,
            f"{names}: Kafka permits this for the producer's settings, but the scenario demands exactly-once",
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
    torn = [f"{c.name}: the last line is incomplete and was ignored" for c in clients if c.torn]
    killed = [
        f"{c.name}: the history has no closing line, so its process was killed"
        for c in clients
        if not c.closing
    ]
    return (
        torn
        + killed
        + exactly_once.unknown_share(evidence.ledger)
        + audit_findings.notes(evidence)
        + starvation.notes(evidence)
        + reading_lags(evidence)
        + consumers.unfinished_readings(evidence)
        + pipeline_outputs.notes(evidence)
        + app_transactions.notes(evidence)
        + (not_checked(evidence.expect.contract) if evidence.expect.contract else [])
        + single_witnesses(evidence)
    )
