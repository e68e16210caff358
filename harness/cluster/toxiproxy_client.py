"""A small typed client of Toxiproxy over toxiproxy-python, which has no time limits and trusts answers.

The library gives the proxies and their toxics; this class adds a time limit on every request, an error for
every bad status, updates, and a removal that cannot wedge the server: deleting a latency toxic right after
a client went away blocks Toxiproxy for seconds, so its delay is first updated to nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import requests

from harness.base.errors import HarnessError

Stream = Literal["upstream", "downstream"]
_TIME_LIMIT_S = 3.0
_DRAIN_S = 0.05


class ToxiproxyError(HarnessError):
    """Toxiproxy refused a request, or did not answer in time."""


class ToxiproxyWedgedError(ToxiproxyError):
    """Toxiproxy does not answer in time, as after a removal that blocks it: it must be restarted."""


@dataclass(frozen=True)
class Toxic:
    """A toxic as Toxiproxy reports it."""

    name: str
    type: str
    stream: Stream
    attributes: Mapping[str, int]


@dataclass(frozen=True)
class Proxy:
    """A proxy as Toxiproxy reports it."""

    name: str
    listen: str
    upstream: str
    enabled: bool
    toxics: tuple[Toxic, ...] = field(default=())


class Toxiproxy:
    """One Toxiproxy server."""

    def __init__(self, host: str, port: int) -> None:
        self._url = f"http://{host}:{port}"
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy for the web is none for loopback

    def proxies(self) -> list[Proxy]:
        """Every proxy with its toxics, read from the server."""
        return [_proxy(data) for data in self._call("GET", "/proxies").values()]

    def proxy(self, name: str) -> Proxy:
        """One proxy, read from the server."""
        return _proxy(self._call("GET", f"/proxies/{name}"))

    def set_enabled(self, proxy: str, enabled: bool) -> None:
        """Open or close a proxy; closing cuts its connections and refuses new ones."""
        self._call("PATCH", f"/proxies/{proxy}", {"enabled": enabled})
        if self.proxy(proxy).enabled != enabled:
            raise ToxiproxyError(f"proxy {proxy} did not become {'open' if enabled else 'closed'}", _LOOK)

    def add_proxy(self, name: str, listen: str, upstream: str) -> None:
        """Add a proxy that listens at an address of Toxiproxy's own host."""
        self._call(
            "POST", "/proxies", {"name": name, "listen": listen, "upstream": upstream, "enabled": True}
        )

    def remove_proxy(self, name: str) -> None:
        """Remove a proxy with its connections."""
        self._call("DELETE", f"/proxies/{name}")

    def set_upstream(self, proxy: str, upstream: str) -> None:
        """Lead a proxy elsewhere; its connections are cut, and new ones go there."""
        self._call("PATCH", f"/proxies/{proxy}", {"upstream": upstream})
        if self.proxy(proxy).upstream != upstream:
            raise ToxiproxyError(f"proxy {proxy} did not take {upstream} as its upstream", _LOOK)

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
        """Add a toxic for every connection, or for a share of them, and read it back.

        A misspelt attribute is taken as zero.
        """
        wanted = dict(attributes)
        self._call(
            "POST",
            f"/proxies/{proxy}/toxics",
            {"name": name, "type": kind, "stream": stream, "toxicity": toxicity, "attributes": wanted},
        )
        found = next((t for t in self.proxy(proxy).toxics if t.name == name), None)
        if found is None or any(found.attributes.get(k) != v for k, v in wanted.items()):
            raise ToxiproxyError(f"toxic {name} of {proxy} was asked for with {wanted}, found {found}", _LOOK)

    def update_toxic(self, proxy: str, name: str, attributes: Mapping[str, int]) -> None:
        """Change a toxic's attributes."""
        self._call("PATCH", f"/proxies/{proxy}/toxics/{name}", {"attributes": dict(attributes)})

    def remove_toxic(self, proxy: str, name: str) -> None:
        """Remove a toxic in the order that cannot wedge the server; harmless if it is not there."""
        toxic = next((t for t in self.proxy(proxy).toxics if t.name == name), None)
        if toxic is None:
            return
        if toxic.type == "latency":
            self.update_toxic(proxy, name, {"latency": 0, "jitter": 0})
            time.sleep(_DRAIN_S)  # no condition to wait for: the server does not say what it still holds
        self._call("DELETE", f"/proxies/{proxy}/toxics/{name}")
        if any(t.name == name for t in self.proxy(proxy).toxics):
            raise ToxiproxyError(f"toxic {name} of {proxy} is still there after its removal", _LOOK)

    def version(self) -> str:
        """The server's version."""
        return str(self._call("GET", "/version").get("version"))

    def _call(self, method: str, path: str, body: object = None) -> Any:
        try:
            answer = self._session.request(method, self._url + path, json=body, timeout=_TIME_LIMIT_S)
        except requests.Timeout as error:
            raise ToxiproxyWedgedError(
                f"Toxiproxy did not answer {method} {path} in {_TIME_LIMIT_S} s", _CURE
            ) from error
        except requests.RequestException as error:
            # An OSError, so that a wait for the start of Toxiproxy takes it for not yet.
            raise ConnectionError(f"Toxiproxy at {self._url} cannot be reached: {error}") from error
        if answer.status_code == 503:
            raise ToxiproxyWedgedError(f"Toxiproxy gave up on {method} {path}", _CURE)
        if not answer.ok:
            raise ToxiproxyError(
                f"{method} {path} of {body}: {answer.status_code} {answer.text.strip()[:200]}", _LOOK
            )
        return answer.json() if answer.content else None


_LOOK = "look at `eos status`; `eos heal` puts every proxy back"
_CURE = "`eos heal` restarts a Toxiproxy that is wedged"


def _proxy(data: Mapping[str, Any]) -> Proxy:
    toxics = tuple(Toxic(t["name"], t["type"], t["stream"], t["attributes"]) for t in data["toxics"])
    return Proxy(data["name"], data["listen"], data["upstream"], data["enabled"], toxics)
