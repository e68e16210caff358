"""The verdict on a part of a flow: what a reader sees of a few producers, held against their histories."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec
import numpy as np

from harness.evidence.checkers.consumer_reads import observation_of, reads_of
from harness.evidence.checkers.model import Evidence, Expect
from harness.evidence.checkers.verdict import Judgement, judge
from harness.evidence.history import HistoryFile
from harness.evidence.ledger import fold
from harness.evidence.observation import Observation


def judge_part(
    histories: Iterable[HistoryFile], seen: Sequence[Observation], producers: Collection[int]
) -> Judgement:
    """Judge these producers' records and transactions alone; the others' records are left out of sight."""
    ledger = fold(histories)
    observations = [only(one, producers) for one in seen]
    observations += [observation_of(reads) for reads in reads_of(ledger)]
    expect = Expect(hold_to="exactly_once", properties=["exactly_once", "atomicity"])
    return judge(Evidence(ledger, observations, expect))


def only(seen: Observation, producers: Collection[int]) -> Observation:
    """What a witness saw of some producers."""
    wanted = list(producers)
    words = seen.words[np.isin(seen.words["producer"], wanted)]
    runs = None if seen.runs is None else seen.runs[np.isin(seen.runs["producer"], wanted)]
    meta = msgspec.structs.replace(seen.meta, records=int(words["n"].sum()))
    return Observation(meta, words, seen.origins, runs)
