"""Spark's pure parts: clashes at one offset, and segments whose sequences do not rise."""

from __future__ import annotations

import numpy as np

from harness.evidence.record import Identity, Origin, encode
from spark_jobs.scan_observation import _not_rising
from tests.spark.generated import RUN, Log, by_words


def test_two_outputs_at_one_offset_that_name_different_inputs_clash() -> None:
    first, second = (encode(Identity(RUN, 0, 0, 5, origin=Origin(1, 0, seq, 0))) for seq in (7, 8))
    for batch in (1, 10):
        clashes = by_words(Log(1, [(0, 3, first), (0, 3, second)]), batch).meta.clashes
        assert (clashes.count, [spot.offset for spot in clashes.examples]) == (1, [3])
        assert by_words(Log(1, [(0, 3, first), (0, 3, first)]), batch).meta.clashes.count == 0


def test_a_row_that_starts_at_the_highest_sequence_before_it_does_not_rise() -> None:
    key, last = np.array([1, 1, 1, 2]), np.array([5, 9, 20, 3])
    assert _not_rising(key, np.array([0, 5, 10, 0]), last).tolist() == [False, True, False, False]
    assert _not_rising(key, np.array([0, 6, 9, 0]), last).tolist() == [False, False, True, False]
