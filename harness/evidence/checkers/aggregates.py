"""Aggregates: what a stateful pipeline has counted and summed is what its inputs come to.

    a key whose count or sum is not that of its inputs      aggregate_drift

The truth is counted anew, from the input topic up to the group's position, by a reader that knows nothing of
the worker and its changelog. Outputs that stand once each prove nothing here: a state that was not rebuilt
after an abort has the same inputs twice.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.evidence.bit_words import EXAMPLES
from harness.evidence.changelog_record import KEYS, NOTHING, Totals
from harness.evidence.checkers.model import Collector, Evidence, Example, OffsetRef, Pipeline, Result
from harness.evidence.checkers.positions import consumed_by
from harness.evidence.observation import Observation

Key = tuple[int, int]
"""Partition of the input and of the changelog, and key."""


class _Said(NamedTuple):
    totals: Totals
    offset: int


def check(evidence: Evidence) -> Result:
    """Compare the changelog's last word on every key with the inputs that the group has passed."""
    out = Collector("aggregates", "keys")
    pipeline = evidence.expect.pipeline
    if pipeline is None or not pipeline.changelog:
        out.reasons.append("the run names no changelog")
        return out.result()
    counted = [one for one in consumed_by(evidence, pipeline) if one.runs is not None]
    if not counted:
        out.reasons.append(f"no witness read the inputs up to the position of group {pipeline.group}")
    told = [one for one in evidence.observations if one.meta.purpose == "aggregates" and one.meta.complete]
    if not told:
        out.reasons.append(f"no witness read the changelog {pipeline.changelog} to its end")
    for consumed in counted:
        truth = true_totals(consumed, pipeline)
        for view in told:
            _compare(truth, view, pipeline, out)
    return out.result()


def true_totals(consumed: Observation, pipeline: Pipeline) -> dict[Key, Totals]:
    """Count and sum the inputs key by key, every record that stands in the log."""
    assert consumed.runs is not None
    totals: dict[Key, Totals] = {}
    for index, window in enumerate(consumed.meta.windows):
        if window.topic not in pipeline.inputs:
            continue
        runs = consumed.runs[consumed.runs["partition"] == index]
        before = np.repeat(runs["seq"] - (np.cumsum(runs["count"]) - runs["count"]), runs["count"])
        sequences = before + np.arange(len(before))
        keys = sequences % KEYS
        counts, sums = np.bincount(keys, minlength=KEYS), np.zeros(KEYS, np.int64)
        np.add.at(sums, keys, sequences)
        for key in np.flatnonzero(counts).tolist():
            totals[window.partition, key] = Totals(int(counts[key]), int(sums[key]))
    return totals


def _compare(truth: dict[Key, Totals], view: Observation, pipeline: Pipeline, out: Collector) -> None:
    said: dict[Key, _Said] = {}
    assert view.aggregates is not None
    for window, key, inputs, total, offset in view.aggregates.tolist():
        said[view.window(window).partition, key] = _Said(Totals(inputs, total), offset)
    keys = sorted(truth.keys() | said.keys())
    out.compared += len(keys)
    nothing = _Said(NOTHING, -1)
    wrong = [key for key in keys if truth.get(key, NOTHING) != said.get(key, nothing).totals]
    examples = [
        _example(key, truth.get(key, NOTHING), said.get(key, nothing), view, pipeline) for key in wrong
    ]
    worst = sorted(examples, key=lambda example: -example.weight)[:EXAMPLES]
    out.add("aggregate_drift", "keys", len(wrong), worst)


def _example(key: Key, true: Totals, said: _Said, view: Observation, pipeline: Pipeline) -> Example:
    partition, number = key
    more = said.totals.inputs - true.inputs
    how = f"{more} counted too many" if more > 0 else f"{-more} not counted" if more else "another sum"
    return Example(
        what=f"key {number} of partition {partition} is said to have {said.totals.inputs} inputs with sum "
        f"{said.totals.total}, and has {true.inputs} with sum {true.total}: {how}",
        weight=max(1, abs(more)),
        witness=view.meta.witness,
        offsets=[OffsetRef(pipeline.changelog, partition, said.offset, said.offset)]
        if said.offset >= 0
        else [],
    )
