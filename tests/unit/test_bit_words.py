"""Bit words and tables of records: what is merged, and what a ledger takes from repeated requests."""

from __future__ import annotations

import numpy as np

from harness.evidence.bit_words import merge
from harness.evidence.ledger import fold
from harness.evidence.observation import Meta, Window
from harness.evidence.observation_builder import Records, observe
from harness.evidence.record import Identity, Origin
from tests.planted.tiny import SECOND, Tiny


def test_merged_rows_have_the_lowest_and_the_highest_offset() -> None:
    columns = {
        "word": np.array([1, 0, 0, 0]),
        "lo": np.array([9, 5, 3, 7]),
        "hi": np.array([9, 5, 8, 7]),
        "n": np.array([1, 1, 2, 1]),
    }

    merged = merge([columns], ("word",))

    assert {name: column.tolist() for name, column in merged.items()} == {
        "word": [0, 1],
        "lo": [3, 9],
        "hi": [8, 9],
        "n": [4, 1],
    }


def test_a_word_of_inputs_may_have_more_outputs_than_sequences() -> None:
    records = Records()
    for offset in range(300):
        records.add(0, offset, Identity("r7k2m9qa", 9, 0, offset, 1, "c", Origin(1, 0, offset % 10)))
    window = Window(topic="t", partition=0, start=0, lso=300, hw=300, read_to=300)

    observed = observe(Meta(witness="w", kind="reference", windows=[window]), records)

    assert observed.origins["n"].tolist() == [300]
    assert observed.meta.twice.count == 290


def test_a_commit_that_was_repeated_lasts_from_its_first_request_to_its_last_answer() -> None:
    case = Tiny("@1-2 p1 commit info again a:0-4\n @5-6 p1 commit ok a:0-4", {"a": "p1:0-4 ."})
    groups = case.evidence().ledger.groups

    assert groups.asked.tolist() == [1 * SECOND]
    assert groups.answered.tolist() == [int(6.001 * SECOND)]


def test_one_request_in_flight_keeps_the_order_without_idempotence() -> None:
    loose = {"transactional_id": None, "idempotent": False, "acks": "1"}
    settings = {"p2": {**loose, "in_flight": 1}, "p3": {**loose, "in_flight": 5}}
    ledger = Tiny("p2 send ok a:0\n p3 send ok a:0", {"a": "p2:0 p3:0"}, settings).evidence().ledger

    assert {number: declared.contract.ordered for number, declared in ledger.producers.items()} == {
        2: True,
        3: False,
    }
    assert fold([]).producers == {}
