"""Pipeline: every input before the group's position has each of its outputs exactly once.

Anomalies:

    an input has more outputs than the pipeline makes of it      processed_twice
    an input before the group's position lacks an output         never_processed

An input may be processed first in an aborted transaction and then again in a committed one. An input at or
after the group's position does not need an output yet.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from harness.evidence.bit_words import EXAMPLES, WORD_SEQS, popcount
from harness.evidence.checkers.bitsets import BitSet
from harness.evidence.checkers.distinct import Grouped, RecordSet, Tally
from harness.evidence.checkers.model import (
    Collector,
    Evidence,
    Example,
    HistoryRef,
    OffsetRef,
    Pipeline,
    Result,
    place,
)
from harness.evidence.checkers.positions import consumed_by, input_offsets, inputs_of
from harness.evidence.checkers.visibility_index import group_lines, ranges
from harness.evidence.ledger import Ledger
from harness.evidence.observation import Observation, Rows


def check(evidence: Evidence) -> Result:
    """Compare the inputs whose identities are in the outputs with the inputs before the group's position."""
    out = Collector("pipeline", "outputs")
    pipeline = evidence.expect.pipeline
    if pipeline is None:
        out.reasons.append("the run has no pipeline")
        return out.result()
    consumed = consumed_by(evidence, pipeline.group)
    if not consumed:
        out.reasons.append(f"no witness read the inputs up to the position of group {pipeline.group}")
    for view in evidence.committed_views():
        if view.meta.complete:
            _twice(view, pipeline, evidence.ledger, out)
            missing = max((_never(view, inputs, pipeline, out) for inputs in consumed), default=0)
            # All complete witnesses read the same outputs, so take the largest number.
            out.compared = max(out.compared, int(view.origins["n"].sum()) + missing)
    return out.result()


def notes(evidence: Evidence) -> list[str]:
    """Return a note on the inputs behind the group's position, which the pipeline had not read at the end."""
    pipeline = evidence.expect.pipeline
    if pipeline is None:
        return []

    def most(views: Sequence[Observation]) -> int:
        return max((len(BitSet.of(inputs_of(view, pipeline))) for view in views), default=0)

    read = most(consumed_by(evidence, pipeline.group))
    written = most([view for view in evidence.committed_views() if view.meta.complete])
    if not read or written <= read:
        return []
    return [
        f"group {pipeline.group} had not read {written - read} of {written} inputs when the run ended; "
        "inputs that were not read need no output (docs/workloads.md)"
    ]


def _twice(view: Observation, pipeline: Pipeline, ledger: Ledger, out: Collector) -> None:
    origins = view.origins
    extra = origins["n"] - popcount(origins["bits"])
    # The outputs of an input have the part numbers 0 to `pipeline.outputs` - 1. An output with a higher part
    # number should not exist at all. So count each such output as extra, even if it is not a repeat.
    extra = np.where(origins["part"] < pipeline.outputs, extra, origins["n"])
    excessive = np.flatnonzero(extra > 0)
    worst = excessive[np.argsort(-extra[excessive], kind="stable")].tolist()
    repeated = [i for i in worst if origins["part"][i] < pipeline.outputs]
    examples = _named_by_witness(view, ledger) or [
        _repeated_example(origins[i], int(extra[i]), view) for i in repeated[:EXAMPLES]
    ]
    unexpected = [i for i in worst if origins["part"][i] >= pipeline.outputs]
    examples += [_unexpected_example(origins[i : i + 1], view, pipeline) for i in unexpected[:EXAMPLES]]
    names = ("producer", "lane", "word")
    words = zip(*(origins[name][excessive].tolist() for name in names), strict=True)
    counts: dict[Hashable, int] = {}
    for word, number in zip(words, extra[excessive].tolist(), strict=True):
        counts[word] = counts.get(word, 0) + number
    named: dict[Hashable, frozenset[Hashable]] = {}
    for spot in view.meta.twice.examples:
        word = (spot.producer, spot.lane, spot.seq // WORD_SEQS)
        named[word] = named.get(word, frozenset()) | {(spot.topic, spot.partition, spot.offset)}
    out.add("processed_twice", "outputs", Tally(counts, named), examples, witness=view.meta.witness)


def _named_by_witness(view: Observation, ledger: Ledger) -> list[Example]:
    return [
        Example(
            what=f"input {spot.seq} of producer {spot.producer} lane {spot.lane} has an output too many: "
            f"{spot.detail}",
            witness=view.meta.witness,
            lines=[line for ref in place(spot) for line in _writer_lines(ledger, ref)],
            offsets=place(spot),
        )
        for spot in view.meta.twice.examples
    ]


def _writer_lines(ledger: Ledger, output: OffsetRef) -> list[HistoryRef]:
    """Return the history lines of the transaction or send that wrote the record at an offset.

    There are none if the writer recorded no offset for it, as after an end without a clear answer.
    """
    place_of = (output.topic, output.partition)
    lanes = [lane for lane, place in enumerate(ledger.places) if place == place_of]
    lane, first, last, offset, _ = ledger.acks[np.isin(ledger.acks[:, 0], lanes)].T
    (holding,) = np.nonzero((offset <= output.first) & (output.first <= offset + last - first))
    if not len(holding):
        return []
    row = holding[:1]
    at, sent = ledger.interval_at(lane[row], first[row] + output.first - offset[row])
    return group_lines(ledger, int(ledger.intervals.group[at[0]])) if sent[0] else []


def _repeated_example(row: Any, extra: int, view: Observation) -> Example:
    first = int(row["word"]) * WORD_SEQS
    return Example(
        what=f"producer {int(row['producer'])} lane {int(row['lane'])}: the inputs among sequences "
        f"{first}-{first + WORD_SEQS - 1} have {extra} outputs too many of part {int(row['part'])}",
        weight=extra,
        witness=view.meta.witness,
    )


def _unexpected_example(row: Rows, view: Observation, pipeline: Pipeline) -> Example:
    ((producer, lane, sequences),) = BitSet.of(row).first(1)
    return Example(
        what=f"inputs {ranges(sequences)} of producer {producer} lane {lane} have outputs of part "
        f"{int(row['part'][0])}, but the pipeline makes only {pipeline.outputs} per input",
        weight=int(row["n"][0]),
        witness=view.meta.witness,
    )


def _never(view: Observation, consumed: Observation, pipeline: Pipeline, out: Collector) -> int:
    """Find inputs without an output, for each part number. Return the number of missing outputs."""
    inputs = BitSet.of(inputs_of(consumed, pipeline))
    positions = [OffsetRef(topic, p, offset, offset) for topic, p, offset in consumed.meta.positions]
    number = 0
    for part in range(pipeline.outputs):
        missing = inputs.minus(BitSet.of(view.origins[view.origins["part"] == part]))
        number += len(missing)
        examples = [
            Example(
                what=f"inputs {ranges(sequences)} of producer {producer} lane {lane} are before the "
                f"position of group {pipeline.group} but have no output of part {part}",
                weight=len(sequences),
                witness=view.meta.witness,
                offsets=[*positions[:EXAMPLES], *input_offsets(consumed, producer, lane, sequences)],
            )
            for producer, lane, sequences in missing.first(EXAMPLES)
        ]
        found = Grouped({part: RecordSet(missing.keys, missing.bits)})
        out.add("never_processed", "inputs", found, examples, witness=view.meta.witness)
    return number
