"""Versions, defaults and limits of librdkafka, as the loaded library reports them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from importlib.metadata import version
from typing import Final

MAX_IN_FLIGHT: Final = "max.in.flight.requests.per.connection"
_MAX_VALUE_BYTES: Final = 512
_KINDS: Final = ("conf", "topic_conf")
"""The two kinds of configuration in librdkafka: of a client and of a topic. A client accepts settings of
both kinds.
"""


def library_versions() -> dict[str, str]:
    """Return the versions of confluent-kafka and librdkafka."""
    from confluent_kafka import libversion

    return {"confluent_kafka": version("confluent-kafka"), "librdkafka": str(libversion()[0])}


def client_defaults(names: Iterable[str]) -> dict[str, str]:
    """Return the default value of each of these settings, formatted by librdkafka."""
    from confluent_kafka import cimpl

    # confluent-kafka has no function that returns defaults. Therefore call librdkafka's C functions directly;
    # confluent-kafka's extension module makes them available.
    library = ctypes.CDLL(cimpl.__file__)
    return {name: _default(library, name) for name in names}


def _default(library: ctypes.CDLL, name: str) -> str:
    for kind in _KINDS:
        new, destroy = getattr(library, f"rd_kafka_{kind}_new"), getattr(library, f"rd_kafka_{kind}_destroy")
        get = getattr(library, f"rd_kafka_{kind}_get")
        new.restype = ctypes.c_void_p
        destroy.argtypes = [ctypes.c_void_p]
        get.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t)]
        size, value = ctypes.c_size_t(_MAX_VALUE_BYTES), ctypes.create_string_buffer(_MAX_VALUE_BYTES)
        conf = new()
        try:
            if get(conf, name.encode(), value, ctypes.byref(size)) == 0:
                return value.value.decode()
        finally:
            destroy(conf)
    raise LookupError(f"librdkafka has no setting {name}")


def max_in_flight_with_idempotence() -> int:
    """Return the highest number of in-flight requests that librdkafka accepts for an idempotent producer."""
    from confluent_kafka import KafkaException, Producer

    def accepted(count: int) -> bool:
        try:
            Producer({"enable.idempotence": True, MAX_IN_FLIGHT: count, "log_level": 0})
        except KafkaException:
            return False
        return True

    return max((count for count in range(1, 11) if accepted(count)), default=0)
