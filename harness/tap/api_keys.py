"""Kafka's APIs by api key, and decoders for the APIs for which kafka-python has classes."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from typing import Any

from harness.base.errors import UsageError


class Decodable(StrEnum):
    """Whether frames of an api in a given version can be decoded and, if not, the reason."""

    YES = "yes"
    UNKNOWN_API = "unknown_api"
    NEWER_VERSION = "newer_version"


@cache
def _requests() -> dict[int, Any]:
    """Return kafka-python's request classes by api key.

    The imports are necessary, because a class can be found only after its module was imported.
    """
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.protocol.sasl  # noqa: F401
    from kafka.protocol.api_message import ApiMessage

    classes: dict[int, Any] = {}
    for message in _subclasses(ApiMessage):
        # Skip the classes that support only one version of an api. They only wrap the class that supports all
        # versions.
        if message._class_version is None and message.is_request():
            classes.setdefault(message.API_KEY, message)
    return classes


def preload() -> None:
    """Load all of kafka-python's request classes in advance.

    Loading them during the first request could take longer than the time-out of that request.
    """
    _requests()


def _subclasses(root: Any) -> Iterator[Any]:
    for subclass in root.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


@cache
def name_of(key: int) -> str:
    """Return the name of an api, such as `EndTxn`.

    If kafka-python has no class for the api, the name contains the api key, such as `Api99`.
    """
    request = _requests().get(key)
    return str(request.name).removesuffix("Request") if request else f"Api{key}"


@cache
def key_of(name: str) -> int:
    """Return the api key of the api with this name."""
    for key in _requests():
        if name_of(key) == name:
            return key
    raise UsageError(f"unknown api {name!r}", f"the apis are {', '.join(sorted(map(name_of, _requests())))}")


@cache
def decodable(key: int, version: int) -> Decodable:
    """Return whether frames of an api in a given version can be decoded and, if not, the reason."""
    request = _requests().get(key)
    if request is None:
        return Decodable.UNKNOWN_API
    return Decodable.YES if 0 <= version <= request.max_version else Decodable.NEWER_VERSION


def decode_request(key: int, version: int, frame: bytes) -> Any:
    """Decode a complete request frame into an object of kafka-python."""
    return _requests()[key].decode(frame, version=version, header=True, framed=True)


def decode_response(key: int, version: int, frame: bytes) -> Any:
    """Decode a complete response frame. `key` and `version` are those of its request."""
    from kafka.protocol.api_header import ResponseClassRegistry

    class _Asked:
        request_api_key = key
        request_api_version = version

    return ResponseClassRegistry.get_response_class(_Asked).decode(
        frame, version=version, header=True, framed=True
    )
