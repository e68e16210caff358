"""Writer of the frame log. It decodes frames only after they were forwarded, and within limits.

The log must not slow the tap. Frames wait in a queue and are decoded in short slices between socket events.
An exchange is a request and its answer. If a limit of the log is reached (exchanges per second, file size or
queue size), the log keeps only the exchanges that control transactions. It counts the other exchanges per
api.
"""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections import deque
from pathlib import Path
from typing import IO

import msgspec

from harness.base.errors import describe_error
from harness.evidence.log_line import clock_id, timestamps
from harness.tap.counters import Stats, count
from harness.tap.frame_decoder import Decoder
from harness.tap.frame_lines import FORMAT, Frame, FrameLogClosed, FrameLogOpened, Line, Sampled

# Apis whose requests control transactions and groups. Their exchanges are always logged, even if the tap is
# busy.
ALWAYS = frozenset(
    {
        "FindCoordinator",
        "InitProducerId",
        "JoinGroup",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "TxnOffsetCommit",
        "EndTxn",
        "WriteTxnMarkers",
    }
)
EXCHANGES_PER_S = 500
MOST_BYTES = 200 * 1024 * 1024
_SLICE_S = 0.002  # maximum time for decoding before the event loop serves the sockets again
_MOST_WAITING = 32 * 1024 * 1024
_SECOND_NS = 1_000_000_000


class FrameLog:
    """Writer of one frame log after another, each in a run directory.

    While no log is open, it discards the lines that it receives.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, stats: Stats, decoder: Decoder, cluster: str) -> None:
        self._loop = loop
        self._stats = stats
        self._decoder = decoder
        self._cluster = cluster
        self._encode = msgspec.json.Encoder().encode
        self._file: IO[bytes] | None = None
        self._queue: deque[tuple[Line, bytes]] = deque()
        self._waiting = 0
        self._scheduled = False
        self._written = 0
        self._window = 0
        self._spent = 0
        self._skipped: dict[str, int] = {}
        self._since = 0
        self._rate = EXCHANGES_PER_S
        self._most = MOST_BYTES
        self.path: Path | None = None

    def start(self, path: Path, rate: int, most: int) -> None:
        """Start a log in a new file, and stop the previous log. Raise FileExistsError if the file exists."""
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("xb")
        self.stop("another log was started")
        self._file, self.path, self._rate, self._most, self._written = file, path, rate, most, 0
        self._since = time.monotonic_ns()
        self.put(
            FrameLogOpened(
                format=FORMAT,
                cluster=self._cluster,
                host=platform.node(),
                pid=os.getpid(),
                clock=clock_id(),
                exchanges_per_s=rate,
                most_bytes=most,
                **timestamps(),
            )
        )

    def stop(self, reason: str) -> None:
        """Write the queued lines and a closing line, and close the file."""
        if self._file is None:
            return
        self.put(FrameLogClosed(reason=reason, **timestamps()))
        self.flush()
        if self._file is not None:
            self._file.close()
        self._file, self.path = None, None

    def wants(self, api: str, mono: int) -> bool:
        """Return whether to log an exchange (a request and its answer) that begins now.

        If a limit forbids it, count the exchange as not logged.
        """
        if self._file is None:
            return False
        if mono - self._window >= _SECOND_NS:
            self._window, self._spent = mono, 0
            self._log_skipped(mono)
        if api in ALWAYS:
            return True
        if self._spent >= self._rate or self._written >= self._most or self._waiting >= _MOST_WAITING:
            count(self._skipped, api)
            count(self._stats.not_logged, api)
            return False
        self._spent += 1
        return True

    def put(self, line: Line, raw: bytes = b"") -> None:
        """Queue a line. The frame in `raw`, if any, is decoded just before the line is written."""
        if self._file is None:
            return
        self._queue.append((line, raw))
        self._waiting += len(raw)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._work)

    def flush(self) -> None:
        """Write all queued lines now."""
        self._log_skipped(time.monotonic_ns())
        while self._queue:
            self._write_next()
        self._sync()

    def _work(self) -> None:
        self._scheduled = False
        end = time.monotonic() + _SLICE_S
        while self._queue and time.monotonic() < end:
            self._write_next()
        if self._queue:
            self._scheduled = True
            self._loop.call_soon(self._work)
        else:
            self._sync()

    def _write_next(self) -> None:
        line, raw = self._queue.popleft()
        self._waiting -= len(raw)
        if raw and isinstance(line, Frame) and line.facts is None:
            self._decode(line, raw)
        if self._file is None:
            return
        data = self._encode(line) + b"\n"
        try:
            self._written += self._file.write(data)
        except OSError as error:
            self._give_up(error)

    def _decode(self, line: Frame, raw: bytes) -> None:
        """Add the decoded fields of a frame to its line, or the reason why the frame cannot be decoded."""
        decode = self._decoder.request if line.side == "request" else self._decoder.response
        try:
            line.facts = decode(line.key, line.version, raw)
        except Exception as error:  # noqa: BLE001 - the log names any error of a decoder
            count(self._stats.odd, "undecodable")
            line.undecoded = describe_error(error)[:200]

    def _log_skipped(self, mono: int) -> None:
        if self._skipped:
            self.put(Sampled(since=self._since, exchanges=self._skipped, **timestamps()))
            self._skipped = {}
        self._since = mono

    def _sync(self) -> None:
        if self._file is None:
            return
        try:
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """End the log after a write error, without a closing line. The tap continues to forward bytes."""
        self._stats.log_errors += 1
        print(f"the frame log {self.path} ended: {error}", flush=True)
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError:
                self._stats.log_errors += 1  # close() tried to write the buffer again, and failed again
