"""Split of an observation of inputs and outputs that Spark made in one pass (token.py explains slots)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from harness.evidence.bit_words import group_starts, popcount
from harness.evidence.observation import Findings, Observation, Rows
from harness.evidence.token import SLOT_PRODUCERS


def split_slots(observation: Observation, slots: Mapping[str, int]) -> dict[str, Observation]:
    """Return the observation of each output topic, by topic, and that of the inputs under the key "".

    `slots` contains the slot of each output topic.
    """
    return {
        "": _of_slot(observation, 0, slots),
        **{t: _of_slot(observation, s, slots) for t, s in slots.items()},
    }


def _of_slot(observation: Observation, slot: int, slots: Mapping[str, int]) -> Observation:
    windows = observation.meta.windows
    mine = [i for i, window in enumerate(windows) if slots.get(window.topic, 0) == slot]
    index = np.full(len(windows) + 1, -1, np.int64)
    index[mine] = np.arange(len(mine))

    def rows(table: Rows) -> Rows:
        own: Rows = table[table["producer"] // SLOT_PRODUCERS == slot].copy()
        own["producer"] -= slot * SLOT_PRODUCERS
        if "partition" in (own.dtype.names or ()):
            own["partition"] = index[own["partition"]]
        return own

    words, origins = rows(observation.words), rows(observation.origins)
    meta = msgspec.structs.replace(
        observation.meta,
        purpose="outputs" if slot else observation.meta.purpose,
        windows=[windows[i] for i in mine],
        records=int(words["n"].sum()),
        **{name: _findings(getattr(observation.meta, name), slot) for name in ("late", "repeats", "clashes")},
        twice=Findings(compared=int(origins["n"].sum())) if slot else Findings(),
        foreign=Findings() if slot else observation.meta.foreign,
    )
    meta.repeats.compared = meta.clashes.compared = meta.records
    meta.late.compared = _neighbours(words)
    runs = None if slot or observation.runs is None else rows(observation.runs)
    return Observation(meta, words, origins, runs)


def _findings(findings: Findings, slot: int) -> Findings:
    """Return the findings about the producers of a slot, with their numbers outside of the slot."""
    first = slot * SLOT_PRODUCERS
    by_producer = [(p - first, n) for p, n in findings.by_producer if p // SLOT_PRODUCERS == slot]
    examples = [
        msgspec.structs.replace(spot, producer=spot.producer - first)
        for spot in findings.examples
        if spot.producer // SLOT_PRODUCERS == slot
    ]
    count = sum(number for _, number in by_producer)
    return Findings(count=count, by_producer=by_producer, examples=examples)


def _neighbours(words: Rows) -> int:
    """Return the number of different records that have an earlier record in their lane and partition."""
    ordered = words[np.lexsort((words["lane"], words["producer"], words["partition"]))]
    lanes = len(group_starts(*(ordered[name] for name in ("partition", "producer", "lane"))))
    return max(0, int(popcount(words["bits"]).sum()) - lanes)
