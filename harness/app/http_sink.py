"""HTTP sink of the harness: it records each call of the application as one row, then answers with 200.

A row has the method, the path, the headers and the body of the call. A call is recorded before it is
answered, so an application that was answered can rely on it, and a retry of an unanswered call is a second
call. A call whose body did not arrive as a whole is not recorded.

A body may be packed with gzip or deflate (header Content-Encoding). A call that the sink cannot record is
refused with a status and counted. The output is then not known, so nothing counts as missing from it.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final

LARGEST_BODY: Final = 16_000_000
"""Most bytes of a body, packed or unpacked. A larger one is refused with 413 and not recorded."""
IDLE_S: Final = 60.0
"""A connection without a call is closed after this time."""
SECRET_HEADERS: Final = ("authorization", "proxy-authorization", "cookie")
"""Headers that are not recorded."""
PLAIN: Final = ("", "identity")
"""Values of Content-Encoding for a body that is not packed."""
DEFLATE: Final = "deflate"
ENCODINGS: Final = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, DEFLATE: zlib.MAX_WBITS}
"""Values of Content-Encoding that the sink unpacks, with the format of each for zlib."""
MOST_PARTS: Final = 1000
"""Most parts of a packed body, one behind the other."""
REFUSED: Final = ".refused"
"""End of the name of the file that describes the calls that were refused."""


class HttpSink:
    """Server on a free port of the loopback address, which writes one line for each call into a file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = path.open("wb")
        self._lock = Lock()
        self.calls = 0
        """Number of recorded calls."""
        self._refused: Counter[str] = Counter()
        self._server = _Server(self)
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), name="http-sink", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Address of the sink, without a slash at its end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def refused(self) -> str:
        """Description of the calls that were refused; empty if there were none."""
        with self._lock:
            return self._describe_refused()

    def _describe_refused(self) -> str:
        return ", ".join(f"{count} calls: {why}" for why, count in sorted(self._refused.items()))

    def close(self) -> None:
        """Accept no further call, and complete the file. A second call does nothing."""
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            self._file.close()

    def take(self, row: dict[str, Any]) -> int:
        """Record a call; return its number, or 0 if the sink is closed."""
        line = json.dumps(row, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._file.closed:
                return 0
            self._file.write(line)
            self._file.flush()
            self.calls += 1
            return self.calls

    def refuse(self, why: str) -> None:
        """Count a call that is refused, and describe all of them in a file beside that of the rows."""
        with self._lock:
            self._refused[why] += 1
            self._path.with_suffix(REFUSED).write_text(self._describe_refused())


class RefusedCallError(Exception):
    """Error: a call cannot be recorded. It has the status of the answer."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, sink: HttpSink) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.sink = sink


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    server: _Server

    def _call(self) -> None:
        try:
            packed = self._body()
            if packed is None:
                self.close_connection = True
                return
            body = unpacked(packed, self.headers.get("Content-Encoding", ""))
        except RefusedCallError as error:
            self.server.sink.refuse(error.why)
            self.close_connection = True
            self._answer(error.status, f"{error.why}\n".encode())
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
        number = self.server.sink.take(row)
        self.close_connection = self.close_connection or not number
        self._answer(200 if number else 503, b'{"call":%d}\n' % number)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _call  # noqa: N815 - names of the library

    def _body(self) -> bytes | None:
        """Return the body as it was sent; None if it is not complete."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return _unchunked(self.rfile)
        try:
            size = int(self.headers.get("Content-Length") or 0)
        except ValueError:
            return None
        if size < 0:
            return None
        if size > LARGEST_BODY:
            raise _too_large()  # it is refused unread
        body = self.rfile.read(size)
        return body if len(body) == size else None

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if status == 415:
            self.send_header("Accept-Encoding", ", ".join(ENCODINGS))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing: the rows are the log."""


def unpacked(body: bytes, encoding: str) -> bytes:
    """Return a body without its packing. Raise RefusedCallError if that is not possible.

    A packed body may consist of several parts. No more than LARGEST_BODY bytes are unpacked.
    """
    name = encoding.strip().lower()
    if name in PLAIN or not body:
        return body
    if name not in ENCODINGS:
        known = ", ".join(ENCODINGS)
        raise RefusedCallError(415, f"the sink cannot read {name[:40]}: send {known}, or no Content-Encoding")
    found, rest, parts, is_bare = b"", body, 0, False
    while rest:
        if (parts := parts + 1) > MOST_PARTS:
            raise RefusedCallError(400, f"the body has more than {MOST_PARTS} packed parts")
        part = zlib.decompressobj(-zlib.MAX_WBITS if is_bare else ENCODINGS[name])
        try:
            found += part.decompress(rest, LARGEST_BODY + 1 - len(found))
        except zlib.error:
            if name != DEFLATE or is_bare:
                raise RefusedCallError(400, f"the body is not complete, or not {name}") from None
            is_bare = True  # some clients send deflate without the header of zlib
            continue
        if len(found) > LARGEST_BODY:
            raise _too_large()
        if not part.eof:
            raise RefusedCallError(400, f"the body is not complete, or not {name}")
        rest = part.unused_data
    return found


def _too_large() -> RefusedCallError:
    return RefusedCallError(413, "the body is too large")


def _decoded(body: bytes) -> object:
    """Return the value of a JSON body; the text of any other body."""
    try:
        return json.loads(body) if body else ""
    except (ValueError, RecursionError):
        return body.decode(errors="replace")


def _unchunked(stream: BufferedIOBase) -> bytes | None:
    """Return a body that was sent in chunks; None if it is not complete."""
    body = b""
    while True:
        try:
            size = int(stream.readline(1000).split(b";")[0], 16)
        except ValueError:
            return None
        if size < 0:
            return None
        if len(body) + size > LARGEST_BODY:
            raise _too_large()
        chunk = stream.read(size)
        if len(chunk) != size:
            return None
        body += chunk
        while (line := stream.readline(1000)) != b"\r\n":
            if size or not line:
                return None  # behind the last chunk, there may be further headers
        if not size:
            return body
