"""Sockets of a kafka-python producer, kept in a list so that they are closed together with the producer.

kafka-python loses track of a socket when a connection is refused, or ends while data waits to be sent.
Python's garbage collector finds that socket later, in an arbitrary thread, and warns about it there.
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
    """Socket factory that keeps a list of the sockets of each owner. An owner is one producer.

    kafka-python uses this class for a proxy URL whose scheme is `kept`.
    """

    SCHEMES: ClassVar[tuple[str, ...]] = ("kept",)
    _kept: ClassVar[defaultdict[str, list[socket.socket]]] = defaultdict(list)

    def __init__(self, proxy_url: str) -> None:
        super().__init__(proxy_url)
        self._owner = urlparse(proxy_url).netloc

    def socket(self, *arguments: Any, **named: Any) -> socket.socket:
        """Return a new socket and add it to its owner's list."""
        made: socket.socket = super().socket(*arguments, **named)
        self._kept[self._owner].append(made)
        return made

    @classmethod
    def new_owner(cls) -> str:
        """Return a new `proxy_url` for a producer; it identifies the producer as the owner of its sockets."""
        return f"{cls.SCHEMES[0]}://{next(_numbers)}"

    @classmethod
    def close_all(cls, owner: str) -> None:
        """Close every socket of this owner; closing twice is harmless."""
        for kept in cls._kept.pop(urlparse(owner).netloc, []):
            kept.close()
