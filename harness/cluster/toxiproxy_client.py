"""Typed client of one Toxiproxy server, built on the library toxiproxy-python.

The library can change proxies and toxics. This module adds four things: a time limit for each request, an
error for each failed request, support for several servers in one process, and a read-back after each change.

Latency toxics are removed in two steps. Toxiproxy blocks for seconds if a latency toxic is deleted right
after a client has disconnected. This module therefore sets the latency to zero before it deletes the toxic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import requests
import toxiproxy.api
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import ProxyExists
from toxiproxy.proxy import Proxy as LibraryProxy
from toxiproxy.server import Toxiproxy as LibraryServer

from harness.base.errors import HarnessError

Stream = Literal["upstream", "downstream"]
_T = TypeVar("_T")
_TIME_LIMIT_S = 3.0
_DRAIN_S = 0.05
_LOOK = "look at `eos status`; `eos heal` restores every proxy"
_RESTART = "`eos heal` restarts a wedged Toxiproxy"


class ToxiproxyError(HarnessError):
    """Error: Toxiproxy refused a request, or a change had no effect."""


class ToxiproxyWedgedError(ToxiproxyError):
    """Error: Toxiproxy did not answer within the time limit, or returned status 503. It must be restarted."""


@dataclass(frozen=True)
class Toxic:
    """A toxic as Toxiproxy's HTTP interface describes it."""

    name: str
    type: str
    stream: Stream
    attributes: Mapping[str, int]


@dataclass(frozen=True)
class Proxy:
    """A proxy as Toxiproxy's HTTP interface describes it."""

    name: str
    listen: str
    upstream: str
    enabled: bool
    toxics: tuple[Toxic, ...] = field(default=())


class Toxiproxy:
    """Client of one Toxiproxy server."""

    def __init__(self, host: str, port: int) -> None:
        self._url = f"http://{host}:{port}"
        self._session = requests.Session()
        self._session.trust_env = False  # Toxiproxy runs on loopback, so HTTP_PROXY must not apply

    def proxies(self) -> list[Proxy]:
        """Return every proxy of the server, with the toxics that the proxy has now."""
        return [_proxy(data) for data in self._get("/proxies").values()]

    def proxy(self, name: str) -> Proxy:
        """Return the proxy with this name, with the toxics that it has now."""
        return _proxy(self._get(f"/proxies/{name}"))

    def set_enabled(self, proxy: str, enabled: bool) -> None:
        """Open or close a proxy. Closing a proxy cuts its connections and makes it refuse new ones."""
        handle = self._handle(proxy)
        self._call(handle.enable if enabled else handle.disable)
        if self.proxy(proxy).enabled != enabled:
            raise ToxiproxyError(f"proxy {proxy} did not become {'open' if enabled else 'closed'}", _LOOK)

    def add_proxy(self, name: str, listen: str, upstream: str) -> None:
        """Add a proxy.

        `listen` is an address of the host on which Toxiproxy runs. `upstream` is the address to which the
        proxy connects.
        """
        try:
            self._call(lambda: LibraryServer().create(upstream, name, listen, enabled=True))
        except ProxyExists as error:
            raise ToxiproxyError(f"proxy {name} exists already", _LOOK) from error

    def remove_proxy(self, name: str) -> None:
        """Remove a proxy and cut its connections."""
        self._call(self._handle(name).destroy)

    def set_upstream(self, proxy: str, upstream: str) -> None:
        """Change the upstream address of a proxy.

        This cuts its open connections. New connections go to the new address.
        """
        self._post(f"/proxies/{proxy}", {"upstream": upstream})
        if self.proxy(proxy).upstream != upstream:
            raise ToxiproxyError(f"proxy {proxy} did not change its upstream to {upstream}", _LOOK)

    def add_toxic(
        self,
        proxy: str,
        name: str,
        kind: str,
        stream: Stream,
        attributes: Mapping[str, int],
        *,
        toxicity: float = 1.0,
    ) -> None:
        """Add a toxic and read it back. `toxicity` is the share of the connections that the toxic affects.

        The read-back detects misspelt attributes. Toxiproxy ignores a misspelt attribute, so the intended
        attribute would stay at zero.
        """
        wanted = dict(attributes)
        handle = self._handle(proxy)
        self._call(
            lambda: handle.add_toxic(
                name=name, type=kind, stream=stream, toxicity=toxicity, attributes=wanted
            )
        )
        added = self._toxic(proxy, name)
        if added is None or any(added.attributes.get(key) != value for key, value in wanted.items()):
            raise ToxiproxyError(f"toxic {name} of {proxy} differs: requested {wanted}, found {added}", _LOOK)

    def update_toxic(self, proxy: str, name: str, attributes: Mapping[str, int]) -> None:
        """Change the attributes of a toxic."""
        self._post(f"/proxies/{proxy}/toxics/{name}", {"attributes": dict(attributes)})

    def remove_toxic(self, proxy: str, name: str) -> None:
        """Remove a toxic in a way that does not block the server. Do nothing if the toxic does not exist."""
        toxic = self._toxic(proxy, name)
        if toxic is None:
            return
        if toxic.type == "latency":
            self.update_toxic(proxy, name, {"latency": 0, "jitter": 0})
            # Toxiproxy may still hold delayed bytes. It does not report them, so wait for a fixed time.
            time.sleep(_DRAIN_S)
        handle = self._handle(proxy)
        self._call(lambda: handle.destroy_toxic(name))
        if self._toxic(proxy, name) is not None:
            raise ToxiproxyError(f"toxic {name} of {proxy} still exists after its removal", _LOOK)

    def version(self) -> str:
        """Return the version that the Toxiproxy server reports, as text."""
        return str(self._get("/version").get("version"))

    def _handle(self, proxy: str) -> LibraryProxy:
        return LibraryProxy(**self._get(f"/proxies/{proxy}"))

    def _toxic(self, proxy: str, name: str) -> Toxic | None:
        return next((toxic for toxic in self.proxy(proxy).toxics if toxic.name == name), None)

    # The library returns proxies without their toxics, and it cannot update a toxic. Therefore `_get` and
    # `_post` call the library's API client directly.
    def _get(self, path: str) -> Any:
        return self._call(lambda: APIConsumer.get(path).json())

    def _post(self, path: str, body: object) -> Any:
        return self._call(lambda: APIConsumer.post(path, json=body).json())

    def _call(self, use_library: Callable[[], _T]) -> _T:
        """Call a function that uses the library, and make the library's requests go to this server."""
        token = _server.set(self)
        try:
            return use_library()
        finally:
            _server.reset(token)

    def send(self, method: str, path: str, **content: Any) -> requests.Response:
        """Send one request within the time limit.

        Raise ToxiproxyError, ToxiproxyWedgedError or ConnectionError if it fails.
        """
        try:
            answer = self._session.request(method, self._url + path, timeout=_TIME_LIMIT_S, **content)
        except requests.Timeout as error:
            raise ToxiproxyWedgedError(
                f"Toxiproxy did not answer {method} {path} in {_TIME_LIMIT_S} s", _RESTART
            ) from error
        except requests.RequestException as error:
            # ConnectionError is an OSError. `wait_until` repeats a call that raises OSError, so a wait for
            # Toxiproxy's start works.
            raise ConnectionError(f"Toxiproxy at {self._url} cannot be reached: {error}") from error
        if answer.status_code == 503:
            raise ToxiproxyWedgedError(f"Toxiproxy returned 503 for {method} {path}", _RESTART)
        if not answer.ok:
            body = content.get("json")
            raise ToxiproxyError(
                f"{method} {path} of {body}: {answer.status_code} {answer.text.strip()[:200]}", _LOOK
            )
        return answer


_server: ContextVar[Toxiproxy] = ContextVar("_server")


class _BoundedRequests:
    """Replacement for the module `requests` inside the library toxiproxy-python.

    The library itself sets no time limit, and it has only one server address for the whole process. With this
    replacement, each request goes to the server of the Toxiproxy object that called the library. Threads can
    therefore use different servers at the same time.
    """

    def get(self, url: str, **content: Any) -> requests.Response:
        return _server.get().send("GET", urlsplit(url).path, **content)

    def post(self, url: str, **content: Any) -> requests.Response:
        return _server.get().send("POST", urlsplit(url).path, **content)

    def delete(self, url: str, **content: Any) -> requests.Response:
        return _server.get().send("DELETE", urlsplit(url).path, **content)


toxiproxy.api.requests = _BoundedRequests()


def _proxy(data: Mapping[str, Any]) -> Proxy:
    toxics = tuple(Toxic(t["name"], t["type"], t["stream"], t["attributes"]) for t in data["toxics"])
    return Proxy(data["name"], data["listen"], data["upstream"], data["enabled"], toxics)
