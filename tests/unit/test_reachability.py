"""A wrong address is reported within seconds, before Spark or a client library starts."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from harness.base.errors import ExitCode, HarnessError, UsageError
from harness.kafka import reachability
from harness.kafka.admin import Admin, Metadata, random_cluster_id
from harness.kafka.reachability import NOTICE_AFTER_S, answer_limit_s, reach_cluster
from harness.kafka.security import PLAINTEXT, Security

ANSWER_S = 0.05
"""Limit for an answer in a test in which it comes later."""
LIMIT_S = 0.5
"""Limit for an address that never answers."""
PATIENCE_S = 20.0
"""Limit for an address whose error arrives at once."""


@contextlib.contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Accept connections, and call `answer` with each."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connections: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    connections.append(connection)
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_S)
            for connection in connections:
                connection.close()
        assert not thread.is_alive()


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def sends(data: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(data)

    return answer


def silent(_: socket.socket) -> None:
    """Send nothing, and keep the connection open."""


def closes(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.close()


def refused(bootstrap: str, limit_s: float = PATIENCE_S, security: Security = PLAINTEXT) -> HarnessError:
    began = time.monotonic()
    with pytest.raises(HarnessError) as error:
        reach_cluster(bootstrap, security, limit_s=limit_s)
    assert time.monotonic() - began < PATIENCE_S / 2
    assert "--bootstrap" in error.value.message + error.value.hint
    return error.value


@pytest.mark.parametrize(
    "bootstrap", ["", "localhost", "localhost:", ":9092", "h:0", "h:65536", "a:1,", "a:b"]
)
def test_a_text_that_is_no_address_is_wrong_usage(bootstrap: str) -> None:
    error = refused(bootstrap)
    assert error.exit_code == ExitCode.USAGE
    assert "host:port" in error.hint


def test_an_unknown_host_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_args: object, **_more: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(UsageError, match="unknown host nowhere"):
        reach_cluster("nowhere:9092", limit_s=PATIENCE_S)


@pytest.mark.parametrize("host", ["..", "x" * 64])
def test_a_text_that_cannot_be_a_host_name_is_an_unknown_host(host: str) -> None:
    error = refused(f"{host}:9092")
    assert f"unknown host {host}" in error.message
    assert error.exit_code == ExitCode.USAGE


def test_an_ipv6_address_is_written_in_brackets() -> None:
    # The problem depends on whether the machine has IPv6. It is never an unknown host.
    error = refused("[::1]:1")
    assert "no Kafka broker answers at ::1:1 (" in error.message
    assert error.exit_code == ExitCode.UNKNOWN


def test_a_wait_for_a_silent_address_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: end.wait(30))
    lines: list[str] = []
    with pytest.raises(HarnessError):
        reach_cluster("nowhere:9092", limit_s=NOTICE_AFTER_S + 0.1, log=lines.append)
    assert lines == [f"no answer yet from nowhere:9092; waiting up to {NOTICE_AFTER_S + 0.1:.1f} s"]
    with pytest.raises(HarnessError):
        reach_cluster("nowhere:9092", limit_s=NOTICE_AFTER_S / 2, log=lines.append)
    assert len(lines) == 1
    end.set()


def test_a_name_server_that_never_answers_does_not_delay_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_more: end.wait(30))
    assert "no answer within 0.5 s" in refused("nowhere:9092", LIMIT_S).message
    end.set()


def test_a_port_on_which_nothing_listens_is_reported() -> None:
    address = closed_port()
    error = refused(address)
    assert error.message == f"no Kafka broker answers at {address} (connection refused)"
    assert error.exit_code == ExitCode.UNKNOWN


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (closes, "it closes the connection: it may expect TLS or SASL"),
        (sends(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "it answers HTTP, not Kafka"),
        (sends(b"<html>"), "it answers text that begins with '<htm', not Kafka"),
        (sends(b"\x15\x03\x03\x00\x02\x02\x46"), "it expects TLS"),
        (sends(b"\xff\xff\xff\xff"), "it is not Kafka: a frame of -1 bytes"),
        (sends(b"\x00\x00\x00\x04\x00\x00\x00\x09"), "its answer is not that of a Kafka broker"),
        (sends(b"\x00\x00\x00\x01\x00"), "its answer is not that of a Kafka broker"),
    ],
    ids=["closes", "HTTP", "text", "TLS", "no frame", "other answer", "short answer"],
)
def test_a_server_that_is_no_broker_is_reported(answer: Callable[[socket.socket], None], text: str) -> None:
    with server(answer) as address:
        assert text in refused(address).message


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (closes, "it closes the connection: it may expect other security"),
        (sends(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "its answer is not TLS"),
        (sends(b"\x00\x00\x00\x04\x00\x00\x00\x09"), "its answer is not TLS"),
    ],
    ids=["closes", "HTTP", "a listener without TLS"],
)
def test_a_server_that_does_not_expect_tls_is_reported(
    answer: Callable[[socket.socket], None], text: str
) -> None:
    with server(answer) as address:
        error = refused(address, security=Security(protocol="SSL"))
    assert f"{address} ({text}" in error.message
    assert "--command-config" in error.hint


def test_a_server_that_never_answers_is_reported() -> None:
    with server(silent) as address:
        assert f"{address} (no answer within 0.5 s)" in refused(address, LIMIT_S).message


def test_an_address_that_accepts_and_does_not_answer_is_reported_before_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reachability, "is_busy", lambda: False)
    with server(silent) as address:
        error = refused(address, PATIENCE_S)
    assert f"{address} (it accepts connections but does not answer" in error.message
    assert error.exit_code == ExitCode.UNKNOWN


def test_on_a_busy_machine_a_silent_address_gets_the_whole_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "answer_limit_s", lambda _: ANSWER_S)
    cores = os.cpu_count() or 1
    for load, limit_s, text in (
        (21.0, LIMIT_S, "no answer within 0.5 s"),
        (19.0, PATIENCE_S, "it accepts connections but does not answer"),
    ):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load * cores, 0.0, 0.0))
        with server(silent) as address:
            assert text in refused(address, limit_s).message


def test_a_slow_connection_gets_more_time_for_its_answer() -> None:
    assert answer_limit_s(0.0) == reachability.ANSWER_S < 1 < NOTICE_AFTER_S + 0.1
    assert answer_limit_s(0.2) == pytest.approx(reachability.ANSWER_S + 2.0)


def test_an_answer_after_the_limit_counts_while_another_address_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, end = socket.getaddrinfo, threading.Event()

    def lookup(host: str, *args: Any, **more: Any) -> Any:
        return real(host, *args, **more) if host == "127.0.0.1" else end.wait(30)

    def late(_: Admin) -> Metadata:
        assert not end.wait(10 * ANSWER_S)
        return metadata_of(address)

    with server(sends(b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x23")) as address:
        monkeypatch.setattr(socket, "getaddrinfo", lookup)
        monkeypatch.setattr(Admin, "metadata", late)
        monkeypatch.setattr(reachability, "answer_limit_s", lambda _: ANSWER_S)
        monkeypatch.setattr(reachability, "is_busy", lambda: False)
        assert isinstance(reach_cluster(f"{address},nowhere:9092", limit_s=PATIENCE_S), Admin)
    end.set()


def test_every_address_is_reported_and_all_are_tried_at_once() -> None:
    with server(silent) as first, server(silent) as second, server(closes) as third:
        message = refused(f"{first},{second},{third}", LIMIT_S).message
    for address in (first, second, third):
        assert address in message


def test_a_drip_of_bytes_does_not_delay_the_error() -> None:
    end = threading.Event()

    def drips(connection: socket.socket) -> None:
        connection.sendall(b"\x00\x01\x00\x00")
        with contextlib.suppress(OSError):
            while not end.wait(LIMIT_S / 5):
                connection.sendall(b"\x00")

    with server(drips) as address:
        assert "no answer within 0.5 s" in refused(address, LIMIT_S).message
        end.set()


def metadata_of(*addresses: str) -> Metadata:
    places = {i: (host, int(port)) for i, (host, port) in enumerate(a.split(":") for a in addresses)}
    return Metadata("c", frozenset(places), (), places)


def test_advertised_addresses_that_cannot_be_reached_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    away = closed_port()
    monkeypatch.setattr(Admin, "metadata", lambda _: metadata_of(away))
    with (
        server(silent) as bootstrap,
        pytest.raises(HarnessError, match="no broker answers at the addresses that the cluster") as error,
    ):
        reach_cluster(bootstrap, limit_s=PATIENCE_S)
    assert away in error.value.message
    assert "advertised" in error.value.hint


def test_one_reachable_broker_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(sends(b"\x00\x00\x00\x06\x00\x00\x00\x01\x00\x23")) as broker:
        monkeypatch.setattr(Admin, "metadata", lambda _: metadata_of(closed_port(), broker))
        assert isinstance(reach_cluster(broker, limit_s=PATIENCE_S), Admin)


def test_no_cluster_id_begins_with_a_hyphen(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([bytes([0xF8, *range(15)]), bytes([0xFB, *range(15)]), bytes([0xFC, *range(15)])])
    monkeypatch.setattr("harness.kafka.admin.uuid.uuid4", lambda: SimpleNamespace(bytes=next(drawn)))

    assert random_cluster_id() == "_AABAgMEBQYHCAkKCwwNDg"
