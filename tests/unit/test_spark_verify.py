from __future__ import annotations

import random

import pytest

from harness.errors import ExitCode
from harness.observation import Findings, Window
from harness.spark.telling import exit_code_of, tell
from harness.spark.verify import SelfEvident, Verified, self_evident
from tests.spark.generated import RUN, by_words, draw_flaws, draw_shape, generate, ours


def alone(**given: object) -> SelfEvident:
    fields: dict[str, object] = {
        "run": RUN,
        "records": 5,
        "lanes": 1,
        "missing": 0,
        "aborted_intent": 0,
        "gaps": [],
    }
    fields |= {"duplicates": Findings(), "reordered": Findings(), "foreign": Findings()}
    return SelfEvident(**{**fields, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(10))
def test_density_is_that_of_the_distinct_sequences(seed: int) -> None:
    rng = random.Random(seed)
    log = generate(rng, draw_shape(rng), draw_flaws(rng))
    found = self_evident(RUN, by_words(log, 100), 0)
    lanes: dict[tuple[int, int], set[int]] = {}
    offsets = set()
    for partition, offset, value in log.rows:
        identity = ours(value)
        if identity and (partition, offset) not in offsets:
            offsets.add((partition, offset))
            lanes.setdefault((identity.producer, identity.lane), set()).add(identity.seq)
    assert found.lanes == len(lanes)
    assert found.missing == sum(max(seqs) + 1 - len(seqs) for seqs in lanes.values())
    assert sum(gap.missing for gap in found.gaps) == found.missing


@pytest.mark.parametrize(
    ("one", "code"),
    [
        (alone(), ExitCode.VALID),
        (alone(missing=1), ExitCode.UNKNOWN),
        (alone(records=0), ExitCode.UNKNOWN),
        (alone(aborted_intent=1), ExitCode.ANOMALY),
        (alone(duplicates=Findings(count=1), missing=4), ExitCode.ANOMALY),
        (alone(reordered=Findings(count=1)), ExitCode.ANOMALY),
    ],
)
def test_exit_codes_without_a_ledger(one: SelfEvident, code: ExitCode) -> None:
    found = Verified([], [], alone=[one])
    assert exit_code_of(found) == code
    assert any("not checked: " in line for line in tell(found))


def test_a_hanging_transaction_is_an_anomaly_and_named() -> None:
    window = Window("t", 3, 0, 7, 9, 7)
    found = Verified([window], [window], alone=[alone()])
    assert exit_code_of(found) == ExitCode.ANOMALY
    assert "hanging_transaction: t-3 is stable to 7 of 9 only" in tell(found)


def test_nothing_at_all_is_unknown() -> None:
    assert exit_code_of(Verified([], [])) == ExitCode.UNKNOWN
