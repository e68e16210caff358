"""Requests to somebody else's cluster: what is not ours is never changed, whoever asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from harness.base.addresses import Address
from harness.base.errors import RefusedError
from harness.cluster.external.audit_log import Audit
from harness.kafka.admin import Admin
from harness.kafka.connection import RawConnection
from harness.kafka.security import Security

_METADATA: Final = frozenset(
    {
        "MetadataRequest",
        "ApiVersionsRequest",
        "FindCoordinatorRequest",
        "DescribeQuorumRequest",
        "ListGroupsRequest",
        "ListTransactionsRequest",
    }
)
# What may be asked for names of ours alone, and which names a request has; the first two read.
_OURS: Final[dict[str, Callable[[Any], list[str]]]] = {
    "ListOffsetsRequest": lambda request: [topic.name for topic in request.topics],
    "FetchRequest": lambda request: [topic.topic for topic in request.topics],
    "CreateTopicsRequest": lambda request: [topic.name for topic in request.topics],
    "DeleteTopicsRequest": lambda request: list(request.topic_names),
    "DeleteGroupsRequest": lambda request: list(request.groups_names),
}
_READS: Final = ("ListOffsetsRequest", "FetchRequest")


class PrefixedAdmin(Admin):
    """Passes requests for metadata, and changes of what carries the prefix; refuses everything else."""

    def __init__(
        self,
        addresses: Mapping[int, Address],
        timeout: float,
        security: Security,
        prefix: str,
        audit: Audit,
        *,
        readable: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(addresses, timeout, security)
        self._prefix = prefix
        # Topics of everybody that may be read as well, because the cluster's file says so.
        self._readable = readable
        self._audit = audit
        self._kept = threading.local()  # a connection is for one thread

    def call(self, broker: int, request: Any) -> Any:
        """One request to one broker, if it is harmless."""
        kind = type(request).__name__
        if kind in _METADATA:
            return self._ask(broker, request)
        names = _OURS[kind](request) if kind in _OURS else None
        also = self._readable if kind in _READS else frozenset()
        if names is None or not all(name.startswith(self._prefix) or name in also for name in names):
            self._audit.note("refused", request=kind, names=names)
            what = ", ".join(names) if names else "a live cluster"
            raise RefusedError(
                f"{kind} on {what} is refused: only what begins with {self._prefix!r} is ours",
                "this is an interlock: a scenario, or a bug of ours, asked for something outside",
            )
        if kind in _READS or getattr(request, "validate_only", False):
            return self._ask(broker, request)
        self._audit.note(kind.removesuffix("Request"), names=names, broker=broker)
        return super().call(broker, request)

    def _ask(self, broker: int, request: Any) -> Any:
        """A question, over a connection that is kept: a login for each would be a load of its own."""
        kept: dict[int, RawConnection] = self._kept.__dict__.setdefault("by_broker", {})
        if broker in kept:
            try:
                return kept[broker].call(request)
            except (OSError, EOFError):  # closed meanwhile, or the broker is away: a new one tells
                kept.pop(broker).close()
        connection = self.connect(broker)
        try:
            answer = connection.call(request)
        except BaseException:
            connection.close()
            raise
        kept[broker] = connection
        return answer
