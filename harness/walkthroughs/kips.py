"""Kafka Improvement Proposals about exactly-once: what each changed, since when, and an observation.

An observation sends a few requests to a running cluster, on topics, groups and transactional ids of its own,
and compares each answer with the expected one. For a proposal that is not in Kafka, it shows that nothing of
it is there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal, NamedTuple

from harness.base.errors import UsageError
from harness.base.partition_id import PartitionId
from harness.base.waits import wait_until
from harness.clients.scripted import java_client
from harness.clients.scripted.client_libraries import ProducerConfig, RefusedCallError
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.kafka import brokers, features, transactions
from harness.kafka.errors import error_name
from harness.kafka.group_offsets import committed_offset
from harness.kafka.librdkafka import client_defaults
from harness.kafka.raw_produce import encode_batch, produce
from harness.kafka.transactions import GroupMember, ProducerIdentity
from harness.provision.client_classes import has_class, mentions
from harness.provision.kafka_versions import DEFAULT_KAFKA, NEWEST_CLIENT, KafkaFeature, require_features
from harness.walkthroughs.broker_evidence import blocks, leader_log, overlapping
from harness.walkthroughs.matrix.bench import Bench
from harness.walkthroughs.matrix.libraries import find_libraries

Status = Literal["adopted", "not adopted", "not public", "newer release"]
_TXN_OFFSET_COMMIT, _INIT_PRODUCER_ID = 28, 22
_WAIT_S: Final = 20.0
_MANY: Final = 500
_TOO_LARGE: Final = 2_000_000
_OK: Final = "ok"
_OFFSET: Final = 7
_PRODUCER: Final = "org/apache/kafka/clients/producer/KafkaProducer"
_TXN_OFFSET_COMMIT_DATA: Final = "org/apache/kafka/common/message/TxnOffsetCommitRequestData"
_ERRORS: Final = "org/apache/kafka/common/errors"
_OLD_CLIENT: Final = "3.9.2"


class Seen(NamedTuple):
    """One comparison of an observation: what was looked at, the expected value, and the observed one."""

    what: str
    expected: str
    observed: str

    @property
    def same(self) -> bool:
        """Whether the observed value is the expected one."""
        return self.expected == self.observed


class Kip(NamedTuple):
    """A proposal: what it changed, since which release, and how to observe it.

    `more` names commands of this repository that show more of it.
    """

    number: int
    title: str
    status: Status
    since: str
    changed: str
    observe: Callable[[Place], Iterator[Seen]]
    more: tuple[str, ...] = ()
    needs: frozenset[KafkaFeature] = frozenset()


class Place:
    """The cluster of an observation, with names that nothing else uses."""

    def __init__(self, cluster: Cluster, kip: int) -> None:
        self.cluster = cluster
        self.admin = cluster.admin
        self._name = f"kip-{kip}-{uuid.uuid4().hex[:8]}"
        self._numbers = iter(range(1000))

    def name(self) -> str:
        """Return a name for a group or a transactional id."""
        return f"{self._name}-{next(self._numbers)}"

    def topic(self) -> PartitionId:
        """Create a topic with one partition, and return this partition."""
        name = self.name()
        self.cluster.create_topic(name, 1)
        return name, 0

    def leader(self, partition_id: PartitionId) -> tuple[str, int]:
        """Return the address of the leader of a partition."""
        return self.cluster.address_of(self.cluster.leader_of(*partition_id))

    def producer(self, transactional_id: str = "") -> ProducerIdentity:
        """Initialise a transactional id, by default a new one."""
        transactional_id = transactional_id or self.name()

        def initialised() -> list[ProducerIdentity]:
            code, producer_id, epoch = transactions.initialise(self.admin, transactional_id)
            return [] if code else [ProducerIdentity(transactional_id, producer_id, epoch)]

        return wait_until(initialised, _WAIT_S, f"a producer id for {transactional_id}")[0]

    @contextmanager
    def java_producer(self, transactional_id: str) -> Iterator[java_client.JavaClient]:
        """Open and initialise a transactional producer of Kafka's Java client."""
        servers = self.cluster.bootstrap(BrokerListener.DIRECT)
        client = java_client.JavaClient(ProducerConfig(servers, transactional_id, "kip", 30_000))
        try:
            client.init()
            yield client
        finally:
            client.close()

    def write(self, producer: ProducerIdentity, partition_id: PartitionId, sequence: int = 0) -> str:
        """Send one transactional batch, and return the name of the answer's error code."""
        batch = encode_batch(producer.producer_id, producer.epoch, sequence, [b"kip"], transactional=True)
        leader = self.leader(partition_id)
        return produce(leader, partition_id, batch, transactional_id=producer.transactional_id).error

    def end(self, producer: ProducerIdentity, *, commit: bool) -> str:
        """End a transaction, and return the name of the answer's error code."""
        return error_name(transactions.end(self.admin, producer, commit=commit))


def _exactly_once(place: Place) -> Iterator[Seen]:
    """KIP-98: a second producer with the same transactional id fences the first; aborted records stay."""
    partition_id = place.topic()
    first = place.producer()
    added = transactions.add_partitions(place.admin, first, [partition_id])
    yield Seen("AddPartitionsToTxn", "NONE", error_name(added))
    yield Seen("Produce of the first producer", "NONE", place.write(first, partition_id))
    second = place.producer(first.transactional_id)
    same_id = second.producer_id == first.producer_id
    yield Seen("the second producer has the id of the first", "True", str(same_id))
    yield Seen("its epoch is higher", "True", str(second.epoch > first.epoch))
    yield Seen("EndTxn of the first producer", "INVALID_PRODUCER_EPOCH", place.end(first, commit=True))
    yield Seen("Produce of the first producer", "INVALID_PRODUCER_EPOCH", place.write(first, partition_id, 1))
    kinds = [
        "marker" if batch.control is not None else "records"
        for batch in leader_log(place.cluster, partition_id)
    ]
    yield Seen("the log", "records, marker", ", ".join(kinds))


def _not_by_default(place: Place) -> Iterator[Seen]:
    """KIP-185: a batch without producer id is accepted, and librdkafka's default is no idempotence."""
    partition_id = place.topic()
    for _ in range(2):
        answer = produce(place.leader(partition_id), partition_id, encode_batch(-1, -1, -1, [b"kip"]))
        yield Seen("the same batch without producer id", "NONE", answer.error)
    copies = [batch.producer_id for batch in leader_log(place.cluster, partition_id)]
    yield Seen("producer ids in the log: two copies", "[-1, -1]", str(copies))
    idempotence = client_defaults(["enable.idempotence"])["enable.idempotence"]
    yield Seen("enable.idempotence of librdkafka by default", "false", idempotence)


def _epoch_bump(place: Place) -> Iterator[Seen]:
    """KIP-360: InitProducerId with the current id and epoch raises the epoch; an old one is fenced."""
    first = place.producer()
    code, producer_id, epoch = transactions.initialise(
        place.admin, first.transactional_id, producer_id=first.producer_id, epoch=first.epoch
    )
    yield Seen("InitProducerId with the current id and epoch", "NONE", error_name(code))
    yield Seen("the id stays", "True", str(producer_id == first.producer_id))
    yield Seen("the epoch grows by", "1", str(epoch - first.epoch))
    third = transactions.initialise(
        place.admin, first.transactional_id, producer_id=first.producer_id, epoch=first.epoch + 1
    )
    yield Seen("again, with the new epoch", "NONE", error_name(third.code))
    stale = transactions.initialise(
        place.admin, first.transactional_id, producer_id=first.producer_id, epoch=first.epoch
    )
    yield Seen("with the epoch before the last", "PRODUCER_FENCED", error_name(stale.code))


def _group_fencing(place: Place) -> Iterator[Seen]:
    """KIP-447: pending offsets are not stable, and a member that the group lacks cannot commit offsets."""
    partition_id, group = place.topic(), place.name()
    producer = place.producer()
    added = transactions.add_offsets(place.admin, producer, group)
    yield Seen("AddOffsetsToTxn", "NONE", error_name(added))
    stranger = GroupMember(7, "a-member-that-left")
    code = transactions.commit_offsets(place.admin, producer, group, {partition_id: 1}, stranger)
    yield Seen("TxnOffsetCommit of a member that the group lacks", "ILLEGAL_GENERATION", error_name(code))
    code = transactions.commit_offsets(place.admin, producer, group, {partition_id: 1})
    yield Seen("TxnOffsetCommit without group metadata", "NONE", error_name(code))
    coordinator = place.cluster.group_coordinator(group)
    for stable, expected in ((True, "UNSTABLE_OFFSET_COMMIT"), (False, "NONE")):
        found = committed_offset(place.admin, coordinator, group, partition_id, stable=stable)
        yield Seen(f"OffsetFetch with require_stable={str(stable).lower()}", expected, found.error)
    yield Seen("EndTxn", "NONE", place.end(producer, commit=True))

    def offset() -> int:
        return committed_offset(place.admin, coordinator, group, partition_id, stable=True).offset

    wait_until(lambda: offset() == 1, _WAIT_S, "the offset of the committed transaction")
    yield Seen("the offset after the commit", "1", str(offset()))


def _load_times(place: Place) -> Iterator[Seen]:
    """KIP-484: each coordinator measures how long it loads a partition; its log has the same number."""
    found = {
        kind: any(
            f"loading {text}" in node.log(100_000).lower() and "milliseconds" in node.log(100_000)
            for node in place.cluster.brokers
        )
        for kind, text in (("group", "of metadata from __consumer_offsets"), ("transaction", "transaction"))
    }
    for kind, logged in found.items():
        yield Seen(f"a {kind} coordinator has logged the milliseconds of a load", "True", str(logged))


def _fence_producers(place: Place) -> Iterator[Seen]:
    """KIP-618: before new tasks start, the leader of the workers fences the producers of the old ones."""
    partition_id, task = place.topic(), place.producer()
    transactions.add_partitions(place.admin, task, [partition_id])
    yield Seen("Produce of a task", "NONE", place.write(task, partition_id))
    code = transactions.initialise(place.admin, task.transactional_id, timeout_ms=1).code
    # The coordinator may first end the open transaction, and answer CONCURRENT_TRANSACTIONS.
    answered = error_name(code) in ("NONE", "CONCURRENT_TRANSACTIONS")
    yield Seen("InitProducerId as Admin.fenceProducers sends it is accepted", "True", str(answered))
    wait_until(
        lambda: any(batch.control is not None for batch in leader_log(place.cluster, partition_id)),
        _WAIT_S,
        "the marker of the fenced task",
    )
    yield Seen("EndTxn of the task", "INVALID_PRODUCER_EPOCH", place.end(task, commit=True))
    yield Seen(
        "KafkaAdminClient has fenceProducers",
        "True",
        str(mentions("org/apache/kafka/clients/admin/KafkaAdminClient", "fenceProducers")),
    )


def _strong_defaults(place: Place) -> Iterator[Seen]:
    """KIP-679: a Java producer with defaults is idempotent; acks=1 switches this off without an error."""
    settings: tuple[tuple[dict[str, str], str], ...] = (({}, "True"), ({"acks": "1"}, "False"))
    with java_client.running():
        for changed, expected in settings:
            partition_id = place.topic()
            java_client.send_plain(
                place.cluster.bootstrap(BrokerListener.DIRECT), partition_id[0], "kip", changed
            )
            (batch,) = wait_until(
                partial(leader_log, place.cluster, partition_id), _WAIT_S, "the record of the Java producer"
            )
            how = " and ".join(f"{key}={value}" for key, value in changed.items()) or "defaults"
            what = f"the batch of a Java producer with {how} has a producer id"
            yield Seen(what, expected, str(batch.producer_id >= 0))
    defaults = client_defaults(["enable.idempotence", "acks"])
    yield Seen("acks of librdkafka by default", "-1", defaults["acks"])
    yield Seen("enable.idempotence of librdkafka by default", "false", defaults["enable.idempotence"])


def _errors(place: Place) -> Iterator[Seen]:
    """KIP-691: a Java producer can continue after an abortable error, and cannot after a fatal one."""
    with java_client.running():
        yield from _after_errors(place)
    for name in ("ApplicationRecoverableException", "RefreshRetriableException"):
        for version, expected in ((DEFAULT_KAFKA, "True"), (_OLD_CLIENT, "False")):
            found = has_class(f"{_ERRORS}/{name}", version)
            yield Seen(f"kafka-clients {version} has {name} (KIP-1050)", expected, str(found))


def _after_errors(place: Place) -> Iterator[Seen]:
    partition_id, transactional_id = place.topic(), place.name()
    with place.java_producer(transactional_id) as first:
        yield Seen("begin", _OK, _name(first.begin))
        too_large = partial(first.send, *partition_id, [b"x" * _TOO_LARGE])
        yield Seen("send of a record that is too large", "RecordTooLargeException", _name(too_large))
        committed = _name(partial(first.end, "commit"))
        yield Seen("commit after this abortable error", "KafkaException", committed)
        yield Seen("abort after it", _OK, _name(partial(first.end, "abort")))
        yield Seen("begin after the abort", _OK, _name(first.begin))
        yield Seen("send", _OK, _name(partial(first.send, *partition_id, [b"kip"])))
        with place.java_producer(transactional_id) as second:
            yield Seen("begin of a second producer with the same id", _OK, _name(second.begin))
            committed = _name(partial(first.end, "commit"))
            yield Seen("commit of the first producer", "ProducerFencedException", committed)
            aborted = _name(partial(first.end, "abort"))
            yield Seen("abort after this fatal error", "ProducerFencedException", aborted)


def _name(call: Callable[[], None]) -> str:
    """Return the name of the error of a call, or `ok`."""
    try:
        call()
    except RefusedCallError as error:
        return error.name
    return _OK


def _id_blocks(place: Place) -> Iterator[Seen]:
    """KIP-730: the controllers give each broker blocks of 1000 ids, which do not overlap."""
    ids = {broker: place.admin.idempotent_producer_id(broker) for broker in place.cluster.broker_ids}
    found = blocks(place.cluster)
    odd = [block for block in found if block.first % 1000]
    yield Seen("blocks that do not begin at a multiple of 1000", "0", str(len(odd)))
    yield Seen("blocks that overlap", "0", str(len(overlapping(found))))
    for broker, new_id in ids.items():
        owners = {block.broker for block in found if new_id in block}
        yield Seen(f"owner of the block with the new id of broker {broker}", str({broker}), str(owners))


def _id_expiry(place: Place) -> Iterator[Seen]:
    """KIP-854: a broker forgets an idle producer id after a time of its own, which can be changed."""
    partition_id = place.topic()
    leader = place.cluster.leader_of(*partition_id)
    expiry = "producer.id.expiration.ms"
    yield Seen(f"{expiry} by default", str(24 * 3600 * 1000), brokers.setting(place.admin, leader, expiry))
    ids = "transactional.id.expiration.ms"
    yield Seen(f"{ids} by default", str(7 * 24 * 3600 * 1000), brokers.setting(place.admin, leader, ids))
    producer_id = place.admin.idempotent_producer_id(leader)
    batch = encode_batch(producer_id, 0, 0, [b"kip"])
    yield Seen("Produce", "NONE", produce(place.leader(partition_id), partition_id, batch).error)

    def known() -> bool:
        active = brokers.describe_producers(place.admin, leader, partition_id)
        return any(producer.producer_id == producer_id for producer in active)

    yield Seen("DescribeProducers has the id", "True", str(known()))
    brokers.change_settings(place.admin, leader, {expiry: "1500"})
    try:
        wait_until(lambda: not known(), _WAIT_S, "the producer id to expire")
    finally:
        brokers.change_settings(place.admin, leader, {expiry: None})
    yield Seen(f"DescribeProducers has the id, with {expiry}=1500", "False", str(known()))


def _epoch_per_transaction(place: Place) -> Iterator[Seen]:
    """KIP-890: partitions must be in the transaction; EndTxn 5 raises the epoch, and fences the old one."""
    level = features.levels(place.admin).get(features.TRANSACTION_VERSION, 0)
    yield Seen(features.TRANSACTION_VERSION, "2", str(level))
    partition_id, producer = place.topic(), place.producer()
    yield Seen(
        "Produce 9 to a partition outside the transaction",
        "INVALID_TXN_STATE",
        place.write(producer, partition_id),
    )
    transactions.add_partitions(place.admin, producer, [partition_id])
    yield Seen("the same after AddPartitionsToTxn", "NONE", place.write(producer, partition_id))
    ended = transactions.end_with_new_epoch(place.admin, producer, commit=True)
    yield Seen("EndTxn 5", "NONE", error_name(ended.code))
    yield Seen("the epoch in its answer has grown by", "1", str(ended.epoch - producer.epoch))

    def repeated() -> str:
        answer = error_name(transactions.end_with_new_epoch(place.admin, producer, commit=True).code)
        # Until the markers are written, the coordinator asks the client to repeat the request.
        return "" if answer == "CONCURRENT_TRANSACTIONS" else answer

    retry = wait_until(repeated, _WAIT_S, "an answer to the repeated EndTxn")
    yield Seen("the same EndTxn 5 once more: a retry", "NONE", retry)
    old = transactions.add_partitions(place.admin, producer, [partition_id])
    yield Seen("AddPartitionsToTxn with the old epoch", "INVALID_PRODUCER_EPOCH", error_name(old))


def _no_id_quota(place: Place) -> Iterator[Seen]:
    """KIP-936: brokers have no quota on producer ids, and assign any number of them."""
    for quota, expected in (("producer_byte_rate", "NONE"), ("producer_ids_rate", "INVALID_REQUEST")):
        answer = brokers.check_client_quota(place.admin, "kip-936", quota)
        yield Seen(f"AlterClientQuotas with {quota}", expected, answer)
    found = brokers.request_producer_ids(place.admin, place.cluster.broker_ids[0], _MANY)
    yield Seen("ids that one connection received", str(_MANY), str(found.ids))
    yield Seen("of which throttled", "0", str(found.throttled))


def _no_two_phase_commit(place: Place) -> Iterator[Seen]:
    """KIP-939: the broker does not offer InitProducerId 6, and the client has no method for it."""
    transactional_id = place.name()
    coordinator = place.cluster.txn_coordinator(transactional_id)
    highest = brokers.api_versions(place.admin, coordinator)[_INIT_PRODUCER_ID][1]
    yield Seen("the broker offers InitProducerId 6", "False", str(highest >= 6))
    result = transactions.initialise_two_phase(place.admin, coordinator, transactional_id)
    answer = "the broker closes the connection" if result is None else error_name(result.code)
    yield Seen("InitProducerId 6 with enable2Pc", "the broker closes the connection", answer)
    for version in (NEWEST_CLIENT, DEFAULT_KAFKA):
        public = mentions(_PRODUCER, "prepareTransaction", version)
        yield Seen(f"KafkaProducer {version} has prepareTransaction", "False", str(public))


def _no_topic_ids(place: Place) -> Iterator[Seen]:
    """KIP-1319: the newest client has TxnOffsetCommit 6, with topic ids; these brokers do not offer it."""
    for version, expected in ((NEWEST_CLIENT, "True"), (DEFAULT_KAFKA, "False")):
        known = mentions(_TXN_OFFSET_COMMIT_DATA, "SCHEMA_6", version)
        yield Seen(f"kafka-clients {version} has TxnOffsetCommit 6", expected, str(known))
    for broker in place.cluster.broker_ids:
        highest = brokers.api_versions(place.admin, broker)[_TXN_OFFSET_COMMIT][1]
        yield Seen(f"broker {broker} offers TxnOffsetCommit 6", "False", str(highest >= 6))
    level = features.levels(place.admin).get(features.TRANSACTION_VERSION, 0)
    sent, offset = _commit_offset(place)
    what = f"with transaction.version {level}, kafka-clients {NEWEST_CLIENT} sends TxnOffsetCommit"
    yield Seen(what, "5" if level == 2 else "4", str(sent))
    yield Seen("the offset after its commit", str(_OFFSET), str(offset))


def _commit_offset(place: Place) -> tuple[int, int]:
    """Commit an offset with the newest client. Return the version of its request, and the group's offset."""
    with TemporaryDirectory() as folder, closing(_bench(place, Path(folder))) as bench:
        producer, source, group = bench.producer(), bench.topic(), place.name()
        producer.begin(bench.topic(), "kip")
        producer.call("offset", group, *source, _OFFSET)
        producer.call("commit")
        return bench.versions()["TxnOffsetCommit"], bench.position(group, source)


def _bench(place: Place, folder: Path) -> Bench:
    (java,) = find_libraries((f"java {NEWEST_CLIENT}",))
    return Bench(place.cluster, java.prepare(lambda _: None), folder)


_ALL: Final = (
    Kip(
        98,
        "Exactly-once delivery and transactional messaging",
        "adopted",
        "0.11.0",
        "Idempotent producers, transactions, record format 2 and read_committed.",
        _exactly_once,
        ("eos run transactional-walkthrough", "pytest tests/transactional/test_zombies.py"),
    ),
    Kip(
        185,
        "Make exactly-once the default",
        "not adopted",
        "-",
        "Nothing: it was discussed. Of its ideas, idempotence with five requests in flight came with 1.0.",
        _not_by_default,
        ("eos run without-idempotence --expected",),
    ),
    Kip(
        360,
        "Improve the reliability of idempotent and transactional producers",
        "adopted",
        "2.5",
        "A producer recovers from UNKNOWN_PRODUCER_ID: InitProducerId 3 raises the epoch of a given id.",
        _epoch_bump,
        ("pytest tests/transactional/test_ids.py",),
    ),
    Kip(
        447,
        "Producer scalability for exactly-once",
        "adopted",
        "2.5",
        "One producer a process: the group's generation fences offsets, and pending offsets are not read.",
        _group_fencing,
        ("eos run no-group-metadata --expected", "eos run rebalance-storm"),
    ),
    Kip(
        484,
        "Metrics for the time to load groups and transactions",
        "adopted",
        "2.4",
        "JMX metrics partition-load-time-max and -avg of both coordinators.",
        _load_times,
        ("eos run coordinator-kills",),
    ),
    Kip(
        618,
        "Exactly-once for source connectors",
        "adopted",
        "3.3",
        "Workers write records and offsets in one transaction, and fence old tasks.",
        _fence_producers,
    ),
    Kip(
        679,
        "Strongest delivery guarantee by default",
        "adopted",
        "3.0, in effect since 3.0.1, 3.1.1 and 3.2.0",
        "acks=all and idempotence are defaults of Java's producer, and not of each other client.",
        _strong_defaults,
        ("eos facts",),
    ),
    Kip(
        691,
        "Transactional producer exception handling",
        "not adopted",
        "-",
        "Accepted and not built as such. KIP-1050 (4.1) classifies the errors by base classes.",
        _errors,
    ),
    Kip(
        730,
        "Producer id generation by controllers",
        "adopted",
        "3.0",
        "Controllers allocate blocks of 1000 producer ids to brokers, as records of the metadata log.",
        _id_blocks,
        ("pytest tests/idempotent/test_ids.py",),
    ),
    Kip(
        854,
        "Separate configuration for producer id expiry",
        "adopted",
        "3.4",
        "producer.id.expiration.ms (one day) is apart from transactional.id.expiration.ms (7 days).",
        _id_expiry,
        ("pytest tests/idempotent/test_ids.py -k expire",),
    ),
    Kip(
        890,
        "Transactions server-side defense",
        "adopted",
        "3.6 (verification), 3.8 (TRANSACTION_ABORTABLE), 4.0 (transaction.version 2)",
        "Brokers verify the partitions of a transaction; with version 2 each one has its own epoch.",
        _epoch_per_transaction,
        ("eos run delayed-endtxn-control", "eos run late-marker-control"),
        frozenset({KafkaFeature.TRANSACTION_VERSION}),
    ),
    Kip(
        936,
        "Throttle the number of active producer ids",
        "not adopted",
        "-",
        "Nothing: it was discussed.",
        _no_id_quota,
    ),
    Kip(
        939,
        "Participation in two-phase commit",
        "not public",
        "4.1 in brokers, hidden",
        "Prepared transactions wait for another coordinator. The client's methods are not released.",
        _no_two_phase_commit,
    ),
    Kip(
        1319,
        "Topic ids in TxnOffsetCommit",
        "newer release",
        "4.4",
        "TxnOffsetCommit 6 names topics by their ids.",
        _no_topic_ids,
    ),
)
KIPS: Final[Mapping[int, Kip]] = {kip.number: kip for kip in _ALL}


def find_kip(number: int) -> Kip:
    """Return a proposal by its number. If it is not in the table, raise UsageError with the known numbers."""
    if number not in KIPS:
        raise UsageError(f"KIP-{number} is not in the table", f"proposals are {', '.join(map(str, KIPS))}")
    return KIPS[number]


def observe(kip: Kip, cluster: Cluster) -> list[Seen]:
    """Carry out the observation of a proposal on a cluster."""
    require_features(cluster.record.kafka, kip.needs, f"the observation of KIP-{kip.number}")
    return list(kip.observe(Place(cluster, kip.number)))
