"""Comparison of a consumer group's position with the outputs of its pipeline.

The checker of the property `offsets` uses it.
"""

from __future__ import annotations

import numpy as np

from harness.evidence.bit_words import EXAMPLES, WORD_SEQS
from harness.evidence.checkers.bitsets import BitSet
from harness.evidence.checkers.distinct import RecordSet
from harness.evidence.checkers.model import Collector, Evidence, Example, OffsetRef, Pipeline
from harness.evidence.checkers.visibility_index import ranges
from harness.evidence.observation import Observation, Rows


def consumed_by(evidence: Evidence, group: str) -> list[Observation]:
    """Return the complete observations of the inputs before the consumer group's committed position."""
    return [
        view
        for view in evidence.observations
        if view.meta.purpose == "consumed" and view.meta.group == group and view.meta.complete
    ]


def inputs_of(observation: Observation, pipeline: Pipeline) -> Rows:
    """Return the words of the records in the pipeline's input topics."""
    windows = [i for i, window in enumerate(observation.meta.windows) if window.topic in pipeline.inputs]
    return observation.words[np.isin(observation.words["partition"], windows)]


def input_offsets(consumed: Observation, producer: int, lane: int, sequences: list[int]) -> list[OffsetRef]:
    """Return the offsets of the first EXAMPLES sequences in `sequences`.

    They are exact if the witness recorded runs of consecutive records. Otherwise each is the offset range of
    the sequence's word.
    """
    rows = consumed.words if consumed.runs is None else consumed.runs
    rows = rows[(rows["producer"] == producer) & (rows["lane"] == lane)]
    offsets = []
    for seq in sequences[:EXAMPLES]:
        if consumed.runs is None:
            match = rows[rows["word"] == seq // WORD_SEQS][:1]
            low, high = match["lo"], match["hi"]
        else:
            match = rows[(rows["seq"] <= seq) & (seq < rows["seq"] + rows["count"])][:1]
            low = high = match["offset"] + seq - match["seq"]
        for window, first, last in zip(
            *(column.tolist() for column in (match["partition"], low, high)), strict=True
        ):
            place = consumed.window(window)
            offsets.append(OffsetRef(place.topic, place.partition, first, last))
    return offsets


def check_positions(evidence: Evidence, pipeline: Pipeline, out: Collector) -> None:
    """Compare the group's position with the inputs that have outputs."""
    compared = RecordSet()
    for consumed in consumed_by(evidence, pipeline.group):
        inputs = BitSet.of(inputs_of(consumed, pipeline))
        for view in evidence.committed_views():
            if view.meta.complete:
                outputs = BitSet.of(view.origins)
                _compare(inputs, outputs, view.meta.witness, consumed, out)
                compared |= RecordSet(inputs.keys, inputs.bits) | RecordSet(outputs.keys, outputs.bits)
    out.compared += len(compared)


def _compare(inputs: BitSet, outputs: BitSet, witness: str, consumed: Observation, out: Collector) -> None:
    positions = [OffsetRef(topic, p, offset, offset) for topic, p, offset in consumed.meta.positions]
    for drift, what in (
        (inputs.minus(outputs), "are before the group's position but have no output"),
        (outputs.minus(inputs), "have outputs but are not before the group's position"),
    ):
        examples = [
            Example(
                what=f"inputs {ranges(sequences)} of producer {producer} lane {lane} {what}",
                weight=len(sequences),
                witness=witness,
                offsets=[*positions[:EXAMPLES], *input_offsets(consumed, producer, lane, sequences)],
            )
            for producer, lane, sequences in drift.first(EXAMPLES)
        ]
        out.add("offset_drift", "inputs", RecordSet(drift.keys, drift.bits), examples, witness=witness)
