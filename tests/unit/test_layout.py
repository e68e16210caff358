"""Ports and subnets of clusters: none is used by two clusters, or by an outgoing connection."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from harness.base.errors import UsageError
from harness.base.ports import free_ports, port_taken
from harness.cluster import layout
from harness.cluster.layout import (
    BROKER_IDS,
    CONTROLLER_IDS,
    HOST,
    BrokerListener,
    Ports,
    choose_ports,
    cluster_name,
    preferred_ports,
)
from harness.provision.paths import checkout_dir

EVERY_BLOCK = [Ports(base) for base in range(12_000, 31_970, 33)]


def used(ports: Ports) -> list[int]:
    """Return every port that a node, proxy or tap of one cluster binds."""
    return [
        ports.toxiproxy_api,
        *(
            ports.toxiproxy(listener, b)
            for listener in (BrokerListener.PROXIED, BrokerListener.TAPPED)
            for b in BROKER_IDS
        ),
        *(ports.tapped(b) for b in BROKER_IDS),
        *(ports.internal_tap(b) for b in BROKER_IDS),
        *(ports.inner_proxy(b) for b in BROKER_IDS),
        *(ports.inner(listener, b) for listener in BrokerListener for b in BROKER_IDS),
        *(ports.controller(c) for c in CONTROLLER_IDS),
    ]


@pytest.mark.parametrize("ports", [EVERY_BLOCK[0], EVERY_BLOCK[-1]])
def test_the_ports_of_a_block_are_distinct(ports: Ports) -> None:
    assert len(used(ports)) == len(set(used(ports)))
    assert set(used(ports)) <= set(ports.all)


def test_blocks_do_not_overlap_and_stay_below_outgoing_connections() -> None:
    used: set[int] = set()
    for ports in EVERY_BLOCK:
        assert used.isdisjoint(ports.all)
        used.update(ports.all)
    assert max(used) < 32_768
    assert min(used) > 1_023


def test_each_block_and_plain_compose_have_their_own_subnet() -> None:
    subnets = [ports.subnet for ports in EVERY_BLOCK]
    assert len(set(subnets)) == len(subnets)
    assert all(0 <= int(part) <= 255 for subnet in subnets for part in subnet.split("."))
    default = re.findall(r"\$\{EOS_SUBNET:-([\d.]+)\}", (checkout_dir() / "docker-compose.yml").read_text())
    assert len(set(default)) == 1
    assert default[0] not in subnets


def test_a_directory_has_its_own_name_and_block() -> None:
    paths = [Path(f"/somewhere/{i}/.eos") for i in range(200)]
    assert cluster_name(paths[0]) == cluster_name(Path("/somewhere/0/.eos"))
    assert len({cluster_name(path) for path in paths}) == len(paths)
    bases = [preferred_ports(path).base for path in paths]
    assert set(bases) <= {ports.base for ports in EVERY_BLOCK}
    assert len(set(bases)) > 100, "directories are spread over the blocks"


def test_a_taken_block_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    state = Path("/somewhere/.eos")
    first = preferred_ports(state)
    monkeypatch.setattr(layout, "port_taken", lambda port: port == first.base + 32)

    chosen = choose_ports(state)

    assert set(chosen.all).isdisjoint(first.all)
    assert chosen in EVERY_BLOCK


def test_the_last_block_is_followed_by_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_preferred_block", lambda _: len(EVERY_BLOCK) - 1)
    monkeypatch.setattr(layout, "port_taken", lambda port: port >= EVERY_BLOCK[-1].base)
    assert choose_ports(Path("/x")) == EVERY_BLOCK[0]


def test_no_free_block_is_an_error_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "port_taken", lambda _: True)
    with pytest.raises(UsageError, match="no free block") as raised:
        choose_ports(Path("/somewhere/.eos"))
    assert "eos doctor" in raised.value.hint


@pytest.mark.parametrize("address", [HOST, "0.0.0.0"])
def test_a_port_with_a_listener_is_taken(address: str) -> None:
    with socket.socket() as listener:
        listener.bind((address, 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert port_taken(port)
    assert not port_taken(port)


def test_bootstrap_servers_are_those_of_the_listener() -> None:
    ports = Ports(12_000)
    assert ports.bootstrap(BrokerListener.DIRECT) == "127.0.0.1:12011,127.0.0.1:12012,127.0.0.1:12013"
    assert ports.bootstrap(BrokerListener.PROXIED) == "127.0.0.1:12001,127.0.0.1:12002,127.0.0.1:12003"
    with pytest.raises(UsageError, match="for brokers only"):
        ports.bootstrap(BrokerListener.INTERNAL)


def test_single_ports_are_free_and_outside_every_block() -> None:
    drawn = free_ports(20)

    assert len(set(drawn)) == 20
    assert not any(port_taken(port) for port in drawn)
    assert max(drawn) < EVERY_BLOCK[0].base
