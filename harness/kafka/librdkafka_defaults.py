"""What the client library takes when it is told nothing: asked of librdkafka itself, not of its manual.

confluent-kafka has no call for it; the library that it is linked with has one, and is within reach.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Final

_LONGEST: Final = 512
_KINDS: Final = ("conf", "topic_conf")
"""Settings of a client, and of a topic: a client's configuration takes both."""


def client_defaults(names: Iterable[str]) -> dict[str, str]:
    """The default of each of these settings, as librdkafka writes it."""
    from confluent_kafka import cimpl

    library = ctypes.CDLL(cimpl.__file__)
    return {name: _default(library, name) for name in names}


def _default(library: ctypes.CDLL, name: str) -> str:
    for kind in _KINDS:
        new, destroy = getattr(library, f"rd_kafka_{kind}_new"), getattr(library, f"rd_kafka_{kind}_destroy")
        get = getattr(library, f"rd_kafka_{kind}_get")
        new.restype = ctypes.c_void_p
        destroy.argtypes = [ctypes.c_void_p]
        get.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t)]
        size, value = ctypes.c_size_t(_LONGEST), ctypes.create_string_buffer(_LONGEST)
        conf = new()
        try:
            if get(conf, name.encode(), value, ctypes.byref(size)) == 0:
                return value.value.decode()
        finally:
            destroy(conf)
    raise LookupError(f"librdkafka knows no setting {name}")
