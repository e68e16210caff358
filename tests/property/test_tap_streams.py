"""Any bytes sent through the tap arrive unchanged, and the tap's byte counters are consistent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.tap.framing import Framer, Kind
from harness.tap.rules import Rule
from tests.tap_rig import end_txn, rig


def sized(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


heads = st.builds(
    lambda key, version, correlation, name, body: sized(
        key.to_bytes(2, "big", signed=True)
        + version.to_bytes(2, "big", signed=True)
        + correlation.to_bytes(4, "big")
        + len(name).to_bytes(2, "big", signed=True)
        + name
        + body
    ),
    st.sampled_from([0, 1, 3, 10, 18, 22, 24, 25, 26, 28]) | st.integers(-5, 200),
    st.integers(-1, 20),
    st.integers(0, 3),
    st.binary(max_size=4),
    st.binary(max_size=200),
)
whole = st.builds(sized, st.binary(max_size=60)) | heads | st.builds(end_txn, st.integers(0, 3))
strange = st.sampled_from([b"\xff\xff\xff\xff", b"\x16\x03\x01", b"\x7f\xff\xff\xff", b"\x00\x00", b"\x00"])
"""Irregular bytes: negative or excessive lengths, the start of a TLS record, and incomplete lengths."""

streams = st.lists(whole | whole | whole | strange | st.binary(max_size=30), max_size=8).map(b"".join)
cuts = st.lists(st.integers(1, 300), max_size=12)


def pieces_of(data: bytes, sizes: list[int]) -> list[bytes]:
    """Cut data into pieces of these sizes, and one piece with the rest."""
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [piece for piece in (*pieces, data) if piece]


def check_framer(data: bytes, sizes: list[int], most: int) -> None:
    framer = Framer(most)
    out, kinds, whole_frames = b"", [], []
    for piece in pieces_of(data, sizes):
        framer.push(piece)
        while (found := framer.next()) is not None:
            out += found.data
            kinds.append(found.kind)
            if found.kind is Kind.FRAME:
                assert len(found.data) == 4 + int.from_bytes(found.data[:4], "big") <= 4 + most
                whole_frames.append(found.data)
    assert out + framer.drain() == data
    # The frames must not depend on the pieces in which the bytes arrive.
    other = Framer(most)
    other.push(data)
    uncut = []
    while (found := other.next()) is not None:
        if found.kind is Kind.FRAME:
            uncut.append(found.data)
    assert whole_frames == uncut


async def pump(requests: bytes, responses: bytes, sizes: list[int], rule: Rule | None) -> None:
    """Send a stream in each direction through a tap, in pieces, and compare the bytes that arrive."""
    async with rig(None, to_send=responses) as made:
        if rule:
            made.hub.arm(rule)
        client = await made.client()
        for piece in pieces_of(requests, sizes):
            client.send(piece)
            await asyncio.sleep(0)
        client.writer.write_eof()
        got = await client.all()
        await made.settled()
        await made.until(lambda: made.broker.ends == 1)
        hits = made.hub.book.armed[rule.id].hits if rule else []
        if not hits:
            assert made.broker.raw == requests
            assert got == responses
        else:
            assert requests.startswith(made.broker.raw) or rule is None or rule.verb == "lose_response"
        stats = made.hub.stats
        assert stats.request_bytes.received == stats.request_bytes.sent + stats.request_bytes.taken
        assert stats.request_bytes.sent == len(made.broker.raw)


@pytest.fixture(autouse=True, scope="module")
def _short_linger() -> Iterator[None]:
    """Shorten the relay's wait before it closes a cut connection, because this broker never answers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harness.tap.relay.LINGER_S", 0.05)
        yield


verbs = st.sampled_from(["lose_request", "lose_response", "cut_after", "hold"])
rules = st.none() | st.builds(
    lambda verb, tid: Rule(id="r", verb=verb, api="EndTxn", transactional_id=tid, seconds=0.001),
    verbs,
    st.none() | st.just("t"),
)


@settings(deadline=None)
@given(streams, cuts, st.sampled_from([20, 10_000]))
def test_cutting_into_frames_keeps_every_byte(data: bytes, sizes: list[int], most: int) -> None:
    check_framer(data, sizes, most)


@settings(max_examples=60, deadline=None)
@given(streams, streams, cuts, rules)
def test_byte_counters_are_consistent_for_any_stream(
    requests: bytes, responses: bytes, sizes: list[int], rule: Rule | None
) -> None:
    asyncio.run(pump(requests, responses, sizes, rule))


@pytest.mark.soak
@settings(max_examples=5_000, deadline=None)
@given(streams, cuts, st.sampled_from([20, 10_000]))
def test_cutting_many_streams_into_frames_keeps_every_byte(data: bytes, sizes: list[int], most: int) -> None:
    check_framer(data, sizes, most)


@pytest.mark.soak
@settings(max_examples=3_000, deadline=None)
@given(streams, streams, cuts, rules)
def test_byte_counters_are_consistent_for_many_streams(
    requests: bytes, responses: bytes, sizes: list[int], rule: Rule | None
) -> None:
    asyncio.run(pump(requests, responses, sizes, rule))
