"""Requests of a client, read from frames: in the order of sending, each with its own answer."""

from __future__ import annotations

from harness.tap.decoded_fields import Facts
from harness.tap.frame_lines import Frame, Line, Side
from harness.walkthroughs.transaction_evidence import exchanges


def frame(side: Side, n: int, mono: int, *, conn: int = 1, client: str = "app", **facts: str) -> Frame:
    return Frame(
        mono=mono,
        wall=mono + 1,
        n=n,
        conn=conn,
        broker=3,
        side=side,
        key=26,
        api="EndTxn",
        version=1,
        correlation=n,
        bytes=10,
        client_id=client,
        facts=Facts(**facts),
    )


LOG: list[Line] = [
    frame("request", 1, 10),
    frame("request", 1, 11, conn=2),
    frame("response", 1, 12, conn=2, error="NOT_COORDINATOR"),
    frame("response", 1, 13),
    frame("request", 2, 14),
    frame("request", 1, 15, conn=3, client="other"),
]


def test_each_request_has_its_own_answer() -> None:
    assert [x.text for x in exchanges(LOG, "app", "EndTxn")] == [
        "EndTxn 1 at broker 3: NONE",
        "EndTxn 1 at broker 3: NOT_COORDINATOR",
        "EndTxn 1 at broker 3: no answer",
    ]


def test_requests_are_selected_by_api_and_time() -> None:
    assert exchanges(LOG, "app", "Produce") == []
    assert [x.asked_mono for x in exchanges(LOG, "app", since=11)] == [11, 14]
    assert [x.answered_wall for x in exchanges(LOG, "app")] == [14, 13, -1]
