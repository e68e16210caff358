"""Process of the tap. It has one listener per broker, and one for control on the loopback interface.

    python -m harness.tap.server FOLDER CLUSTER 1=ADDRESS=UPSTREAM 2=ADDRESS=UPSTREAM 3=ADDRESS=UPSTREAM

Each listener accepts connections at ADDRESS, and forwards them to UPSTREAM; both are of the form host:port.
When the process is ready, it writes the port of the control channel to FOLDER/control. It ends on SIGTERM.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec

from harness.base.addresses import Address, parse_address
from harness.base.errors import HarnessError, describe_error
from harness.cluster.layout import HOST
from harness.evidence.log_line import timestamps
from harness.tap import api_keys
from harness.tap.control_messages import (
    Ask,
    AskAccounts,
    AskArm,
    AskDisarm,
    AskFlush,
    AskLog,
    AskRelease,
    AskStatus,
    TapAnswer,
    TapStatus,
)
from harness.tap.counters import count
from harness.tap.frame_lines import Note
from harness.tap.hub import Hub
from harness.tap.relay import Relay, dial

CONTROL_FILE = "control"
_BACKLOG = 512
_CONTROL_LIMIT_S = 10.0
_MOST_CONTROL_BYTES = 1 << 20


class Server:
    """The listeners of one tap, and the tap's handlers for new connections and control requests."""

    def __init__(self, hub: Hub, listens: dict[int, Address]) -> None:
        self.hub = hub
        self.listens = listens
        self._tasks: set[asyncio.Task[None]] = set()
        self._sockets: list[socket.socket] = []

    def listen(self) -> None:
        """Open the listeners for clients."""
        for broker, address in list(self.listens.items()):
            listener = socket.create_server(address, backlog=_BACKLOG)
            listener.setblocking(False)
            self.listens[broker] = (address[0], listener.getsockname()[1])
            self._sockets.append(listener)
            self.hub.loop.add_reader(listener, self._accept, listener, broker)

    def close(self) -> None:
        """Close the listeners and every connection."""
        for listener in self._sockets:
            self.hub.loop.remove_reader(listener)
            listener.close()
        self.hub.close()

    def failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Count and print an unexpected exception in the event loop. The tap continues to run."""
        count(self.hub.stats.odd, "bug")
        loop.default_exception_handler(context)

    def _accept(self, listener: socket.socket, broker: int) -> None:
        try:
            client, _ = listener.accept()
        except OSError:
            count(self.hub.stats.odd, "unaccepted")  # the client closed the connection before accept()
            return
        client.setblocking(False)
        task = self.hub.loop.create_task(self._open(client, broker))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, client: socket.socket, broker: int) -> None:
        hub = self.hub
        conn = hub.connection()
        upstream = None
        try:
            upstream = await dial(hub.loop, *hub.upstreams[broker])
            relay = Relay(hub, conn, broker, client, upstream)
        except OSError as error:
            if upstream:  # the broker is connected, so the error means that the client has disconnected
                upstream.close()
            # If the broker is down, the client first gets a connection, and then this close ends the
            # connection. Toxiproxy behaves in the same way.
            client.close()
            what = "vanished" if upstream else "unreachable"
            count(hub.stats.odd, what)
            hub.log.put(Note(conn=conn, broker=broker, what=what, detail=str(error), **timestamps()))
            return
        hub.relays[conn] = relay
        relay.start()

    async def control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of the control channel."""
        try:
            async with asyncio.timeout(_CONTROL_LIMIT_S):
                line = await reader.readline()
                if line:
                    writer.write(msgspec.json.encode(self._answer(line)) + b"\n")
                    await writer.drain()
        except (OSError, ValueError, TimeoutError) as error:
            count(self.hub.stats.odd, "control")
            print(f"control: {describe_error(error)}", flush=True)
        finally:
            writer.close()

    def _answer(self, line: bytes) -> TapAnswer:
        try:
            return self._do(msgspec.json.decode(line, type=Ask))
        except HarnessError as error:
            return TapAnswer(error=error.message, hint=error.hint)
        except (msgspec.DecodeError, OSError) as error:
            return TapAnswer(
                error=str(error), hint="restart the cluster if another version of the harness started its tap"
            )

    def _do(self, ask: Ask) -> TapAnswer:
        hub = self.hub
        match ask:
            case AskStatus():
                return TapAnswer(status=self._status())
            case AskAccounts():
                return TapAnswer(accounts=hub.accounts())
            case AskArm(rule=rule):
                hub.arm(rule)
            case AskDisarm(id=rule_id):
                return TapAnswer(armed=hub.disarm(rule_id))
            case AskRelease(id=rule_id):
                return TapAnswer(released=hub.release(rule_id))
            case AskLog(path=None):
                hub.log.stop("requested")
            case AskLog(path=str(path)):
                hub.log.start(Path(path), ask.exchanges_per_s, ask.most_bytes)
            case AskFlush():
                hub.log.flush()
        return TapAnswer()

    def _status(self) -> TapStatus:
        hub = self.hub
        return TapStatus(
            pid=os.getpid(),
            listens={b: port for b, (_, port) in self.listens.items()},
            rules=list(hub.book.armed.values()),
            stats=hub.stats,
            upstreams={b: port for b, (_, port) in hub.upstreams.items()},
            open_connections=len(hub.relays),
            keeps=len(hub.kept),
            log=str(hub.log.path) if hub.log.path else None,
        )


async def serve(
    folder: Path, cluster: str, listens: dict[int, Address], upstreams: dict[int, Address]
) -> None:
    """Run the tap until SIGTERM."""
    api_keys.preload()
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, done.set)
    server = Server(Hub(loop, cluster, upstreams), listens)
    loop.set_exception_handler(server.failed)
    server.listen()
    control = await asyncio.start_server(server.control, HOST, 0, limit=_MOST_CONTROL_BYTES)
    new = folder / f"{CONTROL_FILE}.new"
    new.write_text(str(control.sockets[0].getsockname()[1]))
    new.replace(folder / CONTROL_FILE)
    await done.wait()
    control.close()
    server.close()


def main(arguments: list[str]) -> None:
    """Run the tap with the command-line arguments that the text of this module describes."""
    folder, cluster, *listeners = arguments
    ways = [listener.split("=") for listener in listeners]
    listens = {int(broker): parse_address(address) for broker, address, _ in ways}
    upstreams = {int(broker): parse_address(upstream) for broker, _, upstream in ways}
    asyncio.run(serve(Path(folder), cluster, listens, upstreams))


if __name__ == "__main__":
    main(sys.argv[1:])
