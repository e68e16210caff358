"""The checkers find every anomaly planted in a model of Kafka's log, and raise no false alarm.

`pytest tests/property` runs 500 examples; `pytest --soak -m soak tests/property` runs 20,000. The example of
every failure is added to tests/planted as an explicit case.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from harness.evidence.checkers.model import ANOMALIES, Verdict
from harness.evidence.checkers.verdict import Judgement
from tests.property import pipelines, planting
from tests.property.model import World, worlds
from tests.property.pipelines import Pipe, pipes

QUICK = 500
SOAK = 20_000
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
PLACES = st.integers(0, 10_000)


def profile(examples: int) -> settings:
    # Draw the examples deterministically: a revision always runs the same ones, and a failure repeats on
    # every machine.
    return settings(max_examples=examples, deadline=None, suppress_health_check=SLOW, derandomize=True)


def assert_valid(judgement: Judgement) -> None:
    assert judgement.names() == [], judgement.encode().decode()
    assert judgement.verdict is Verdict.VALID, judgement.encode().decode()


def assert_found(name: str, companions: frozenset[str], judgement: Judgement) -> None:
    found = set(judgement.names())
    assert name in found, f"missed {name}: {judgement.encode().decode()}"
    assert found <= {name} | companions, judgement.encode().decode()
    assert judgement.verdict is Verdict.INVALID


def check_world(world: World) -> None:
    assert_valid(world.case().judge())
    world.with_raw_log = True
    assert_valid(world.case().judge())


def check_planted(name: str, world: World, place: int) -> None:
    planted, companions = planting.PLANTINGS[name]
    assume(planted(world, place))
    assert_found(name, companions, world.case().judge())


def check_pipe(name: str, pipe: Pipe, place: int) -> None:
    if name in pipelines.PLANTINGS:
        planted, companions = pipelines.PLANTINGS[name]
        planted(pipe, place)
        assert_found(name, companions, pipe.case().judge())
    else:
        assert_valid(pipe.case().judge())


NAMES = st.sampled_from(sorted(planting.PLANTINGS))
PIPE_NAMES = st.sampled_from(["correct", *sorted(pipelines.PLANTINGS)])


@profile(QUICK)
@given(world=worlds())
def test_correct_worlds_are_valid(world: World) -> None:
    check_world(world)


@profile(QUICK)
@given(name=NAMES, world=worlds(), place=PLACES)
def test_a_planted_anomaly_is_found_by_name(name: str, world: World, place: int) -> None:
    check_planted(name, world, place)


@profile(QUICK // 2)
@given(name=PIPE_NAMES, pipe=pipes(), place=PLACES)
def test_pipelines_are_judged_correctly(name: str, pipe: Pipe, place: int) -> None:
    check_pipe(name, pipe, place)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@profile(SOAK)
@given(world=worlds())
def test_soak_correct_worlds_are_valid(world: World) -> None:
    check_world(world)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@profile(SOAK)
@given(name=NAMES, world=worlds(), place=PLACES)
def test_soak_a_planted_anomaly_is_found_by_name(name: str, world: World, place: int) -> None:
    check_planted(name, world, place)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@profile(SOAK)
@given(name=PIPE_NAMES, pipe=pipes(), place=PLACES)
def test_soak_pipelines_are_judged_correctly(name: str, pipe: Pipe, place: int) -> None:
    check_pipe(name, pipe, place)


def test_every_anomaly_can_be_planted() -> None:
    planted = Counter([*planting.PLANTINGS, *pipelines.PLANTINGS])

    # The model has neither queries of a contract nor logs of coordinators. tests/contract_cases.py plants the
    # first of these, and tests/planted/cases_audit.py the others.
    elsewhere = ["wrong_output", "undecided_marker", "reused_sequence", "position_went_back"]
    assert sorted([*planted, *elsewhere]) == sorted(ANOMALIES)
