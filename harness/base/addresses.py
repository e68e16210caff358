"""Network addresses as text: `host:port`, and the comma-separated list that Kafka calls bootstrap servers."""

from __future__ import annotations

from typing import Final

Address = tuple[str, int]
_LAST_PORT: Final = 65_535


def parse_address(text: str) -> Address:
    """Split a text of the form `host:port` into host and port; raise ValueError for any other text."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= _LAST_PORT:
        raise ValueError(f'{text!r} is not "host:port"')
    return host, int(port)


def parse_bootstrap(servers: str) -> list[Address]:
    """Return the host and port of each address in a comma-separated list of bootstrap servers.

    An IPv6 address is written in brackets, such as [::1]:9092, and is returned without them.
    """
    addresses = [parse_address(server) for server in servers.split(",")]
    return [(host[1:-1] if host.startswith("[") and host.endswith("]") else host, p) for host, p in addresses]
