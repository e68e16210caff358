"""The Toxiproxy that the harness starts for an external cluster, without starting it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base import ports
from harness.cluster.external import external_proxies
from harness.cluster.external.cluster_file import ProxyPart


def test_the_port_of_the_interface_is_no_port_of_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxies = [ProxyPart(broker=i, listen=f"127.0.0.1:{11000 + i}", upstream=f"b{i}:9092") for i in (1, 2)]
    monkeypatch.setattr(ports, "_SINGLE", range(11001, 11004))
    monkeypatch.setattr(ports, "port_taken", lambda _port: False)

    external_proxies.toxiproxy_node(tmp_path, proxies)

    assert (tmp_path / "port").read_text() == "11003"
