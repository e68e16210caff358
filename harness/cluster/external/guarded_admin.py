"""Admin client for an external cluster, which refuses every change of a foreign resource.

A foreign resource is a topic or group whose name lacks the prefix in the cluster file. The refusal applies to
every caller.
"""

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
# Requests that are permitted only for resources with the prefix. Each has a function that returns the
# resource names in the request. Those in _READS only read; the others change resources.
_OURS: Final[dict[str, Callable[[Any], list[str]]]] = {
    "ListOffsetsRequest": lambda request: [topic.name for topic in request.topics],
    "FetchRequest": lambda request: [topic.topic for topic in request.topics],
    "OffsetFetchRequest": lambda request: [request.group_id],
    "DescribeProducersRequest": lambda request: [topic.name for topic in request.topics],
    "DescribeGroupsRequest": lambda request: list(request.groups),
    "DescribeTransactionsRequest": lambda request: list(request.transactional_ids),
    "CreateTopicsRequest": lambda request: [topic.name for topic in request.topics],
    "DeleteTopicsRequest": lambda request: list(request.topic_names),
    "DeleteGroupsRequest": lambda request: list(request.groups_names),
}
_READS: Final = (
    "ListOffsetsRequest",
    "FetchRequest",
    "OffsetFetchRequest",
    "DescribeProducersRequest",
    "DescribeGroupsRequest",
    "DescribeTransactionsRequest",
)


class PrefixedAdmin(Admin):
    """Admin client that permits only metadata requests and requests on resources with the prefix."""

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
        # Names of topics that the harness may read although they lack the prefix. The cluster file lists
        # them.
        self._readable = readable
        self._audit = audit
        self._kept = threading.local()  # each thread keeps its own open connections, one for each broker

    def call(self, broker: int, request: Any) -> Any:
        """Send a request to a broker if the request is permitted.

        Otherwise record the refusal and raise RefusedError.
        """
        kind = type(request).__name__
        if kind in _METADATA:
            return self._ask(broker, request)
        names = _OURS[kind](request) if kind in _OURS else None
        also = self._readable if kind in _READS else frozenset()
        if names is None or not all(name.startswith(self._prefix) or name in also for name in names):
            self._audit.note("refused", request=kind, names=names)
            what = ", ".join(names) if names else "an external cluster"
            raise RefusedError(
                f"{kind} on {what} is refused: only names that begin with {self._prefix!r} may be changed",
                "this is an interlock: a scenario, or a bug of the harness, addressed a foreign resource",
            )
        if kind in _READS or getattr(request, "validate_only", False):
            return self._ask(broker, request)
        self._audit.note(kind.removesuffix("Request"), names=names, broker=broker)
        return super().call(broker, request)

    def _ask(self, broker: int, request: Any) -> Any:
        """Send a request over a connection that is kept open for later requests.

        A new connection for each request would also need a new login, and many logins would load the cluster.
        """
        kept: dict[int, RawConnection] = self._kept.__dict__.setdefault("by_broker", {})
        if broker in kept:
            try:
                return kept[broker].call(request)
            except (
                OSError,
                EOFError,
            ):  # the broker may be down, or it may only have closed this connection: try a new connection
                kept.pop(broker).close()
        connection = self.connect(broker)
        try:
            answer = connection.call(request)
        except BaseException:
            connection.close()
            raise
        kept[broker] = connection
        return answer
