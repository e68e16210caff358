"""kafka-python's sockets, closed with the producer that opened them.

It forgets one whenever a connection is refused, or goes while something waits to be sent. Python finds it
later, at a moment and in a thread of its own choice, and complains there.
"""

from __future__ import annotations

import itertools
import socket
from collections import defaultdict
from typing import Any, ClassVar
from urllib.parse import urlparse

from kafka.net.inet import KafkaNetSocket

_numbers = itertools.count(1)


class KeptSocket(KafkaNetSocket):  # type: ignore[misc]  # the library has no types
    """Plain sockets that are remembered; to kafka-python a kind of proxy, named by the scheme of a URL."""

    SCHEMES: ClassVar[tuple[str, ...]] = ("kept",)
    _kept: ClassVar[defaultdict[str, list[socket.socket]]] = defaultdict(list)

    def __init__(self, proxy_url: str) -> None:
        super().__init__(proxy_url)
        self._owner = urlparse(proxy_url).netloc

    def socket(self, *arguments: Any, **named: Any) -> socket.socket:
        """A new socket, remembered for its owner."""
        made: socket.socket = super().socket(*arguments, **named)
        self._kept[self._owner].append(made)
        return made

    @classmethod
    def new_owner(cls) -> str:
        """What a producer is given as its `proxy_url`: a name for its sockets."""
        return f"{cls.SCHEMES[0]}://{next(_numbers)}"

    @classmethod
    def close_all(cls, owner: str) -> None:
        """Close whatever its owner has left open; a second time is harmless."""
        for one in cls._kept.pop(urlparse(owner).netloc, []):
            one.close()
