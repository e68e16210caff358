"""Every verb of the tap: the bytes that broker and client receive, and byte counts that add up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from harness.base.errors import UsageError
from harness.tap.rules import Rule
from tests.tap_rig import Rig, end_txn, end_txn_answer, rig

Test = Callable[[Rig], Awaitable[None]]


def with_rig(test: Test) -> Callable[[], None]:
    """Wrap an asynchronous test: run it on a new tap, and then check that the tap's byte counts add up."""

    async def run() -> None:
        async with rig() as made:
            await test(made)
            await made.settled()

    def call() -> None:
        asyncio.run(run())

    call.__name__ = test.__name__  # type: ignore[attr-defined]
    return call


@with_rig
async def test_without_a_rule_bytes_pass_unchanged(made: Rig) -> None:
    client = await made.client()

    assert await client.ask(end_txn(1)) == end_txn_answer(end_txn(1))
    assert made.broker.got == [end_txn(1)]
    assert made.hub.stats.requests == made.hub.stats.responses == {"EndTxn": 1}


@with_rig
async def test_lose_response_lets_the_broker_execute_and_cuts_the_client(made: Rig) -> None:
    made.arm(verb="lose_response")
    client = await made.client()

    assert await client.ask(end_txn(1)) == b""
    assert made.broker.got == [end_txn(1)]
    await made.settled()
    assert made.hub.stats.response_bytes.taken == len(end_txn_answer(end_txn(1)))
    assert [hit.did for hit in made.hits] == ["lost"]
    # The rule matches one frame only, so the retry passes.
    assert await (await made.client()).ask(end_txn(2)) == end_txn_answer(end_txn(2))


@with_rig
async def test_lose_request_never_reaches_the_broker(made: Rig) -> None:
    made.arm(verb="lose_request", nth=2)
    client = await made.client()

    assert await client.ask(end_txn(1)) == end_txn_answer(end_txn(1))
    assert await client.ask(end_txn(2), end_txn(3)) == b""
    await made.settled()
    assert made.broker.got == [end_txn(1)]
    # Frame 3 follows the lost frame 2 on the same connection, so frame 3 is lost too.
    assert made.hub.stats.request_bytes.taken == len(end_txn(2)) + len(end_txn(3))


@pytest.mark.parametrize("verb", ["lose_request", "lose_response"])
def test_silence_keeps_the_connection_open_without_carrying_bytes(verb: str) -> None:
    @with_rig
    async def run(made: Rig) -> None:
        made.arm(verb=verb, then="silence")
        client = await made.client()
        client.send(end_txn(1))
        assert await client.silent()
        client.send(end_txn(2))
        assert await client.silent()
        assert len(made.broker.got) == (2 if verb == "lose_response" else 0)

    run()


@with_rig
async def test_hold_keeps_a_frame_and_everything_behind_it_until_it_is_released(made: Rig) -> None:
    made.arm(verb="hold")
    client, other = await made.client(), await made.client()
    client.send(end_txn(1), end_txn(2))

    assert await client.silent()
    assert made.broker.got == []
    assert await other.ask(end_txn(9)) == end_txn_answer(end_txn(9))  # other connections are not affected
    assert made.hub.release("r") == 1
    assert await client.answer() == end_txn_answer(end_txn(1))
    assert await client.answer() == end_txn_answer(end_txn(2))
    assert [(hit.did, hit.answer) for hit in made.hits] == [("released", "NONE")]


@with_rig
async def test_a_held_frame_outlives_its_client(made: Rig) -> None:
    made.arm(verb="hold", drop_client=True)
    client = await made.client()

    assert await client.ask(end_txn(1)) == b""
    assert await (await made.client()).ask(end_txn(2)) == end_txn_answer(end_txn(2))
    made.hub.release("r")
    await made.until(lambda: made.hits[0].answer)
    assert made.broker.got == [end_txn(2), end_txn(1)]
    assert made.hits[0].answer == "NONE"


@with_rig
async def test_a_request_forwarded_before_a_cut_is_still_answered(made: Rig) -> None:
    made.broker.hasty = True
    made.arm(verb="hold", drop_client=True)
    await (await made.client()).ask(end_txn(1))

    made.hub.release("r")
    await made.until(lambda: made.hub.stats.responses.get("EndTxn") or not made.hub.relays)
    assert made.hits[0].answer == "NONE"


@with_rig
async def test_a_response_can_be_held(made: Rig) -> None:
    made.arm(verb="hold", side="response")
    client = await made.client()
    client.send(end_txn(1))

    assert await client.silent()
    assert made.broker.got == [end_txn(1)]
    made.hub.release("r")
    assert await client.answer() == end_txn_answer(end_txn(1))


@with_rig
async def test_hold_until_a_later_request_of_the_same_client_is_answered(made: Rig) -> None:
    made.arm(verb="hold", drop_client=True, until="EndTxn")
    assert await (await made.client()).ask(end_txn(1)) == b""

    await (await made.client()).ask(end_txn(2, client_id="stranger", tid="u"))
    assert len(made.broker.got) == 1
    await (await made.client()).ask(end_txn(3))
    await made.until(lambda: len(made.broker.got) == 3)
    assert made.broker.got[2] == end_txn(1)


@with_rig
async def test_a_frame_that_is_held_when_its_rule_is_disarmed_is_never_delivered(made: Rig) -> None:
    made.arm(verb="hold")
    client = await made.client()
    client.send(end_txn(1))
    await made.until(lambda: made.hits)

    armed = made.hub.disarm("r")
    assert await client.answer() == b""
    await made.settled()
    assert armed is not None
    assert [hit.did for hit in armed.hits] == ["discarded"]
    assert made.broker.got == []
    assert made.hub.stats.request_bytes.taken == len(end_txn(1))


@with_rig
async def test_a_held_frame_is_lost_after_the_limit(made: Rig) -> None:
    made.arm(verb="hold", seconds=0.05)
    client = await made.client()

    assert await client.ask(end_txn(1)) == b""
    assert made.broker.got == []
    assert [hit.did for hit in made.hits] == ["discarded"]


def test_a_held_frame_is_undeliverable_after_its_broker_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.tap.relay.LINGER_S", 0.05)

    @with_rig
    async def run(made: Rig) -> None:
        made.arm(verb="hold")
        client = await made.client()
        client.send(end_txn(1))
        await made.until(lambda: made.hits)
        made.broker.close()

        await made.until(lambda: made.hits[0].did == "undeliverable")
        assert made.hub.release("r") == 0
        await made.settled()
        assert made.hub.stats.request_bytes.undelivered == len(end_txn(1))

    run()


@with_rig
async def test_delay_delivers_every_match_later_and_in_order(made: Rig) -> None:
    made.arm(verb="delay", seconds=0.1, times=None)
    client = await made.client()
    start = time.monotonic()

    assert await client.ask(end_txn(1)) == end_txn_answer(end_txn(1))
    assert await client.ask(end_txn(2)) == end_txn_answer(end_txn(2))
    assert time.monotonic() - start >= 0.2
    assert [hit.did for hit in made.hits] == ["released", "released"]


@with_rig
async def test_a_delayed_frame_is_forwarded_when_its_rule_is_disarmed(made: Rig) -> None:
    made.arm(verb="delay", seconds=60)
    client = await made.client()
    client.send(end_txn(1))
    await made.until(lambda: made.hits)

    made.hub.disarm("r")
    assert await client.answer() == end_txn_answer(end_txn(1))


@pytest.mark.parametrize("side", ["request", "response"])
def test_duplicate_sends_the_same_bytes_again_on_another_connection(side: str) -> None:
    @with_rig
    async def run(made: Rig) -> None:
        made.arm(verb="duplicate", side=side)
        client = await made.client()

        assert await client.ask(end_txn(1)) == end_txn_answer(end_txn(1))
        await made.until(lambda: made.hits and made.hits[0].did == "delivered")
        assert made.broker.got == [end_txn(1), end_txn(1)]
        assert made.hits[0].answer == "NONE"
        assert made.hub.stats.duplicate_bytes == len(end_txn(1))
        assert await client.silent()  # the client does not get the answer to the duplicate

    run()


@with_rig
async def test_a_copy_can_wait_until_it_is_released(made: Rig) -> None:
    made.arm(verb="duplicate", until="Produce")
    client = await made.client()

    assert await client.ask(end_txn(1), end_txn(2)) == end_txn_answer(end_txn(1))
    await client.answer()
    assert made.hub.release("r") == 1
    await made.until(lambda: made.hits[0].did == "delivered")
    assert made.broker.got == [end_txn(1), end_txn(2), end_txn(1)]


@with_rig
async def test_a_copy_that_waits_is_dropped_with_its_rule(made: Rig) -> None:
    made.arm(verb="duplicate", seconds=60)
    await (await made.client()).ask(end_txn(1))

    made.hub.disarm("r")
    assert made.hub.kept == []
    assert made.broker.got == [end_txn(1)]


@with_rig
async def test_cut_after_a_request_delivers_it_and_loses_its_answer(made: Rig) -> None:
    made.arm(verb="cut_after", nth=2)
    client = await made.client()
    client.send(end_txn(1), end_txn(2), end_txn(3))

    assert await client.all() in (b"", end_txn_answer(end_txn(1)))  # answer 1 may arrive before the cut
    await made.settled()
    assert made.broker.got == [end_txn(1), end_txn(2)]
    assert made.hub.stats.request_bytes.taken == len(end_txn(3))


@with_rig
async def test_cut_after_a_response_delivers_it_and_nothing_more(made: Rig) -> None:
    made.arm(verb="cut_after", side="response")
    client = await made.client()

    assert await client.ask(end_txn(1)) == end_txn_answer(end_txn(1))
    client.send(end_txn(2))
    assert await client.answer() == b""
    assert made.broker.got == [end_txn(1)]


@pytest.mark.parametrize(
    ("fields", "hits"),
    [
        ({"client_id": "c"}, True),
        ({"client_id": "d"}, False),
        ({"transactional_id": "t"}, True),
        ({"transactional_id": "u"}, False),
        ({"brokers": (1,)}, True),
        ({"brokers": (2, 3)}, False),
        ({"api": "Produce"}, False),
        ({"topic": "orders"}, False),
    ],
    ids=str,
)
def test_a_rule_hits_only_if_its_selectors_match(fields: dict[str, object], hits: bool) -> None:
    @with_rig
    async def run(made: Rig) -> None:
        made.arm(**{"verb": "lose_response"} | fields)
        client = await made.client()
        assert bool(await client.ask(end_txn(1))) is not hits
        assert bool(made.hits) is hits

    run()


@with_rig
async def test_nth_and_times_select_the_matches_that_are_hit(made: Rig) -> None:
    made.arm(verb="duplicate", nth=2, times=2)
    client = await made.client()
    for number in range(1, 6):
        await client.ask(end_txn(number))

    await made.until(lambda: [hit.did for hit in made.hits] == ["delivered", "delivered"])
    assert made.broker.got.count(end_txn(2)) == made.broker.got.count(end_txn(3)) == 2
    assert len(made.broker.got) == 7


@with_rig
async def test_a_broker_that_is_down_closes_the_client_and_is_counted(made: Rig) -> None:
    made.hub.upstreams[1] = ("127.0.0.1", 1)
    assert await (await made.client()).ask(end_txn(1)) == b""
    assert made.hub.stats.odd == {"unreachable": 1}


@pytest.mark.parametrize(
    "fields",
    [
        {"api": "EndTransaction"},
        {"api": "EndTxn", "nth": 0},
        {"api": "EndTxn", "times": 0},
        {"api": "EndTxn", "verb": "delay"},
        {"api": "Produce", "partition": 1},
        {"api": "EndTxn", "until": "Commit"},
    ],
    ids=str,
)
def test_a_rule_that_can_never_hit_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Rule(**{"id": "r", "verb": "hold"} | fields).check()  # type: ignore[arg-type]


@with_rig
async def test_a_muted_client_is_silent_on_every_connection_until_the_rule_is_removed(made: Rig) -> None:
    made.arm(verb="lose_request", api="*", client_id="muted", times=None, then="silence")
    muted, later, other = await made.client(), await made.client(), await made.client()
    muted.send(end_txn(1, client_id="muted"))
    later.send(end_txn(2, client_id="muted"))

    assert await muted.silent()
    assert await later.silent()
    assert await other.ask(end_txn(3)) == end_txn_answer(end_txn(3))
    assert made.broker.got == [end_txn(3)]

    made.hub.disarm("r")
    assert await muted.all() == b"", "a silent connection is cut, so that its client connects again"
    assert await later.all() == b""
    again = end_txn(4, client_id="muted")
    assert await (await made.client()).ask(again) == end_txn_answer(again)
    assert await other.ask(end_txn(5)) == end_txn_answer(end_txn(5))


def test_a_rule_for_every_api_does_not_select_by_fields() -> None:
    with pytest.raises(UsageError, match="every api selects by fields"):
        Rule(id="r", verb="lose_request", api="*", topic="orders").check()
