"""Specification of one client process: a JSON file, so that the command line stays short."""

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
Discipline = Literal["reinit", "always", "naive"]
ALONE: Final = "eos-reader"
"""Group id of a reader without a group: the library requires an id, and no offset is committed under it."""
Positions = Literal["inside", "apart"]
"""Whether a pipeline commits its positions inside its transactions (`inside`) or after them (`apart`)."""
Isolation = Literal["read_committed", "read_uncommitted"]


class BaseSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """Fields that every client has: run, cluster, history file, duration."""

    run: RunName
    client: str
    bootstrap: str
    history: str
    seconds: float
    number: int = 0  # producer number in the run; readers have none
    settings: dict[str, Value] = {}  # confluent-kafka settings that override the harness's defaults
    security: Security = PLAINTEXT
    alone: str = ALONE
    planted_bug: str = ""  # bug that the client has on purpose; see planted_bugs.py

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    def servers(self) -> dict[str, Any]:
        """Bootstrap servers and security settings, for confluent-kafka."""
        return {"bootstrap.servers": self.bootstrap, "client.id": self.client, **self.security.client()}

    def save(self, path: Path) -> None:
        """Write the specification to the file that the client reads."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2))


class IdempotentSpec(BaseSpec, frozen=True, kw_only=True, tag="idempotent"):
    """Specification of a producer without transactions."""

    topic: str
    partitions: Positive
    rate: Positive = 2000  # records per second, over all partitions
    burst: Positive = 50  # records per history operation
    payload: int = 64  # bytes that follow the identity in a record
    idempotence: bool = True


class TransactionsBase(BaseSpec, frozen=True, kw_only=True):
    """Fields that all clients with transactions share."""

    transaction_timeout_ms: Positive = int(TRANSACTION_LIMIT_S * 1000)
    records: tuple[Positive, Positive] = (1, 100)  # records per transaction, drawn from this range
    abort_share: Share = 0.1
    payload: int = 64
    end_discipline: Discipline = "reinit"
    delivery_limit_s: float = 0.0  # if deliveries take longer, abort at once; 0: wait for them
    seed: int = 0


class TransactionalSpec(TransactionsBase, frozen=True, kw_only=True, tag="transactional"):
    """Specification of a transactional producer.

    The producer draws the number of records of each transaction, and whether the transaction commits or
    aborts.
    """

    topic: str
    partitions: Positive
    transactional_id: str
    rate: Positive = 2000

    @property
    def places(self) -> list[PartitionId]:
        """The partitions that the producer writes to; each is a lane."""
        return [(self.topic, partition) for partition in range(self.partitions)]


class SeederSpec(TransactionsBase, frozen=True, kw_only=True, tag="seeder"):
    """Specification of a seeder: a transactional producer of the inputs of an application under test.

    With `keys`, each key is a lane, and key number `k` is in partition `k` modulo the number of partitions.
    Without, each partition is a lane. `key` and `value` are templates (input_template.py); without `key`, the
    Kafka key is the number of the key, or null. `headers` are templates by name. An encoder
    (input_encoder.py) runs in `folder`.
    """

    topic: str
    partitions: Positive
    transactional_id: str
    rate: Positive = 500
    keys: Annotated[int, msgspec.Meta(ge=0)] = 0
    key: str = ""
    value: str = "{id}"
    headers: dict[str, str] = {}
    encoder: str = ""
    encoder_command: list[str] = []
    folder: str = "."

    @property
    def places(self) -> list[PartitionId]:
        """The topic and partition of each lane."""
        return [(self.topic, lane % self.partitions) for lane in range(self.keys or self.partitions)]


class PipelineSpec(TransactionsBase, frozen=True, kw_only=True, tag="pipeline"):
    """Specification of a pipeline worker. If `transactional_id` is None, the worker uses no transactions."""

    source: str  # input topic
    group: str
    sink: str
    partitions: Positive  # number of partitions of the output topic, `sink`
    transactional_id: str | None = None
    outputs: Positive = 1  # expected outputs per input
    group_metadata: bool = True  # False: use the group metadata of a consumer that never subscribed
    protocol: Protocol = "classic"
    changelog: str = ""  # changelog topic of a stateful worker
    changelog_partitions: int = 0  # the source has the same number of partitions
    positions: Positions = "inside"
    linger: float = 0.5  # seconds for which a transaction waits for more input
    work: float = 0.0  # pause in seconds after the last output, before the transaction's offsets are sent

    @property
    def places(self) -> list[PartitionId]:
        """The lanes in order: the partitions of the sink, then those of the changelog."""
        outputs = [(self.sink, partition) for partition in range(self.partitions)]
        return outputs + [(self.changelog, partition) for partition in range(self.changelog_partitions)]


class ReaderSpec(BaseSpec, frozen=True, kw_only=True, tag="reader"):
    """Specification of a reader of whole topics.

    With a `group`, the reader joins this group. Without one, it is assigned every partition of the topics.
    """

    topics: list[str]
    group: str | None = None
    isolation: Isolation = "read_committed"
    protocol: Protocol = "classic"


ClientSpec = IdempotentSpec | TransactionalSpec | SeederSpec | PipelineSpec | ReaderSpec


def load_spec(path: Path) -> ClientSpec:
    """Read a client's specification; raise UsageError if it is invalid."""
    try:
        spec: ClientSpec = msgspec.json.decode(path.read_bytes(), type=ClientSpec)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: {error}", "the harness writes this file; do not edit it") from error
    return spec
