"""Planted cases for contracts in SQL: results of queries by two witnesses, and outputs that inputs must have.

The inputs and outputs are those of cases_contract.py: p1a:0-9, p1b:0-4 and p1a:12-15.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from harness.evidence.checkers.model import Evidence
from harness.evidence.contract_statement import (
    ContractTable,
    Deviation,
    RequiredQuery,
    Statement,
    StatementResult,
)
from harness.evidence.observation import Meta, Observation, Window
from harness.evidence.statement_rows import describe_required
from harness.evidence.token import token_of
from tests.planted.cases_contract import ALL, RUN, AppCase, Changed, of, window

INPUTS = [*(("a", i) for i in (*range(10), *range(12, 16))), *(("b", i) for i in range(5))]
Found = tuple[str, int]


def result(verb: str, *found: Found, compared: int = 19, error: str = "") -> StatementResult:
    deviations = [Deviation(kind, weight, weight, [["1", "2", "3"]]) for kind, weight in found]
    return StatementResult(
        output="out", verb=verb, text="x", compared=compared, found=deviations, error=error
    )


@dataclass
class SqlCase(AppCase):
    """Results of one statement according to the reader, and to Spark if `spark` is given."""

    verb: str = "holds"
    found: list[Found] = field(default_factory=list)
    spark: list[Found] | None = None
    compared: int = 19
    error: str = ""
    guarantee: Any = "exactly once"
    order: Any = "none"
    tokens: bool = True
    whole: bool = True
    absent: bool = False
    """Whether the reader left no results."""

    def evidence(self) -> Evidence:
        evidence = super().evidence()
        contract = evidence.expect.contract
        assert contract is not None
        statement = Statement(
            output="out",
            verb=self.verb,
            text="x",
            query="",
            count="",
            columns=["one", "two"],
            needs_end=self.verb in ("is", "conserve", "expect", "ids", "reference"),
        )
        output = msgspec.structs.replace(contract.outputs[0], tokens=self.tokens)
        contract = msgspec.structs.replace(
            contract,
            statements=[statement],
            outputs=[output],
            guarantee=self.guarantee,
            tables=[ContractTable(name="out", topic="out")],
        )
        evidence.expect = msgspec.structs.replace(
            evidence.expect, contract=contract, hold_to="exactly_once", witnesses=["reader"]
        )
        evidence.observations[0].meta.witness = "reader"
        if not self.absent:
            evidence.observations.append(self._results("reader", self.found))
        if self.spark is not None:
            evidence.observations.append(self._results("spark-batch", self.spark))
        return evidence

    def _results(self, witness: str, found: list[Found]) -> Observation:
        size = 17
        meta = Meta(witness=f"{witness}-statements", kind="reference", purpose="statements", clock="clock")
        meta.complete = self.whole
        meta.windows = [Window("t", 0, 0, size, size, size)]
        meta.statements = [result(self.verb, *found, compared=self.compared, error=self.error)]
        return Observation(meta)


@dataclass
class RequiredCase(AppCase):
    """Outputs of inputs that must have the numbers of `required`; every other input must have one."""

    required: dict[str, int] = field(default_factory=dict)
    guarantee: Any = "exactly once"
    order: Any = "none"
    each: tuple[int, int | None] = (0, 1000)
    other_required: dict[str, int] | None = None
    known: bool = True
    numbered: bool = True
    """Whether the run promised to list the inputs for which the query returned a number."""

    def evidence(self) -> Evidence:
        evidence = super().evidence()
        contract = evidence.expect.contract
        assert contract is not None
        contract = msgspec.structs.replace(
            contract,
            outputs=[msgspec.structs.replace(contract.outputs[0], required=True)],
            required=[RequiredQuery(topic="out", text="x", query="", numbered=self.numbered)],
            guarantee=self.guarantee,
        )
        evidence.expect = msgspec.structs.replace(evidence.expect, contract=contract, hold_to="exactly_once")
        evidence.observations.append(self._required("reader", self.required))
        evidence.observations[-1].meta.complete = self.known
        if self.other_required is not None:
            evidence.observations.append(self._required("spark-batch", self.other_required))
        return evidence

    def _required(self, witness: str, required: dict[str, int]) -> Observation:
        rows = [
            (token_of(RUN, 1, ("a", "b").index(lane), seq), required.get(f"{lane}:{seq}", 1))
            for lane, seq in INPUTS
        ]
        meta = Meta(witness=f"{witness}-required-out", kind="reference", purpose="required", clock="clock")
        meta.complete, meta.windows = True, [Window("t", 0, 0, 17, 17, 17)]
        view = Observation(meta)
        describe_required(view, rows)
        meta.twice.compared = int(view.origins["n"].sum())
        return view


def again(*found: Found) -> Callable[[Observation], None]:
    """Return a function that adds a second result of the statement."""

    def change(view: Observation) -> None:
        view.meta.statements.append(result("holds", *found))

    return change


def lose(rows: slice) -> Callable[[Observation], None]:
    """Return a function that removes rows from both tables with the numbers of required outputs."""

    def change(view: Observation) -> None:
        view.words, view.origins = np.delete(view.words, rows), np.delete(view.origins, rows)
        view.meta.records, view.meta.twice.compared = (
            int(table["n"].sum()) for table in (view.words, view.origins)
        )

    return change


def unnumbered(view: Observation) -> None:
    """Remove the list of inputs, as if an earlier release had written the observation."""
    view.words, view.meta.records = view.words[:0], 0


ALL_LOST, FIRST_LOST = lose(slice(None)), lose(slice(0, 1))
NONE = {f"{lane}:{seq}": 0 for lane, seq in INPUTS}
STOPPED = {"a": 10, "b": 5}
DIFFERS = [("differs", 2)]

CAUGHT = {
    "wrong_output": {
        "a-wrong-content": (SqlCase(found=DIFFERS), {"wrong_output"}),
        "a-wrong-content-for-both": (SqlCase(found=DIFFERS, spark=DIFFERS), {"wrong_output"}),
        "a-row-that-nothing-demands": (
            SqlCase(verb="expect", found=[("extra", 1)], tokens=False),
            {"wrong_output"},
        ),
        "before-the-end": (
            SqlCase("p1a:0-9 p1b:0-4", consumed=STOPPED, found=DIFFERS),
            {"wrong_output", "stalled"},
        ),
        "another-content-than-calmly": (SqlCase(verb="reference", found=DIFFERS), {"wrong_output"}),
        "with-a-weaker-guarantee": (SqlCase(found=DIFFERS, guarantee="at least once"), {"wrong_output"}),
    },
    "aggregate_drift": {
        "a-key-counts-twice": (SqlCase(verb="is", found=DIFFERS), {"aggregate_drift"}),
        "a-value-of-no-prefix": (SqlCase(verb="is every", found=DIFFERS), {"aggregate_drift"}),
        "two-rows-of-a-key": (SqlCase(verb="is", found=[("repeated", 1)]), {"aggregate_drift"}),
        "a-value-went-back": (SqlCase(verb="is every", found=[("went_back", 1)]), {"aggregate_drift"}),
        "a-sum-is-not-conserved": (SqlCase(verb="conserve", found=[("differs", 1)]), {"aggregate_drift"}),
    },
    "never_processed": {
        "a-demanded-row-is-missing": (SqlCase(verb="expect", found=[("missing", 1)]), {"never_processed"}),
        "in-too-few-outputs": (
            SqlCase(verb="ids", found=[("missing", 1)], tokens=False),
            {"never_processed"},
        ),
        "fewer-outputs-than-calmly": (SqlCase(verb="reference", found=[("missing", 1)]), {"never_processed"}),
        "a-key-without-output": (SqlCase(verb="is", found=[("missing", 1)]), {"never_processed"}),
        "one-of-two-required": (RequiredCase(required={"a:3": 2}), {"never_processed"}),
        "required-and-not-there": (RequiredCase(ALL.replace("p1b:0-4", "p1b:0-3")), {"never_processed"}),
        "required-and-no-output-at-all": (RequiredCase(""), {"never_processed"}),
        "required-and-not-there-and-other-numbers-are-lost": (
            Changed(RequiredCase(ALL.replace("p1b:0-4", "p1b:0-3")), "required", FIRST_LOST),
            {"never_processed"},
        ),
        "required-of-an-earlier-release": (
            Changed(RequiredCase(ALL.replace("p1b:0-4", "p1b:0-3"), numbered=False), "required", unnumbered),
            {"never_processed"},
        ),
    },
    "processed_twice": {
        "in-too-many-outputs": (
            SqlCase(verb="ids", found=[("repeated", 2)], tokens=False),
            {"processed_twice"},
        ),
        "more-outputs-than-calmly": (SqlCase(verb="reference", found=[("repeated", 1)]), {"processed_twice"}),
        "outputs-with-the-same-values": (
            SqlCase(verb="unique", found=[("repeated", 2)], tokens=False),
            {"processed_twice"},
        ),
        "the-same-values-for-both-witnesses": (
            SqlCase(verb="unique", found=[("repeated", 2)], spark=[("repeated", 2)]),
            {"processed_twice"},
        ),
        "the-same-values-where-some-may-be": (
            SqlCase(verb="unique", found=[("permitted", 5), ("repeated", 1)]),
            {"processed_twice"},
        ),
        "the-same-values-before-the-end": (
            SqlCase("p1a:0-9 p1b:0-4", verb="unique", consumed=STOPPED, found=[("repeated", 1)]),
            {"processed_twice", "stalled"},
        ),
        "a-row-is-repeated": (SqlCase(verb="expect", found=[("repeated", 1)]), {"processed_twice"}),
        "an-output-of-a-filtered-input": (RequiredCase(required={"b:4": 0}), {"processed_twice"}),
        "no-input-must-have-an-output": (RequiredCase(required=NONE), {"processed_twice"}),
        "a-third-output": (RequiredCase(f"{ALL} p1a:3 p1a:3", required={"a:3": 2}), {"processed_twice"}),
        "one-too-many-and-one-too-few": (
            RequiredCase(f"{ALL} p1a:3", required={"a:4": 2}),
            {"processed_twice", "never_processed"},
        ),
    },
    "phantom": {
        "a-key-of-no-input": (SqlCase(verb="is", found=[("extra", 1)]), {"phantom"}),
        "a-field-with-no-input": (SqlCase(verb="ids", found=[("extra", 1)], tokens=False), {"phantom"}),
    },
    "reordered": {"a-total-in-two-partitions": (SqlCase(verb="is", found=[("split", 1)]), {"reordered"})},
    "stalled": {
        "an-aggregate-is-not-complete": (
            SqlCase("", verb="is", found=DIFFERS, consumed=STOPPED, tokens=False),
            {"stalled"},
        ),
        "a-sum-is-not-complete": (
            SqlCase("", verb="conserve", consumed={"a": 16, "b": 5}, tokens=False),
            {"stalled"},
        ),
    },
}
NEAR_MISSES = {
    "wrong_output": {
        "every-output-holds": SqlCase(),
        "both-witnesses-agree": SqlCase(spark=[]),
        "all-rows-are-there": SqlCase("?", verb="expect", tokens=False),
        "as-calmly": SqlCase(verb="reference"),
        "two-calm-runs-agree": SqlCase(verb="calm"),
        "each-input-in-one-output": SqlCase("?", verb="ids", tokens=False),
        "without-a-group": SqlCase(verb="expect", group="", consumed=None),
        "the-same-result-again": Changed(SqlCase(), "statements", again()),
    },
    "aggregate_drift": {
        "every-key-is-right": SqlCase(verb="is"),
        "permitted-by-at-least-once": SqlCase(verb="is", found=DIFFERS, guarantee="at least once"),
    },
    "processed_twice": {
        "as-many-as-required": RequiredCase(f"{ALL} p1a:3 p1b:0 p1b:0", required={"a:3": 2, "b:0": 3}),
        "all-values-differ": SqlCase(verb="unique", spark=[]),
        "values-that-may-be-repeated": SqlCase(verb="unique", found=[("permitted", 3)], tokens=False),
        "values-that-may-be-repeated-for-both": SqlCase(
            verb="unique", found=[("permitted", 3)], spark=[("permitted", 3)]
        ),
        "the-same-values-with-a-weaker-guarantee": SqlCase(
            verb="unique", found=[("repeated", 1)], guarantee="at least once"
        ),
        "a-filtered-input": RequiredCase("p1a:0-9 p1b:0-3 . . p1a:12-15", required={"b:4": 0}),
        "an-earlier-release": Changed(RequiredCase(numbered=False), "required", unnumbered),
        "permitted-by-at-least-once": RequiredCase(f"{ALL} p1a:3", guarantee="at least once"),
        "both-witnesses-computed-it": RequiredCase(
            f"{ALL} p1a:3", required={"a:3": 2}, other_required={"a:3": 2}
        ),
    },
    "never_processed": {
        "permitted-by-at-most-once": RequiredCase("p1a:0-9 p1b:0-3 . . p1a:12-15", guarantee="at most once")
    },
}
UNKNOWN = {
    "the witnesses found different deviations": SqlCase(
        verb="is", found=DIFFERS, spark=[("differs", 1)], guarantee="at least once"
    ),
    "only one witness found a permitted repetition": SqlCase(verb="unique", spark=[("permitted", 1)]),
    "only one witness found a deviation": SqlCase(verb="is", spark=DIFFERS, guarantee="at least once"),
    "a query could not be run": SqlCase(error="no record of out has a field total"),
    "a query compared nothing": SqlCase(compared=0),
    "a witness ran no queries": SqlCase(absent=True),
    "a witness did not read all tables": SqlCase(whole=False),
    "a witness that did not read all tables found deviations": SqlCase(whole=False, found=DIFFERS),
    "the first records of a table were deleted": Changed(
        SqlCase(found=DIFFERS), "statements", window(start=3)
    ),
    "a table was read in part": Changed(SqlCase(), "statements", window(lso=20, hw=20)),
    "a transaction is open in a table": Changed(SqlCase(tokens=False), "statements", window(hw=30)),
    "a table was read uncommitted": Changed(
        SqlCase(found=DIFFERS), "statements", of(isolation="read_uncommitted")
    ),
    "a witness has two results": Changed(SqlCase(guarantee="at least once"), "statements", again(*DIFFERS)),
    "the statements hold, and the position of the group is not known": SqlCase(consumed=None, tokens=False),
    "the statements hold, and no witness read the inputs": Changed(
        SqlCase(verb="holds", group="", consumed=None, tokens=False), "all", of(complete=False)
    ),
    "two calm runs differ": SqlCase(verb="calm", found=DIFFERS),
    "the position is not known": SqlCase(verb="is", consumed=None, tokens=False),
    "an interrupted run did not wait": SqlCase(
        "",
        verb="is",
        consumed=STOPPED,
        tokens=False,
        history="p1 commit ok a:0-9 b:0-4\np1 abort ok a:10-11\np1 commit ok a:12-15\nskipped interrupted",
    ),
    "the witnesses computed different numbers": RequiredCase(required={}, other_required={"a:3": 0}),
    "the numbers were computed from a part of the inputs": Changed(
        RequiredCase(f"{ALL} p1a:3"), "required", window(lso=30, hw=30)
    ),
    "the numbers are not known": RequiredCase(known=False),
    "all numbers are lost": Changed(RequiredCase(), "required", ALL_LOST),
    "all numbers and all outputs are lost": Changed(RequiredCase(""), "required", ALL_LOST),
    "all numbers are lost, and the application may repeat": Changed(
        RequiredCase(guarantee="at least once"), "required", ALL_LOST
    ),
    "all numbers of an earlier release are lost": Changed(
        RequiredCase("", numbered=False), "required", ALL_LOST
    ),
    "the numbers of some inputs are lost": Changed(RequiredCase(), "required", FIRST_LOST),
    "the list of the numbered inputs is lost": Changed(RequiredCase(), "required", unnumbered),
    "no input must have an output, and none has one": RequiredCase("", required=NONE),
}
