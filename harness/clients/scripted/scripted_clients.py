"""Factory of the scripted clients of one run: it numbers them and closes them together."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from harness.clients.client_settings import Value
from harness.clients.client_spec import BaseSpec, IdempotentSpec, PipelineSpec, TransactionalSpec
from harness.clients.scripted.group_member import GroupMember
from harness.clients.scripted.idempotent_producer import IdempotentProducer
from harness.clients.scripted.library_producer import LibraryProducer
from harness.clients.scripted.producer_process import ProducerProcess
from harness.clients.scripted.transactional_producer import TransactionalProducer
from harness.evidence.client_list import ClientListWriter

LIFE_S: Final = 600.0
LIBRARY_TIMEOUT_MS: Final = 30_000
QUIET: Final[dict[str, Value]] = {"log_level": 0}
"""These clients run in the process of the run, whose console shows no line of a library. Their answers are
in their histories.
"""
ONE_BATCH_A_SEND: Final[dict[str, Value]] = {"linger.ms": 200, "reconnect.backoff.max.ms": 200}
"""Settings with which each send produces one batch: a long linger collects the records until a flush."""
OFTEN: Final[dict[str, Value]] = {"statistics.interval.ms": 100}


class Closable(Protocol):
    """Interface of a client that the factory closes at the end."""

    name: str

    def close(self) -> None:
        """Close the client and its history; closing twice is harmless."""


Spec = TypeVar("Spec", bound=BaseSpec)
Client = TypeVar("Client", bound=Closable)


class ScriptedClients:
    """The scripted clients of one run.

    The methods pass their keyword arguments to the client's spec as fields.
    """

    def __init__(
        self,
        run_id: str,
        bootstrap: str,
        histories: Path,
        first_number: int = 1,
        *,
        client_list: ClientListWriter | None = None,
    ) -> None:
        self.run_id = run_id
        self.bootstrap = bootstrap
        self.histories = histories
        self._numbers = itertools.count(first_number)
        self._open = ExitStack()
        self._client_list = client_list

    def idempotent(self, name: str, topic: str, partitions: int = 1, **fields: Any) -> IdempotentProducer:
        """Return an idempotent producer; keys in `settings` may have underscores instead of dots."""
        dotted = {key.replace("_", "."): value for key, value in fields.pop("settings", {}).items()}
        fields["settings"] = QUIET | ONE_BATCH_A_SEND | OFTEN | dotted
        spec = self.spec(IdempotentSpec, name, topic=topic, partitions=partitions, payload=0, **fields)
        return self.keep(IdempotentProducer(spec))

    def transactional(self, name: str, topic: str, partitions: int, **fields: Any) -> TransactionalProducer:
        """Return a transactional producer of confluent-kafka."""
        return self.keep(TransactionalProducer(self._transactional_spec(name, topic, partitions, fields)))

    def transactional_process(
        self, name: str, topic: str, partitions: int, folder: Path, **fields: Any
    ) -> ProducerProcess:
        """Return a transactional producer in a process of its own, which can be frozen."""
        spec = self._transactional_spec(name, topic, partitions, fields)
        return self.keep(ProducerProcess(spec, folder / name))

    def library(
        self, name: str, library: str, topic: str, lanes: Sequence[int], **fields: Any
    ) -> LibraryProducer:
        """Return a transactional producer of a client library; `lanes` are the partitions it writes to."""
        defaults = {
            "transactional_id": f"{name}.{self.run_id}",
            "transaction_timeout_ms": LIBRARY_TIMEOUT_MS,
            "payload": 0,
        }
        spec = self._transactional_spec(name, topic, len(lanes), defaults | fields)
        return self.keep(LibraryProducer(spec, library, lanes))

    def group_member(self, name: str, source: str, group: str, **fields: Any) -> GroupMember:
        """Return a consumer that is a member of the group and reads the topic `source`."""
        fields = {"source": source, "group": group, "sink": "", "partitions": 1, "settings": QUIET} | fields
        return self.keep(GroupMember(self.spec(PipelineSpec, name, **fields)))

    def spec(self, kind: type[Spec], name: str, **fields: Any) -> Spec:
        """Return the spec of a client of this run."""
        defaults: dict[str, Any] = {
            "run": self.run_id,
            "client": name,
            "bootstrap": self.bootstrap,
            "history": str(self.histories / f"{name}.jsonl"),
            "seconds": LIFE_S,
        }
        if "number" not in fields:
            defaults["number"] = next(self._numbers)
        spec = kind(**(defaults | fields))
        if self._client_list is not None:
            self._client_list.add(name, spec.kind, spec.number)
        return spec

    def keep(self, client: Client) -> Client:
        """Register a client to be closed with the other clients, and return it."""
        self._open.callback(self._close, client)
        return client

    def _close(self, client: Closable) -> None:
        client.close()
        if self._client_list is not None:
            self._client_list.end(client.name, "stopped", exit_code=0)

    def close(self) -> None:
        """Close every client, the newest first."""
        self._open.close()

    def _transactional_spec(
        self, name: str, topic: str, partitions: int, fields: dict[str, Any]
    ) -> TransactionalSpec:
        return self.spec(TransactionalSpec, name, topic=topic, partitions=partitions, **fields)
