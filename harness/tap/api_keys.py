"""Kafka's requests by number, as far as kafka-python knows them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from functools import cache
from typing import Any

from harness.base.errors import UsageError


class Known(StrEnum):
    """Whether a frame of this api and version can be decoded."""

    YES = "yes"
    UNKNOWN_API = "unknown_api"
    NEWER_VERSION = "newer_version"


@cache
def _requests() -> dict[int, Any]:
    """The request classes by api key; importing a module is what registers its classes."""
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.protocol.sasl  # noqa: F401
    from kafka.protocol.api_message import ApiMessage

    found: dict[int, Any] = {}
    for each in _subclasses(ApiMessage):
        # A class for one version only is a wrapper of the class for all of them.
        if each._class_version is None and each.is_request():
            found.setdefault(each.API_KEY, each)
    return found


def preload() -> None:
    """Load every class now: it takes longer than a client's patience with a first request."""
    _requests()


def _subclasses(root: Any) -> Iterator[Any]:
    for each in root.__subclasses__():
        yield each
        yield from _subclasses(each)


@cache
def name_of(key: int) -> str:
    """The api's name, such as `EndTxn`; `Api99` for one that nobody here knows."""
    request = _requests().get(key)
    return str(request.name).removesuffix("Request") if request else f"Api{key}"


@cache
def key_of(name: str) -> int:
    """The api's number, by its name."""
    for key in _requests():
        if name_of(key) == name:
            return key
    raise UsageError(
        f"api {name!r} is not known", f"the apis are {', '.join(sorted(map(name_of, _requests())))}"
    )


@cache
def known(key: int, version: int) -> Known:
    """Whether frames of this api and version can be decoded."""
    request = _requests().get(key)
    if request is None:
        return Known.UNKNOWN_API
    return Known.YES if 0 <= version <= request.max_version else Known.NEWER_VERSION


def decode_request(key: int, version: int, frame: bytes) -> Any:
    """The request of a whole frame, as kafka-python's object."""
    return _requests()[key].decode(frame, version=version, header=True, framed=True)


def decode_response(key: int, version: int, frame: bytes) -> Any:
    """The response of a whole frame to a request of this api and version."""
    from kafka.protocol.api_header import ResponseClassRegistry

    class _Asked:
        request_api_key = key
        request_api_version = version

    return ResponseClassRegistry.get_response_class(_Asked).decode(
        frame, version=version, header=True, framed=True
    )
