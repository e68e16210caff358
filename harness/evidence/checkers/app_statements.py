"""Statements of a contract in SQL: witnesses ran the queries, this checker names what they found.

    holds             an output contradicts its input             wrong_output
    is                a key's value is not the demanded one       aggregate_drift
                      a key of inputs has no output               never_processed
                      a key of no input has outputs               phantom
                      a key has outputs in several partitions     reordered
                      a key has several rows, which have no order aggregate_drift
    is every          a value is that of no prefix, or older      aggregate_drift
    conserve          two sums differ                             aggregate_drift
    unique            outputs with the same values                processed_twice
    ids               an input is in too few outputs              never_processed
                      an input is in too many outputs             processed_twice
                      an output contains no readable input        phantom
    reference         an input has fewer outputs than calmly      never_processed
                      an input has more outputs than calmly       processed_twice
                      an output has other values than calmly      wrong_output
    expect            a demanded row is missing                   never_processed
                      a demanded row is there too often           processed_twice
                      a row that nothing demands                  wrong_output

`is`, `conserve` and `expect` are about all inputs. If the group of the application has not passed all inputs,
the rest is `stalled`, and these statements are not checked.
"""

from __future__ import annotations

from typing import Final

from harness.evidence.bit_words import EXAMPLES
from harness.evidence.checkers.bitsets import BitSet
from harness.evidence.checkers.client_ends import skipped_phases
from harness.evidence.checkers.distinct import Grouped, RecordSet
from harness.evidence.checkers.model import (
    AppContract,
    Collector,
    Evidence,
    Example,
    OffsetRef,
    OutputContract,
)
from harness.evidence.checkers.positions import consumed_by
from harness.evidence.checkers.starvation import unjudged_wait
from harness.evidence.checkers.visibility_index import ranges
from harness.evidence.checkers.witness_agreement import missing_part
from harness.evidence.contract_statement import KINDS, PERMITTED, Cell, Deviation, Statement, StatementResult
from harness.evidence.observation import Observation

STATEMENTS: Final = "-statements"
"""End of the name of an observation with the results of statements."""

EXECUTORS: Final = ("reader", "spark-batch")
"""Witnesses that run the queries of a contract."""

NAMES: Final = {
    ("holds", "differs"): "wrong_output",
    ("is", "differs"): "aggregate_drift",
    ("is", "missing"): "never_processed",
    ("is", "extra"): "phantom",
    ("is", "split"): "reordered",
    ("is", "repeated"): "aggregate_drift",
    ("is every", "differs"): "aggregate_drift",
    ("is every", "went_back"): "aggregate_drift",
    ("conserve", "differs"): "aggregate_drift",
    ("unique", "repeated"): "processed_twice",
    ("unique", PERMITTED): "processed_twice",
    ("reference", "missing"): "never_processed",
    ("reference", "repeated"): "processed_twice",
    ("reference", "differs"): "wrong_output",
    ("ids", "missing"): "never_processed",
    ("ids", "repeated"): "processed_twice",
    ("ids", "extra"): "phantom",
    ("expect", "missing"): "never_processed",
    ("expect", "repeated"): "processed_twice",
    ("expect", "extra"): "wrong_output",
}
"""Anomaly of each verb and kind of deviation."""

_UNITS: Final = {
    "holds": "outputs",
    "is": "keys",
    "is every": "values",
    "conserve": "sums",
    "unique": "outputs",
    "expect": "rows",
    "ids": "outputs",
    "reference": "outputs",
}
CALM: Final = "calm"
"""Verb of a statement that compares two calm runs. Its deviations are no anomalies of the run."""

AT_LEAST_ONCE: Final = {"processed_twice", "aggregate_drift"}
"""What an application that promises at least once may do."""
AT_MOST_ONCE: Final = {"never_processed", "aggregate_drift"}
"""What an application that promises at most once may do."""


def is_permitted(contract: AppContract, name: str) -> bool:
    """Return whether the guarantee of the application permits this anomaly."""
    permitted = {"at least once": AT_LEAST_ONCE, "at most once": AT_MOST_ONCE}
    return name in permitted.get(contract.guarantee, set())


def check_statements(
    evidence: Evidence, contract: AppContract, inputs: BitSet | None, out: Collector
) -> None:
    """Name what the witnesses found, and compare the witnesses with each other."""
    if not contract.statements:
        return
    whole = _complete_views(evidence, out)
    unread = _unread(evidence, contract, inputs)
    if unread is not None and len(unread) and any(statement.needs_end for statement in contract.statements):
        if skipped := skipped_phases(evidence.ledger):
            out.reasons.append(f"{len(unread)} inputs were not waited for: {skipped[0]}")
        elif short := unjudged_wait(evidence):
            out.reasons.append(f"{len(unread)} inputs were not processed: {short}")
        else:
            _report_stalled(evidence, contract, unread, out)
    for view in whole:
        _check_view(contract, view, at_end=unread is not None and not len(unread), out=out)
    for view in whole[1:]:
        _compare(whole[0], view, out)


def _complete_views(evidence: Evidence, out: Collector) -> list[Observation]:
    """Return the complete results of all witnesses; report those that are missing or incomplete."""
    views = [view for view in evidence.observations if view.meta.purpose == "statements"]
    for name in evidence.expect.witnesses:
        if name in EXECUTORS and not any(_witness(view) == name for view in views):
            out.reasons.append(f"witness {name} ran no queries of the contract")
    if not views:
        out.reasons.append("no witness ran the queries of the contract")
    for view in views:
        if missing := missing_part(view.meta):
            out.reasons.append(f"witness {_witness(view)} did not read all tables: {missing}")
    return [view for view in views if not missing_part(view.meta)]


def _witness(view: Observation) -> str:
    return view.meta.witness.removesuffix(STATEMENTS)


def _unread(evidence: Evidence, contract: AppContract, inputs: BitSet | None) -> BitSet | None:
    """Return the inputs that the group has not passed; None if that is not known."""
    if inputs is None:
        return None
    if not contract.group:
        return inputs.minus(inputs)
    consumed = consumed_by(evidence, contract.group)
    return inputs.minus(BitSet.of(consumed[0].words)) if consumed else None


def not_reached(evidence: Evidence, group: str) -> str:
    """Return where inputs are that a group has not reached, and which instances did not react at the end."""
    where = f"not before the committed position of group {group}, which stopped there"
    starts = evidence.app.starts if evidence.app is not None else ()
    if killed := sorted({start.instance for start in starts if start.ended == "killed"}):
        where += f" ({', '.join(killed)} did not end when asked to, as if a call hung, and had to be killed)"
    return where


def _report_stalled(evidence: Evidence, contract: AppContract, unread: BitSet, out: Collector) -> None:
    where = not_reached(evidence, contract.group)
    examples = [
        Example(
            what=f"inputs {ranges(sequences)} of producer {producer} lane {lane} are {where}",
            weight=len(sequences),
            witness="consumed",
        )
        for producer, lane, sequences in unread.first(EXAMPLES)
    ]
    found = Grouped({"": RecordSet(unread.keys, unread.bits)})
    out.add("stalled", "inputs not passed", found, examples)
    out.reasons.append("is, conserve and expect were not checked, because not all inputs were processed")


def _check_view(contract: AppContract, view: Observation, *, at_end: bool, out: Collector) -> None:
    results: dict[tuple[str, str, str], StatementResult] = {}
    for result in view.meta.statements:
        key = (result.output, result.verb, result.text)
        if results.setdefault(key, result) != result:
            out.reasons.append(f"{key[0]}: {key[1]} {key[2]!r}: witness {_witness(view)} has two results")
    for statement in contract.statements:
        found = results.get((statement.output, statement.verb, statement.text))
        place = f"{statement.output}: {statement.verb} {statement.text!r}"
        if found is None:
            out.reasons.append(f"{place}: witness {_witness(view)} has no result")
        elif found.error:
            out.reasons.append(f"{place}: {_witness(view)} could not check it: {found.error}")
        elif at_end or not statement.needs_end:
            out.compared = max(out.compared, found.compared)
            if not found.compared:
                out.reasons.append(f"{place}: nothing was compared")
            for deviation in found.found:
                if statement.verb == CALM:
                    out.reasons.append(_describe_calm(statement, deviation))
                    continue
                _report(contract, statement, deviation, _witness(view), out)


def _describe_calm(statement: Statement, deviation: Deviation) -> str:
    """Return why a calm run is no reference."""
    return (
        f"{statement.output}: two calm runs differ in {statement.text}, for {deviation.weight} outputs "
        f"such as {deviation.examples[0]}: leave out what changes from run to run"
    )


def _report(
    contract: AppContract, statement: Statement, deviation: Deviation, witness: str, out: Collector
) -> None:
    name = NAMES[statement.verb, deviation.kind]
    examples = [
        Example(
            what=f"{statement.output}: {KINDS[deviation.kind]} ({statement.verb}: {statement.text}): "
            + ", ".join(
                f"{column} {'null' if cell is None else cell}"
                for column, cell in zip(statement.columns, example, strict=False)
            ),
            witness=witness,
            offsets=_offsets_in(statement, example),
            tokens=[cell for cell in [_cell(statement, example, "eos_id")] if cell],
        )
        for example in deviation.examples
    ]
    place = (statement.output, statement.verb, statement.text, deviation.kind)
    out.add(
        name,
        _UNITS[statement.verb],
        StatementCount({place: deviation.weight}),
        examples,
        witness=witness,
        permitted=deviation.kind == PERMITTED or is_permitted(contract, name),
    )


def _cell(statement: Statement, example: list[Cell], column: str) -> Cell:
    """Return the cell of a column; None if the statement has no such column."""
    return dict(zip(statement.columns, example, strict=False)).get(column)


def _offsets_in(statement: Statement, example: list[Cell]) -> list[OffsetRef]:
    """Return the offset of the output that an example names; none if it names no single output."""
    partition, offset = (_cell(statement, example, name) for name in ("kafka_partition", "kafka_offset"))
    if not (partition and offset and partition.isdecimal() and offset.isdecimal()):
        return []
    return [OffsetRef(statement.output, int(partition), int(offset), int(offset))]


class StatementCount(dict[tuple[str, ...], int]):
    """Number of deviations of each statement. The higher number of two witnesses counts."""

    def __len__(self) -> int:
        return sum(self.values())

    def __or__(self, other: dict[tuple[str, ...], int]) -> StatementCount:  # type: ignore[override]
        return StatementCount({key: max(self.get(key, 0), other.get(key, 0)) for key in [*self, *other]})


def _compare(first: Observation, second: Observation, out: Collector) -> None:
    """Report statements for which two witnesses have different results."""
    results: list[dict[tuple[str, str, str], StatementResult]] = [
        {(r.output, r.verb, r.text): r for r in view.meta.statements if not r.error}
        for view in (first, second)
    ]
    ends = [sorted((w.topic, w.partition, w.read_to) for w in view.meta.windows) for view in (first, second)]
    names = f"{_witness(first)} and {_witness(second)}"
    if ends[0] != ends[1]:
        out.reasons.append(f"{names} ran the queries of the contract with different ends")
        return
    for key in results[0].keys() & results[1].keys():
        one, other = results[0][key], results[1][key]
        if (one.compared, one.found) != (other.compared, other.found):
            out.reasons.append(f"{names} disagree about {key[1]} {key[2]!r} of {key[0]}")


def single_witnesses(evidence: Evidence) -> list[str]:
    """Return a sentence for each output that no second witness can confirm."""
    contract = evidence.expect.contract
    outputs = contract.outputs if contract is not None else []
    return [note for output in outputs if (note := _single_witness(evidence, output))]


def _single_witness(evidence: Evidence, output: OutputContract) -> str:
    """Return a sentence about an output that no second witness can confirm; empty if one can."""
    if output.source == "http":
        return (
            f"only the harness's HTTP sink saw the calls of {output.topic}: no second witness confirms them"
        )
    if output.source == "command":
        what = f"only the command of {output.topic} printed its rows"
        return f"{what}, twice with the same result: no second witness confirms them"
    if output.source == "jdbc" and not {"reader", "spark-batch"} <= {*evidence.expect.witnesses}:
        return f"only one witness read {output.topic}: name both reader and spark as witnesses"
    return ""
