"""Bytes that are not a frame, or cannot be decoded, pass unchanged; the tap counts and logs them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from harness.tap import frame_lines
from harness.tap.frame_lines import Line
from harness.tap.framing import MOST_BYTES, Framer, Head, Kind, MalformedError, request_head
from tests.tap_rig import Answer, Rig, end_txn, raw_answer, rig


def through(sent: bytes, *, answer: Answer | None = None, log: Path | None = None) -> tuple[Rig, bytes]:
    """Send bytes through a tap and end the connection; return the rig and the bytes that its broker got.

    The rig contains the tap, its broker and its clients.
    """

    async def run() -> tuple[Rig, bytes]:
        async with rig(answer) as made:
            if log:
                made.hub.log.start(log, 500, 1 << 30)
            client = await made.client()
            client.send(sent)
            client.writer.write_eof()
            await client.all()
            await made.settled()
            await made.until(lambda: made.broker.ends == 1)
            return made, b"".join(made.broker.got) + made.broker.raw

    return asyncio.run(run())


def log_of(path: Path) -> list[Line]:
    return [msgspec.json.decode(line, type=Line) for line in path.read_bytes().splitlines()]


def test_tls_passes_undecoded_and_is_logged(tmp_path: Path) -> None:
    hello = b"\x16\x03\x01\x00\x05hello" * 100

    made, got = through(hello, log=tmp_path / "frames.jsonl")

    assert got == hello
    assert made.hub.stats.blind == {"tls": 1}
    assert made.hub.stats.odd == {}  # TLS does not count as irregular
    notes = [line for line in log_of(tmp_path / "frames.jsonl") if isinstance(line, frame_lines.Note)]
    assert [(n.what, n.detail) for n in notes] == [("blind", "request: tls")]


@pytest.mark.parametrize(
    ("sent", "odd"),
    [
        (b"\xff\xff\xff\xfe" + b"x" * 40, "malformed"),
        (b"GET / HTTP/1.1\r\n\r\n", "oversized"),
        ((MOST_BYTES + 1).to_bytes(4, "big") + b"y" * 1000, "oversized"),
        (b"\x00\x00\x00\x03abc", "malformed"),
        (b"\x00\x00\x00\x00", "malformed"),
        (b"\x00\x00\x00\x10" + b"\x00\x12\x00\x00\x00\x00\x00\x01\x7f\xff" + b"abcdef", "malformed"),
        (end_txn(1)[:-3], "truncated"),
        (end_txn(1)[:2], "truncated"),
    ],
    ids=["negative", "http", "too-long", "short", "empty", "client-id", "cut", "cut-length"],
)
def test_bytes_that_are_not_a_frame_pass_and_are_counted_and_logged(
    sent: bytes, odd: str, tmp_path: Path
) -> None:
    made, got = through(sent, log=tmp_path / "frames.jsonl")

    assert got == sent
    assert made.hub.stats.odd.get(odd) == 1
    notes = [line for line in log_of(tmp_path / "frames.jsonl") if isinstance(line, frame_lines.Note)]
    assert notes


def test_a_frame_that_cannot_be_decoded_passes_and_is_logged_with_the_reason(tmp_path: Path) -> None:
    # An EndTxn request with a correct head and an invalid body.
    broken = end_txn(1)[:15] + b"\x7f" * 20
    broken = (len(broken) - 4).to_bytes(4, "big") + broken[4:]

    made, got = through(broken, answer=raw_answer, log=tmp_path / "frames.jsonl")

    assert got == broken
    assert made.hub.stats.odd["undecodable"] == 2  # the request and the broker's answer
    frames = [line for line in log_of(tmp_path / "frames.jsonl") if isinstance(line, frame_lines.Frame)]
    assert all(f.facts is None and f.undecoded for f in frames)


@pytest.mark.parametrize(
    ("key", "version", "counter"),
    [(999, 0, "unknown_api"), (26, 99, "newer_version"), (0, -1, "newer_version")],
)
def test_unknown_apis_and_newer_versions_pass_and_are_counted(
    key: int, version: int, counter: str, tmp_path: Path
) -> None:
    body = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + b"\0\0\0\1\0\1c" + b"new" * 50
    frame = len(body).to_bytes(4, "big") + body

    made, got = through(frame, answer=raw_answer, log=tmp_path / "frames.jsonl")

    assert got == frame
    assert getattr(made.hub.stats, counter) == {f"{key}:{version}": 1}
    assert made.hub.stats.odd == {}
    frames = [line for line in log_of(tmp_path / "frames.jsonl") if isinstance(line, frame_lines.Frame)]
    assert [(f.side, f.undecoded) for f in frames] == [("request", counter), ("response", counter)]


def test_an_answer_without_a_request_passes_and_is_counted() -> None:
    async def run() -> None:
        async with rig(raw_answer, to_send=b"\x00\x00\x00\x06\x00\x00\x00\x63ab") as made:
            client = await made.client()
            assert await client.answer() == b"\x00\x00\x00\x06\x00\x00\x00\x63ab"
            assert made.hub.stats.odd == {"unmatched": 1}
            await made.settled()

    asyncio.run(run())


def test_a_rule_that_decodes_requests_ignores_broken_frames() -> None:
    async def run() -> None:
        async with rig(raw_answer) as made:
            made.arm(verb="lose_request", transactional_id="t")
            broken = end_txn(1)[:15] + b"\x7f" * 20
            broken = (len(broken) - 4).to_bytes(4, "big") + broken[4:]
            assert await (await made.client()).ask(broken) == raw_answer(broken)
            assert made.hits == []
            assert made.hub.stats.odd["undecodable"] == 1
            await made.settled()

    asyncio.run(run())


def test_incomplete_frames_are_forwarded_while_no_rule_is_armed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.tap.relay.LINGER_S", 0.1)  # this broker never answers, so do not wait long

    async def run() -> None:
        async with rig(None) as made:
            client = await made.client()
            client.send(end_txn(1)[:20])
            await made.until(lambda: made.broker.raw == end_txn(1)[:20])
            made.arm(verb="lose_request")  # frame 1 is partly forwarded, so the rule acts on frame 2 only
            client.send(end_txn(1)[20:], end_txn(2))
            await made.until(lambda: made.hits)
            await made.settled()
            assert made.broker.raw == end_txn(1)

    asyncio.run(run())


def test_an_incomplete_frame_is_forwarded_when_the_last_rule_is_disarmed() -> None:
    async def run() -> None:
        async with rig(None) as made:
            made.arm(verb="lose_request")
            client = await made.client()
            client.send(end_txn(1)[:20])
            await made.until(lambda: made.hub.accounts() and made.hub.accounts()[0].request.received == 20)
            assert made.broker.raw == b""
            made.hub.disarm("r")
            await made.until(lambda: made.broker.raw == end_txn(1)[:20])
            await made.settled()

    asyncio.run(run())


def test_the_head_of_a_request_equals_kafka_pythons() -> None:
    import io

    from kafka.protocol.api_header import RequestHeader

    frame = end_txn(77, client_id="grüße")
    theirs = RequestHeader.decode(io.BytesIO(frame[4:]))
    assert request_head(frame) == Head(
        theirs.request_api_key, theirs.request_api_version, theirs.correlation_id, theirs.client_id
    )
    with pytest.raises(MalformedError):
        request_head(frame[:9])


def test_an_oversized_frame_is_skipped_and_the_next_one_is_found() -> None:
    framer = Framer(most=10)
    framer.push(b"\x00\x00\x00\x0b" + b"x" * 5)
    first = framer.next()
    framer.push(b"x" * 6 + b"\x00\x00\x00\x01y")
    pieces = [framer.next(), framer.next(), framer.next()]
    assert first is not None
    assert first.kind is Kind.OVERSIZED
    assert [p and (p.kind, p.data) for p in pieces] == [
        (Kind.REST, b"x" * 6),
        (Kind.FRAME, b"\x00\x00\x00\x01y"),
        None,
    ]
