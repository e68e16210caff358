"""A stand-in for Toxiproxy's HTTP interface that can answer late, hang, or ignore a change."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StandIn:
    """Server that holds proxies and toxics like Toxiproxy; `misbehave` replaces the answer to a request."""

    def __init__(self) -> None:
        self.proxies: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        # Maps "METHOD /path" to a replacement of the usual answer: a status code, "silence", or "nothing"
        # (status 200 without a change).
        self.misbehave: dict[str, int | str] = {}
        self.over = threading.Event()
        for name in ("proxied-1", "tapped-1"):
            self.proxies[name] = {
                "name": name,
                "listen": "127.0.0.1:1",
                "upstream": "127.0.0.1:2",
                "enabled": True,
                "toxics": [],
            }
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    @property
    def port(self) -> int:
        """The port that the stand-in listens on."""
        return int(self.server.server_address[1])

    def close(self) -> None:
        """Stop the server and end requests that wait for an answer."""
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def toxic(self, proxy: str, name: str, kind: str = "latency", **attributes: int) -> None:
        """Add a toxic directly, without a request."""
        toxic = {"name": name, "type": kind, "stream": "downstream", "attributes": attributes}
        self.proxies[proxy]["toxics"].append(toxic)

    def handle(self, method: str, path: str, body: Any) -> tuple[int, object]:
        """Answer a request as Toxiproxy does."""
        if path == "/version":
            return 200, {"version": "2.12.0"}
        match path.strip("/").split("/"):
            case ["proxies"] if method == "POST":
                self.proxies[body["name"]] = {**body, "toxics": []}
                return 201, self.proxies[body["name"]]
            case ["proxies"]:
                return 200, self.proxies
            case ["proxies", name] if name in self.proxies and method == "DELETE":
                del self.proxies[name]
                return 204, None
            case ["proxies", name, *rest] if name in self.proxies:
                return self._handle_proxy(self.proxies[name], method, rest, body)
            case _:
                return 404, {"error": "proxy not found"}

    def _handle_proxy(
        self, proxy: dict[str, Any], method: str, rest: list[str], body: Any
    ) -> tuple[int, object]:
        if not rest:
            proxy |= body or {}
            return 200, proxy
        if method == "POST" and rest == ["toxics"]:
            proxy["toxics"].append({key: value for key, value in body.items() if key != "toxicity"})
            return 200, body
        for toxic in proxy["toxics"]:
            if toxic["name"] == rest[1]:
                if method == "DELETE":
                    proxy["toxics"].remove(toxic)
                    return 204, None
                toxic["attributes"] |= body["attributes"]
                return 200, toxic
        return 404, {"error": "toxic not found"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                request = f"{self.command} {self.path}"
                data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                stand_in.requests.append(request)
                how = stand_in.misbehave.get(request)
                if how == "silence":
                    stand_in.over.wait(30)
                    return
                status, answer = (
                    (how if isinstance(how, int) else 200, {"error": "scripted error"})
                    if how
                    else stand_in.handle(self.command, self.path, json.loads(data) if data else None)
                )
                payload = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            do_GET = do_POST = do_PATCH = do_DELETE = do  # noqa: N815  # the names that http.server calls

            def log_message(self, *_: object) -> None:
                """Print nothing: http.server would print each request, but the tests read `requests`."""

        return Handler
