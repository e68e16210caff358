"""HTTP sink of the harness: it records each call of the application as one row, then answers with 200.

A row has the method, the path, the headers and the body of the call. A call is recorded before it is
answered, so an application that was answered can rely on it, and a retry of an unanswered call is a second
call. A call whose body did not arrive as a whole is not recorded.
"""

from __future__ import annotations

import json
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final

LARGEST_BODY: Final = 16_000_000
"""Most bytes of a body. A larger one is refused with 413 and not recorded."""
IDLE_S: Final = 60.0
"""A connection without a call is closed after this time."""
PACKED: Final = ("gzip", "x-gzip", "deflate")
"""Encodings of a body that the sink unpacks."""
SECRET_HEADERS: Final = ("authorization", "proxy-authorization", "cookie")
"""Headers that are not recorded."""


class HttpSink:
    """Server on a free port of the loopback address, which writes one line for each call into a file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._lock = Lock()
        self.calls = 0
        """Number of recorded calls."""
        sink = self

        class Handler(_Handler):
            def take(self, row: dict[str, Any]) -> int:
                return sink._take(row)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), name="http-sink", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Address of the sink, without a slash at its end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Accept no further call, and complete the file. A second call does nothing."""
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            self._file.close()

    def _take(self, row: dict[str, Any]) -> int:
        """Record a call; return its number, or 0 if the sink is closed."""
        line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._file.closed:
                return 0
            self._file.write(line)
            self._file.flush()
            self.calls += 1
            return self.calls


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S

    def take(self, row: dict[str, Any]) -> int:
        raise NotImplementedError

    def _call(self) -> None:
        body = self._body()
        if body is None:
            self.close_connection = True
            return
        encoding = self.headers.get("Content-Encoding", "").strip().lower()
        if body and encoding in PACKED and len(body) <= LARGEST_BODY:
            body = _unpacked(body)
            if body is None:
                self._refuse(400, f"the body is not complete, or not {encoding}")
                return
        elif encoding not in ("", "identity", *PACKED):
            known = ", ".join(PACKED)
            self._refuse(415, f"the sink cannot read {encoding}: send {known}, or no Content-Encoding")
            return
        if len(body) > LARGEST_BODY:
            self._refuse(413, "the body is too large")
            return
        row = {
            "method": self.command,
            "path": self.path,
            "headers": {
                name.lower(): value
                for name, value in self.headers.items()
                if name.lower() not in SECRET_HEADERS
            },
            "body": _decoded(body),
        }
        number = self.take(row)
        self.close_connection = self.close_connection or not number
        self._answer(200 if number else 503, b'{"call":%d}\n' % number)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _call  # noqa: N815 - names of the library

    def _body(self) -> bytes | None:
        """Return the body; None if it is not complete."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return _unchunked(self.rfile)
        try:
            size = int(self.headers.get("Content-Length") or 0)
        except ValueError:
            return None
        if size > LARGEST_BODY:
            return b" " * (LARGEST_BODY + 1)  # it is refused unread
        body = self.rfile.read(size)
        return body if len(body) == size else None

    def _refuse(self, status: int, reason: str) -> None:
        self.close_connection = True
        self._answer(status, f"{reason}\n".encode())

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing: the rows are the log."""


def _decoded(body: bytes) -> object:
    """Return the value of a JSON body; the text of any other body."""
    try:
        return json.loads(body) if body else ""
    except (ValueError, RecursionError):
        return body.decode(errors="replace")


def _unpacked(body: bytes) -> bytes | None:
    """Return a body that was sent with gzip or deflate; None if it is not complete."""
    for header in (zlib.MAX_WBITS | 32, -zlib.MAX_WBITS):  # that of gzip or zlib, or none
        unpacker = zlib.decompressobj(header)
        try:
            content = unpacker.decompress(body, LARGEST_BODY + 1)
        except zlib.error:
            continue
        return content if unpacker.eof or len(content) > LARGEST_BODY else None
    return None


def _unchunked(stream: BufferedIOBase) -> bytes | None:
    """Return a body that was sent in chunks; None if it is not complete."""
    body = b""
    while True:
        try:
            size = int(stream.readline(1000).split(b";")[0], 16)
        except ValueError:
            return None
        chunk = stream.read(size)
        if len(chunk) != size or len(body) + size > LARGEST_BODY:
            return None if len(chunk) != size else b" " * (LARGEST_BODY + 1)
        body += chunk
        while (line := stream.readline(1000)) != b"\r\n":
            if size or not line:
                return None  # behind the last chunk, there may be further headers
        if not size:
            return body
