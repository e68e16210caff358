"""The identity of a record is decoded exactly, or refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.evidence import record
from harness.evidence.record import Identity, LaneEncoder, NotARecordError, Origin, decode, encode

VECTORS: dict[str, Any] = json.loads(
    resources.files("harness.evidence.schemas").joinpath("record-vectors.json").read_text()
)

origins = st.builds(
    Origin,
    st.integers(0, record.MAX_PRODUCER),
    st.integers(0, record.MAX_LANE),
    st.integers(0, record.MAX_SEQ),
    st.integers(0, record.MAX_PART),
    st.integers(0, record.MAX_PRODUCER),
)
identities = st.builds(
    Identity,
    st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=8, max_size=8),
    st.integers(0, record.MAX_PRODUCER),
    st.integers(0, record.MAX_LANE),
    st.integers(0, record.MAX_SEQ),
    st.integers(0, record.MAX_TXN),
    st.sampled_from(record.OUTCOMES),
    st.none() | origins,
)


@pytest.mark.parametrize("case", VECTORS["good"], ids=[str(n) for n in range(len(VECTORS["good"]))])
def test_every_published_vector_is_encoded_and_decoded(case: dict[str, Any]) -> None:
    fields = dict(case["identity"])
    origin = fields.pop("origin")
    identity = Identity(**fields, origin=Origin(**origin) if origin else None)
    value = case["value"].encode()

    assert encode(identity, case["payload"].encode()) == value
    assert decode(value) == identity


@pytest.mark.parametrize("case", VECTORS["bad"], ids=lambda case: case["why"])
def test_every_bad_vector_is_refused(case: dict[str, Any]) -> None:
    value = case["value"]

    with pytest.raises(NotARecordError):
        decode(value if value is None else value.encode())


@given(identity=identities, payload=st.binary(max_size=100))
def test_an_encoded_identity_is_decoded(identity: Identity, payload: bytes) -> None:
    value = encode(identity, payload)

    assert decode(value) == identity
    assert value.endswith(payload)
    assert len(value) - len(payload) == (48 if identity.origin is None else 80)


@given(value=st.binary(max_size=120))
def test_any_bytes_are_refused_or_read_and_never_crash(value: bytes) -> None:
    try:
        identity = decode(value)
    except NotARecordError:
        return
    assert encode(identity, value[48 if identity.origin is None else 80 :]) == value


def test_the_fields_cover_the_prefix_without_gap_or_overlap() -> None:
    end = 0
    for field in (*record.FIELDS, *record.ORIGIN_FIELDS):
        assert field.start == end
        end += field.width

    assert end == record.WIDTH + record.ORIGIN_WIDTH


def test_a_batch_is_the_same_as_single_records() -> None:
    lane = LaneEncoder("r7k2m9qa", 3, 1, b"payload")

    assert lane.batch(8, 3, 7, "c") == [
        encode(Identity("r7k2m9qa", 3, 1, seq, 7, "c"), b"payload") for seq in (8, 9, 10)
    ]
    assert lane.batch(8, 0) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: LaneEncoder("short", 0, 0),
        lambda: LaneEncoder("r7k2m9q-", 0, 0),
        lambda: LaneEncoder("r7k2m9qa", record.MAX_PRODUCER + 1, 0),
        lambda: LaneEncoder("r7k2m9qa", 0, -1),
        lambda: LaneEncoder("r7k2m9qa", 0, 0).batch(record.MAX_SEQ, 2),
        lambda: LaneEncoder("r7k2m9qa", 0, 0).batch(0, 1, txn=record.MAX_TXN + 1),
        lambda: LaneEncoder("r7k2m9qa", 0, 0).batch(0, 1, outcome="x"),
        lambda: LaneEncoder("r7k2m9qa", 0, 0).output(0, 0, "c", Origin(0, 0, 0, part=1000)),
    ],
    ids=["short run", "run with a dash", "producer", "lane", "sequence", "transaction", "outcome", "part"],
)
def test_a_number_that_does_not_fit_is_refused_before_it_shifts_the_fields(
    make: Callable[[], object],
) -> None:
    with pytest.raises(ValueError, match=r"must"):
        make()
