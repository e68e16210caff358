"""Toxiproxy for an external cluster: the user's own, or one that the harness starts for a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from requests import Response

from harness.base.addresses import Address, parse_address
from harness.base.ports import free_ports
from harness.cluster.external.audit_log import Audit
from harness.cluster.external.cluster_file import START, LinksPart, ProxyPart
from harness.cluster.process_backend import ProcessNode
from harness.cluster.toxiproxy_client import Toxiproxy
from harness.provision.toxiproxy_binary import ensure_toxiproxy


class AuditedToxiproxy(Toxiproxy):
    """A Toxiproxy client that records each change in the audit log before it is made."""

    def __init__(self, host: str, port: int, audit: Audit) -> None:
        super().__init__(host, port)
        self._audit = audit

    def send(self, method: str, path: str, **content: Any) -> Response:
        if method != "GET":
            self._audit.note("toxiproxy", method=method, path=path, body=content.get("json"))
        return super().send(method, path, **content)


def proxy_name(proxy: ProxyPart) -> str:
    """Return the name of a proxy: the name in the cluster file, or else `eos-` followed by the broker id."""
    return proxy.name or f"eos-{proxy.broker}"


def toxiproxy_node(folder: Path, proxies: list[ProxyPart]) -> ProcessNode:
    """Return a node object for the Toxiproxy that the harness starts.

    The port and the configuration of Toxiproxy are files in `folder`. After a crash of the harness, a later
    command uses these files to find the Toxiproxy process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = folder / "port"
    if not port.exists():
        # The proxies' own ports are free until Toxiproxy starts.
        listens = {parse_address(proxy.listen)[1] for proxy in proxies}
        port.write_text(str(free_ports(1, avoid=listens)[0]))
    served = [
        {"name": proxy_name(p), "listen": p.listen, "upstream": p.upstream, "enabled": True} for p in proxies
    ]
    (folder / "proxies.json").write_text(json.dumps(served, indent=2))

    def command() -> list[str]:
        server = ensure_toxiproxy(lambda _: None).server
        return [
            str(server),
            "-host",
            "127.0.0.1",
            "-port",
            port.read_text(),
            "-config",
            str(folder / "proxies.json"),
        ]

    return ProcessNode("toxiproxy", 0, "proxy", folder, command)


def toxiproxy_address(links: LinksPart, folder: Path) -> Address:
    """Return the address of Toxiproxy's HTTP interface."""
    if links.toxiproxy == START:
        return "127.0.0.1", int((folder / "port").read_text())
    return parse_address(links.toxiproxy)
