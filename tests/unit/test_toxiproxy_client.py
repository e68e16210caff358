"""The client of Toxiproxy raises a typed error within its time limit, whatever the server does."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.base.waits import NOT_YET_ERRORS
from harness.cluster import toxiproxy_client
from harness.cluster.external.audit_log import Audit
from harness.cluster.external.external_proxies import AuditedToxiproxy
from harness.cluster.toxiproxy_client import Toxiproxy, ToxiproxyError, ToxiproxyWedgedError
from tests.unit.toxiproxy_stand_in import StandIn


@pytest.fixture
def server() -> Iterator[StandIn]:
    stand_in = StandIn()
    yield stand_in
    stand_in.close()


@pytest.fixture
def client(server: StandIn) -> Toxiproxy:
    return Toxiproxy("127.0.0.1", server.port)


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toxiproxy_client, "_TIME_LIMIT_S", 0.2)


def test_a_toxic_is_added_changed_and_removed(client: Toxiproxy) -> None:
    client.add_toxic("proxied-1", "late", "latency", "downstream", {"latency": 100, "jitter": 5})
    (toxic,) = client.proxy("proxied-1").toxics
    assert (toxic.name, toxic.type, toxic.stream) == ("late", "latency", "downstream")
    assert dict(toxic.attributes) == {"latency": 100, "jitter": 5}

    client.update_toxic("proxied-1", "late", {"latency": 7})
    assert client.proxy("proxied-1").toxics[0].attributes["latency"] == 7

    client.remove_toxic("proxied-1", "late")
    assert [proxy.toxics for proxy in client.proxies()] == [(), ()]
    assert client.version() == "2.12.0"


def test_a_latency_toxic_is_set_to_zero_before_its_removal(server: StandIn, client: Toxiproxy) -> None:
    server.toxic("proxied-1", "late", latency=1000, jitter=10)
    client.remove_toxic("proxied-1", "late")
    changes = [request for request in server.requests if not request.startswith("GET")]
    assert changes == ["POST /proxies/proxied-1/toxics/late", "DELETE /proxies/proxied-1/toxics/late"]


def test_removing_a_missing_toxic_is_no_error(server: StandIn, client: Toxiproxy) -> None:
    client.remove_toxic("proxied-1", "late")
    client.remove_toxic("proxied-1", "late")
    assert {request.split()[0] for request in server.requests} == {"GET"}


def test_a_proxy_is_closed_and_opened(client: Toxiproxy) -> None:
    client.set_enabled("proxied-1", enabled=False)
    assert [p.enabled for p in client.proxies()] == [False, True]
    client.set_enabled("proxied-1", enabled=True)
    client.set_enabled("proxied-1", enabled=True)
    assert all(p.enabled for p in client.proxies())


@pytest.mark.usefixtures("_impatient")
@pytest.mark.parametrize("how", [503, "silence"])
def test_a_wedged_server_raises_its_own_error_within_the_time_limit(
    server: StandIn, client: Toxiproxy, how: int | str
) -> None:
    server.misbehave["GET /proxies"] = how
    start = time.monotonic()
    with pytest.raises(ToxiproxyWedgedError) as raised:
        client.proxies()
    assert time.monotonic() - start < 5
    assert "GET /proxies" in raised.value.message
    assert "eos heal" in raised.value.hint
    assert not isinstance(raised.value, NOT_YET_ERRORS), "a wait must not retry on it"


@pytest.mark.usefixtures("_impatient")
def test_a_server_that_accepts_and_reads_nothing_is_wedged() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with pytest.raises(ToxiproxyWedgedError, match=r"did not answer GET /version in 0\.2 s"):
            Toxiproxy("127.0.0.1", listener.getsockname()[1]).version()


def test_a_removal_that_wedges_the_server_raises_the_wedged_error(server: StandIn, client: Toxiproxy) -> None:
    server.toxic("proxied-1", "late", latency=1000)
    server.misbehave["DELETE /proxies/proxied-1/toxics/late"] = 503
    with pytest.raises(ToxiproxyWedgedError, match="DELETE"):
        client.remove_toxic("proxied-1", "late")


def test_a_refused_connection_is_retried_by_waits() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(ConnectionError, match="cannot be reached") as raised:
        Toxiproxy("127.0.0.1", port).proxies()
    assert isinstance(raised.value, NOT_YET_ERRORS)


@pytest.mark.parametrize("status", [400, 404, 409, 500])
def test_a_bad_status_is_an_error_that_quotes_the_server(
    server: StandIn, client: Toxiproxy, status: int
) -> None:
    server.misbehave["POST /proxies/proxied-1/toxics"] = status
    with pytest.raises(ToxiproxyError, match=rf"{status}.*scripted error") as raised:
        client.add_toxic("proxied-1", "late", "latency", "downstream", {"latency": 1})
    assert not isinstance(raised.value, ToxiproxyWedgedError)


def test_a_missing_proxy_is_an_error(client: Toxiproxy) -> None:
    with pytest.raises(ToxiproxyError, match=r"GET /proxies/missing .*404 .*proxy not found"):
        client.proxy("missing")


def test_a_toxic_that_was_not_added_is_detected(server: StandIn, client: Toxiproxy) -> None:
    server.misbehave["POST /proxies/proxied-1/toxics"] = "nothing"
    with pytest.raises(ToxiproxyError, match=r"differs: requested .* found None"):
        client.add_toxic("proxied-1", "late", "latency", "downstream", {"latency": 100})


def test_an_attribute_with_another_value_is_detected(
    server: StandIn, client: Toxiproxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = server.handle

    def forgetful(method: str, path: str, body: object) -> tuple[int, object]:
        if method == "POST":
            body["attributes"]["latency"] = 0  # type: ignore[index]
        return real(method, path, body)

    monkeypatch.setattr(server, "handle", forgetful)
    with pytest.raises(ToxiproxyError, match=r"requested {'latency': 100}, found .*'latency': 0"):
        client.add_toxic("proxied-1", "late", "latency", "downstream", {"latency": 100})


def test_a_proxy_that_did_not_close_is_detected(server: StandIn, client: Toxiproxy) -> None:
    server.misbehave["POST /proxies/proxied-1"] = "nothing"
    with pytest.raises(ToxiproxyError, match="proxied-1 did not become closed"):
        client.set_enabled("proxied-1", enabled=False)


def test_a_toxic_that_survives_its_removal_is_detected(server: StandIn, client: Toxiproxy) -> None:
    server.toxic("proxied-1", "held", kind="bandwidth", rate=0)
    server.misbehave["DELETE /proxies/proxied-1/toxics/held"] = "nothing"
    with pytest.raises(ToxiproxyError, match="held of proxied-1 still exists"):
        client.remove_toxic("proxied-1", "held")


def test_the_web_proxy_of_the_environment_is_ignored(
    client: Toxiproxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert len(client.proxies()) == 2


def test_a_proxy_is_added_redirected_and_removed(client: Toxiproxy) -> None:
    client.add_proxy("extra", "127.0.0.1:3", "127.0.0.1:4")
    added = client.proxy("extra")
    assert (added.listen, added.upstream, added.enabled) == ("127.0.0.1:3", "127.0.0.1:4", True)
    client.set_upstream("extra", "127.0.0.1:5")
    assert client.proxy("extra").upstream == "127.0.0.1:5"
    client.remove_proxy("extra")
    assert [proxy.name for proxy in client.proxies()] == ["proxied-1", "tapped-1"]


def test_a_proxy_that_exists_is_not_added_again(client: Toxiproxy) -> None:
    with pytest.raises(ToxiproxyError, match="proxied-1 exists already"):
        client.add_proxy("proxied-1", "127.0.0.1:3", "127.0.0.1:4")


def test_threads_use_several_servers_at_the_same_time(server: StandIn, client: Toxiproxy) -> None:
    other_server = StandIn()
    try:
        other = Toxiproxy("127.0.0.1", other_server.port)
        with ThreadPoolExecutor(2) as threads:
            for _ in range(5):
                first = threads.submit(client.set_enabled, "proxied-1", enabled=False)
                second = threads.submit(other.add_proxy, "extra", "127.0.0.1:3", "127.0.0.1:4")
                first.result(10)
                second.result(10)
                other.remove_proxy("extra")
    finally:
        other_server.close()
    assert not any("POST /proxies/proxied-1" in request for request in other_server.requests)
    assert "POST /proxies" not in server.requests


def test_changes_of_an_external_toxiproxy_are_in_the_audit_log(server: StandIn, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    client = AuditedToxiproxy("127.0.0.1", server.port, Audit(log))
    server.misbehave["POST /proxies/proxied-1"] = 500
    with pytest.raises(ToxiproxyError):
        client.set_enabled("proxied-1", enabled=False)
    client.add_toxic("proxied-1", "late", "latency", "downstream", {"latency": 1})
    client.remove_toxic("proxied-1", "late")

    entries = [json.loads(line) for line in log.read_text().splitlines()]

    assert [(entry["method"], entry["path"]) for entry in entries] == [
        ("POST", "/proxies/proxied-1"),  # this request failed, but it is logged too
        ("POST", "/proxies/proxied-1/toxics"),
        ("POST", "/proxies/proxied-1/toxics/late"),
        ("DELETE", "/proxies/proxied-1/toxics/late"),
    ]
    assert entries[0]["body"] == {"enabled": False}
