"""Aggregates: the counts and sums of a stateful pipeline match its inputs.

Anomaly:

    the count or sum of a key differs from that of its inputs      aggregate_drift

The expected values are computed from the input topic up to the group's position. They do not depend on the
pipeline's worker or its changelog. Correct outputs do not prove correct totals. A worker that does not
restore its state after an abort counts the same inputs twice, although each output exists once.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from harness.evidence.bit_words import EXAMPLES
from harness.evidence.changelog_record import KEYS, NOTHING, Totals
from harness.evidence.checkers.model import Collector, Evidence, Example, OffsetRef, Pipeline, Result
from harness.evidence.checkers.positions import consumed_by
from harness.evidence.observation import Observation

Key = tuple[int, int]
"""Partition number and key of an aggregate.

The inputs of a key and its changelog records are in partitions with the same number.
"""


class _Reported(NamedTuple):
    totals: Totals
    offset: int


def check(evidence: Evidence) -> Result:
    """Compare the totals in the changelog with the totals computed from the pipeline's inputs."""
    out = Collector("aggregates", "keys")
    pipeline = evidence.expect.pipeline
    if pipeline is None or not pipeline.changelog:
        out.reasons.append("the run's pipeline has no changelog")
        return out.result()
    inputs = [view for view in consumed_by(evidence, pipeline.group) if view.runs is not None]
    if not inputs:
        out.reasons.append(f"no witness read the inputs up to the position of group {pipeline.group}")
    changelogs = [
        view for view in evidence.observations if view.meta.purpose == "aggregates" and view.meta.complete
    ]
    if not changelogs:
        out.reasons.append(f"no witness read the changelog {pipeline.changelog} to its end")
    compared: set[Key] = set()
    for consumed in inputs:
        expected = totals_of_inputs(consumed, pipeline)
        for changelog in changelogs:
            compared |= _compare(expected, changelog, pipeline, out)
    out.compared = len(compared)
    return out.result()


def totals_of_inputs(consumed: Observation, pipeline: Pipeline) -> dict[Key, Totals]:
    """Return the number of inputs of each key and the sum of their sequences."""
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


def _compare(
    expected: dict[Key, Totals], changelog: Observation, pipeline: Pipeline, out: Collector
) -> set[Key]:
    """Report the keys whose totals are wrong, and return all keys that were compared."""
    reported: dict[Key, _Reported] = {}
    assert changelog.aggregates is not None
    for window, key, inputs, total, offset in changelog.aggregates.tolist():
        reported[changelog.window(window).partition, key] = _Reported(Totals(inputs, total), offset)
    keys = sorted(expected.keys() | reported.keys())
    absent = _Reported(NOTHING, -1)
    wrong = [key for key in keys if expected.get(key, NOTHING) != reported.get(key, absent).totals]
    examples = [
        _example(key, expected.get(key, NOTHING), reported.get(key, absent), changelog, pipeline)
        for key in wrong
    ]
    worst = sorted(examples, key=lambda example: -example.weight)[:EXAMPLES]
    found: frozenset[Hashable] = frozenset(wrong)
    out.add("aggregate_drift", "keys", found, worst, witness=changelog.meta.witness)
    return set(keys)


def _example(
    key: Key, expected: Totals, reported: _Reported, changelog: Observation, pipeline: Pipeline
) -> Example:
    partition, number = key
    extra = reported.totals.inputs - expected.inputs
    difference = (
        f"{extra} inputs too many" if extra > 0 else f"{-extra} inputs missing" if extra else "a wrong sum"
    )
    return Example(
        what=f"key {number} of partition {partition}: {reported.totals.inputs} inputs with sum "
        f"{reported.totals.total} in the changelog, {expected.inputs} inputs with sum {expected.total} in "
        f"the input topic: {difference}",
        weight=max(1, abs(extra)),
        witness=changelog.meta.witness,
        offsets=[OffsetRef(pipeline.changelog, partition, reported.offset, reported.offset)]
        if reported.offset >= 0
        else [],
    )
