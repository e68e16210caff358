"""What one client process is told: a file that it reads, so that its command line stays short."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from harness.base.errors import UsageError
from harness.base.partition_id import PartitionId
from harness.clients.client_settings import TRANSACTION_LIMIT_S, Protocol, Value
from harness.kafka.security import PLAINTEXT, Security

RunName = Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9]{8}$")]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Discipline = Literal["reinit", "naive"]
ALONE: Final = "eos-reader"
"""The group id of a reader without a group: the client library wants one; nothing is stored under it."""
Positions = Literal["inside", "apart"]
"""Whether a pipeline's positions are part of its transactions, or committed after them."""
Isolation = Literal["read_committed", "read_uncommitted"]


class BaseSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What every client is told: of which run it is, which cluster it talks to, where it writes, how long."""

    run: RunName
    client: str
    bootstrap: str
    history: str
    seconds: float
    number: int = 0  # of the producer; a reader has none
    settings: dict[str, Value] = {}  # for confluent-kafka, over the table's
    security: Security = PLAINTEXT
    alone: str = ALONE

    @property
    def kind(self) -> str:
        """The kind of client, as the file names it."""
        return str(self.__struct_config__.tag)

    def servers(self) -> dict[str, Any]:
        """Where the cluster is and how it is spoken to, for confluent-kafka."""
        return {"bootstrap.servers": self.bootstrap, "client.id": self.client, **self.security.client()}

    def save(self, path: Path) -> None:
        """Write it where the client reads it."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2))


class IdempotentSpec(BaseSpec, frozen=True, kw_only=True, tag="idempotent"):
    """A producer without transactions: where to, what, how fast."""

    topic: str
    partitions: Positive
    rate: Positive = 2000  # records a second, over all partitions
    burst: Positive = 50  # records of one history operation
    payload: int = 64  # bytes after the identity
    idempotence: bool = True


class TransactionsBase(BaseSpec, frozen=True, kw_only=True):
    """What transactions are made of."""

    transaction_timeout_ms: Positive = int(TRANSACTION_LIMIT_S * 1000)
    records: tuple[Positive, Positive] = (1, 100)  # of one transaction, drawn between these
    abort_share: Share = 0.1
    payload: int = 64
    end_discipline: Discipline = "reinit"
    seed: int = 0


class TransactionalSpec(TransactionsBase, frozen=True, kw_only=True, tag="transactional"):
    """A transactional producer: where to, how fast; it draws the size and the end of every transaction."""

    topic: str
    partitions: Positive
    transactional_id: str
    rate: Positive = 2000

    @property
    def places(self) -> list[PartitionId]:
        """Its lanes."""
        return [(self.topic, partition) for partition in range(self.partitions)]


class PipelineSpec(TransactionsBase, frozen=True, kw_only=True, tag="pipeline"):
    """One worker of a consume-transform-produce; without a transactional id it does without transactions."""

    source: str  # topic
    group: str
    sink: str
    partitions: Positive  # of the sink
    transactional_id: str | None = None
    outputs: Positive = 1  # owed for every input
    group_metadata: bool = True  # False: those of a consumer that never subscribed
    protocol: Protocol = "classic"
    changelog: str = ""  # topic of the aggregates of a stateful worker
    changelog_partitions: int = 0  # as many as the source has
    positions: Positions = "inside"
    linger: float = 0.5  # seconds that a transaction waits for more input
    work: float = 0.0  # seconds between the last output of a transaction and its offsets

    @property
    def places(self) -> list[PartitionId]:
        """Its lanes: the partitions of the sink, then those of the changelog."""
        outputs = [(self.sink, partition) for partition in range(self.partitions)]
        return outputs + [(self.changelog, partition) for partition in range(self.changelog_partitions)]


class ReaderSpec(BaseSpec, frozen=True, kw_only=True, tag="reader"):
    """A reader of whole topics: a member of a group, or without one of every partition."""

    topics: list[str]
    group: str | None = None
    isolation: Isolation = "read_committed"
    protocol: Protocol = "classic"


ClientSpec = IdempotentSpec | TransactionalSpec | PipelineSpec | ReaderSpec


def load_spec(path: Path) -> ClientSpec:
    """Read a client's file, or say what is wrong with it."""
    try:
        spec: ClientSpec = msgspec.json.decode(path.read_bytes(), type=ClientSpec)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{path}: {error}", "it is written by the harness and not meant to be edited"
        ) from error
    return spec
