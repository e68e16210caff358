"""Pipeline: every input that the group has passed has its outputs, each of them once.

    an input with one output more than it owes      processed_twice
    an input before the group's position without    never_processed

An input processed in an aborted transaction and again in a committed one is permitted, and so is an
input behind the group's position that has not been processed yet.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.evidence.bit_words import EXAMPLES, WORD_SEQS, popcount
from harness.evidence.checkers.bitsets import BitSet
from harness.evidence.checkers.model import Collector, Evidence, Example, OffsetRef, Pipeline, Result, place
from harness.evidence.checkers.positions import consumed_by, inputs_of, places_of
from harness.evidence.checkers.visibility_index import ranges
from harness.evidence.observation import Observation, Rows


def check(evidence: Evidence) -> Result:
    """Compare the inputs of all outputs with the inputs that the group has passed."""
    out = Collector("pipeline", "outputs")
    pipeline = evidence.expect.pipeline
    if pipeline is None:
        out.reasons.append("the run names no pipeline")
        return out.result()
    consumed = consumed_by(evidence, pipeline)
    if not consumed:
        out.reasons.append(f"no witness read the inputs up to the position of group {pipeline.group}")
    for view in evidence.committed_views():
        if view.meta.complete:
            _twice(view, pipeline, out)
            for one in consumed:
                _never(view, one, pipeline, out)
    return out.result()


def _twice(view: Observation, pipeline: Pipeline, out: Collector) -> None:
    origins = view.origins
    out.compared += int(origins["n"].sum())
    extra = origins["n"] - popcount(origins["bits"])
    # A part that was not owed is one output too many, even when it is there only once.
    extra = np.where(origins["part"] < pipeline.outputs, extra, origins["n"])
    found = np.flatnonzero(extra > 0)
    worst = found[np.argsort(-extra[found], kind="stable")].tolist()
    owed = [i for i in worst if origins["part"][i] < pipeline.outputs]
    examples = _named_twice(view) or [
        _twice_example(origins[i], int(extra[i]), view) for i in owed[:EXAMPLES]
    ]
    unowed = [i for i in worst if origins["part"][i] >= pipeline.outputs]
    examples += [_unowed_example(origins[i : i + 1], view) for i in unowed[:EXAMPLES]]
    out.add("processed_twice", "outputs", int(extra[found].sum()), examples)


def _named_twice(view: Observation) -> list[Example]:
    """Name what the witness named: the input, and where its second output stands."""
    return [
        Example(
            what=f"input {spot.seq} of producer {spot.producer} lane {spot.lane} has one output more: "
            f"{spot.detail}",
            witness=view.meta.witness,
            offsets=place(spot),
        )
        for spot in view.meta.twice.examples
    ]


def _twice_example(row: Any, extra: int, view: Observation) -> Example:
    """Tell of a word, where the witness named no records."""
    first = int(row["word"]) * WORD_SEQS
    return Example(
        what=f"inputs of producer {int(row['producer'])} lane {int(row['lane'])} among sequences "
        f"{first}-{first + WORD_SEQS - 1} have {extra} outputs (part {int(row['part'])}) too many",
        weight=extra,
        witness=view.meta.witness,
    )


def _unowed_example(row: Rows, view: Observation) -> Example:
    """Name the inputs that have an output of a part that no input owes."""
    ((producer, lane, found),) = BitSet.of(row).first(1)
    return Example(
        what=f"inputs {ranges(found)} of producer {producer} lane {lane} have outputs that are not owed "
        f"(part {int(row['part'][0])})",
        weight=int(row["n"][0]),
        witness=view.meta.witness,
    )


def _never(view: Observation, consumed: Observation, pipeline: Pipeline, out: Collector) -> None:
    inputs = BitSet.of(inputs_of(consumed, pipeline))
    positions = [OffsetRef(topic, p, offset, offset) for topic, p, offset in consumed.meta.positions]
    for part in range(pipeline.outputs):
        missing = inputs.minus(BitSet.of(view.origins[view.origins["part"] == part]))
        out.compared += len(missing)
        examples = [
            Example(
                what=f"inputs {ranges(found)} of producer {producer} lane {lane} were passed by group "
                f"{pipeline.group} and have no output (part {part})",
                weight=len(found),
                witness=view.meta.witness,
                offsets=[*positions[:EXAMPLES], *places_of(consumed, producer, lane, found)],
            )
            for producer, lane, found in missing.first(EXAMPLES)
        ]
        out.add("never_processed", "inputs", len(missing), examples)
