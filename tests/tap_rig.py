"""A complete tap in one event loop, between a client that sends given bytes and a scripted broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from harness.cluster.layout import HOST
from harness.tap.framing import request_head
from harness.tap.hub import Hub
from harness.tap.rules import Hit, Rule
from harness.tap.server import Server

LIMIT_S = 10.0
Answer = Callable[[bytes], bytes]


def framed(message: Any, correlation: int = 1, client_id: str = "c") -> bytes:
    """Return the bytes of a kafka-python message on the wire."""
    if message.is_request():
        message.with_header(correlation_id=correlation, client_id=client_id)
    else:
        message.with_header(correlation_id=correlation)
    return bytes(message.encode(header=True, framed=True))


def end_txn(correlation: int = 1, *, tid: str = "t", client_id: str = "c", committed: bool = True) -> bytes:
    """Return an EndTxn request as librdkafka sends it."""
    from kafka.protocol.producer import EndTxnRequest

    request = EndTxnRequest(
        transactional_id=tid, producer_id=7, producer_epoch=0, committed=committed, version=1
    )
    return framed(request, correlation, client_id)


def end_txn_answer(frame: bytes) -> bytes:
    """Return a broker's answer to an EndTxn request, without an error."""
    from kafka.protocol.producer import EndTxnResponse

    return framed(EndTxnResponse(error_code=0, version=1), request_head(frame).correlation)


def raw_answer(frame: bytes) -> bytes:
    """Return an answer to any request: its correlation id and four more bytes."""
    return (8).to_bytes(4, "big") + frame[8:12] + b"body"


class Broker:
    """A broker that records the bytes it receives, and answers every frame if it has an answer function."""

    def __init__(self, answer: Answer | None) -> None:
        self.got: list[bytes] = []
        self.raw = b""
        self.ends = 0
        self.to_send = b""
        self.hasty = False
        """Whether to close a connection, as Kafka does, as soon as the client has closed it.

        Answers that are still pending are then not sent.
        """
        self._answer = answer
        self._writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        if self.to_send:
            writer.write(self.to_send)
        try:
            await self._frames(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError) as end:
            self.raw += getattr(end, "partial", b"")
        self.ends += 1
        writer.close()

    async def _frames(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._answer is None:
            while data := await reader.read(65536):
                self.raw += data
            return
        while True:
            size = await reader.readexactly(4)
            frame = size + await reader.readexactly(int.from_bytes(size, "big"))
            self.got.append(frame)
            if self.hasty:
                await asyncio.sleep(0.05)
                if reader.at_eof():
                    return
            writer.write(self._answer(frame))

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


class Client:
    """A connection to the tap."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, *frames: bytes) -> bytes:
        """Send frames and return the next answer; return no bytes if the connection ends first."""
        self.send(*frames)
        return await self.answer()

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    async def answer(self) -> bytes:
        try:
            async with asyncio.timeout(LIMIT_S):
                size = await self.reader.readexactly(4)
                return size + await self.reader.readexactly(int.from_bytes(size, "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    async def silent(self, seconds: float = 0.1) -> bool:
        """Return whether nothing arrives for some seconds: neither data nor the end of the connection."""
        try:
            async with asyncio.timeout(seconds):
                await self.reader.read(1)
        except TimeoutError:
            return True
        return False

    async def all(self) -> bytes:
        """Return all bytes that arrive until the connection ends."""
        try:
            async with asyncio.timeout(LIMIT_S):
                return await self.reader.read()
        except ConnectionError:
            return b""


class Rig:
    """A tap with its broker and its clients."""

    def __init__(self, hub: Hub, port: int, broker: Broker) -> None:
        self.hub = hub
        self.port = port
        self.broker = broker
        self._clients: list[Client] = []

    async def client(self) -> Client:
        client = Client(*await asyncio.open_connection(HOST, self.port))
        self._clients.append(client)
        return client

    def arm(self, **fields: Any) -> None:
        """Arm a rule with the id `r`."""
        self.hub.arm(Rule(**{"id": "r", "api": "EndTxn", "verb": "hold"} | fields))

    @property
    def hits(self) -> list[Hit]:
        return self.hub.book.armed["r"].hits

    async def until(self, condition: Callable[[], object]) -> None:
        """Run the event loop until a condition holds."""
        async with asyncio.timeout(LIMIT_S):
            while not condition():
                await asyncio.sleep(0.001)

    async def settled(self) -> None:
        """Close every client, and check that the tap has accounted for every byte that it received."""
        for client in self._clients:
            client.writer.close()
        await self.until(lambda: not self.hub.relays)
        assert "unaccounted" not in self.hub.stats.odd
        for account in self.hub.accounts():
            assert (account.request.inside, account.response.inside) == (0, 0)

    def close(self) -> None:
        for client in self._clients:
            client.writer.close()


@asynccontextmanager
async def rig(answer: Answer | None = end_txn_answer, to_send: bytes = b"") -> AsyncIterator[Rig]:
    """Start a tap in front of one broker, and close both at the end."""
    broker = Broker(answer)
    broker.to_send = to_send
    upstream = await asyncio.start_server(broker.serve, HOST, 0)
    port = upstream.sockets[0].getsockname()[1]
    hub = Hub(asyncio.get_running_loop(), "test", {1: (HOST, port)})
    server = Server(hub, {1: (HOST, 0)})
    server.listen()
    made = Rig(hub, server.listens[1][1], broker)
    try:
        yield made
    finally:
        made.close()
        server.close()
        broker.close()
        upstream.close()
        await upstream.wait_closed()
