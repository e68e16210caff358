"""Claims about metrics: an observation of what each of them counts when exactly-once is at stake.

An observation makes one thing happen on a running cluster, such as a batch that is sent twice. It then
compares how much the metrics of the brokers and of a Java producer have grown with the expected growth. What
really happened is read from the log of the leader.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from harness.base.errors import UsageError
from harness.base.partition_id import PartitionId
from harness.base.scratch import scratch_folder
from harness.base.waits import wait_until
from harness.clients.scripted.client_libraries import RefusedCallError
from harness.cluster.broker_metrics import (
    LOADS,
    NOT_RUNNING,
    PRODUCER_IDS,
    UNDER_MIN_ISR,
    BrokerMetrics,
    errors,
)
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.cluster.nodes import Condition
from harness.faults import HoldFrame, Kill, LoseResponseFrame, inject
from harness.kafka.errors import error_name
from harness.kafka.raw_produce import encode_batch, new_producer_ids, produce
from harness.provision.kafka_versions import DEFAULT_KAFKA
from harness.walkthroughs.broker_evidence import leader_log
from harness.walkthroughs.kips import Seen
from harness.walkthroughs.matrix.bench import Bench, Producer
from harness.walkthroughs.matrix.libraries import find_libraries

_WAIT_S: Final = 20.0
_FORGET_S: Final = 120.0
"""Kafka's metrics of maxima forget a value after two windows of 30 s."""
_SHORT_TIMEOUT_MS: Final = 1500
_IDS: Final = 20
_OLD_CLIENT: Final = "3.9.2"
_NONE: Final = "none"
_ABORT: Final = 0
_PASSING: Final = frozenset(
    {
        "CONCURRENT_TRANSACTIONS",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "NOT_LEADER_OR_FOLLOWER",
        "UNKNOWN_TOPIC_OR_PARTITION",
    }
)
"""Errors after which every client tries again. They occur in healthy clusters, and are not counted here."""

Report = Callable[[str], None]


class MetricClaim(NamedTuple):
    """A claim about metrics, what is true, and the observation that shows it."""

    name: str
    claim: str
    answer: str
    observe: Callable[[Stand], Iterator[Seen]]
    slow: bool = False
    """Whether the observation kills brokers or waits for minutes."""


class Stand:
    """The cluster of an observation, and the metrics before it."""

    def __init__(self, cluster: Cluster, metrics: BrokerMetrics, folder: Path, report: Report) -> None:
        self.cluster = cluster
        self._metrics = metrics
        self._folder = folder
        self._report = report
        self._before: dict[str, float] = {}

    @contextmanager
    def bench(self, kafka: str = DEFAULT_KAFKA) -> Iterator[Bench]:
        """Provide topics and producers of Kafka's Java client of a version, through the wire tap."""
        (library,) = find_libraries((f"java {kafka}",))
        bench = Bench(self.cluster, library.prepare(self._report), self._folder)
        try:
            yield bench
        finally:
            bench.close()

    def topic(self) -> PartitionId:
        """Create a topic with one partition, and return this partition."""
        name = f"claim-{uuid.uuid4().hex[:8]}"
        self.cluster.create_topic(name, 1)
        return name, 0

    def values(self) -> dict[str, float]:
        """Return the metrics, summed over all brokers that run. Wait until each of them has answered."""

        def whole() -> list[dict[str, float]]:
            reading = self._metrics.read()
            silent = [problem for problem in reading.problems.values() if problem != NOT_RUNNING]
            return [] if silent else [reading.total()]

        return wait_until(whole, _WAIT_S, "the metrics of every broker that runs")[0]

    def mark(self) -> None:
        """Take the metrics now as those before what is observed."""
        self._before = self.values()

    def grown(self, metric: str) -> float:
        """Return by how much a metric has grown since `mark`, summed over all brokers."""
        return self.values().get(metric, 0.0) - self._before.get(metric, 0.0)

    def errors(self) -> str:
        """Return the errors in answers to producers and coordinators since `mark`, or "none"."""
        found = []
        for name, value in sorted(errors(self.values()).items()):
            _, request, error = name.split(" ")
            count = round(value - self._before.get(name, 0.0))
            if count and error not in _PASSING:
                found.append(f"{request} {error} {count}")
        return ", ".join(found) or _NONE

    def counted(self) -> str:
        """Wait until brokers have counted an error, and return the errors."""
        wait_until(lambda: self.errors() != _NONE, _WAIT_S, "an error that brokers count")
        return self.errors()


def _client(producer: Producer) -> Mapping[str, float]:
    """Return the metrics of a Java producer."""
    return msgspec.json.decode(producer.call("metrics"), type=dict[str, float])


def _rows(before: Mapping[str, float], after: Mapping[str, float], **expected: int) -> Iterator[Seen]:
    """Compare the growth of metrics of a Java producer. `expected` has names such as `record_error_total`."""
    for key, growth in expected.items():
        name = key.replace("_", "-")
        yield Seen(
            f"growth of {name} of the client", str(growth), str(round(after[name] - before.get(name, 0.0)))
        )


def _copies(cluster: Cluster, partition_id: PartitionId, value: bytes) -> int:
    """Return the number of copies of a value in the log of a partition's leader."""
    return sum(stored == value for batch in leader_log(cluster, partition_id) for _, stored in batch.values)


def _refusal(producer: Producer, command: str) -> str:
    """Return the name of the error of a call that must fail."""
    try:
        producer.call(command)
    except RefusedCallError as refused:
        return refused.name
    return "ok"


def _duplicate(stand: Stand) -> Iterator[Seen]:
    """A batch is sent twice, because the answer to the first copy is lost."""
    with stand.bench() as bench:
        place, producer = bench.topic(), bench.producer()
        producer.begin(place, "a1")
        before = _client(producer)
        stand.mark()
        with bench.armed(LoseResponseFrame(api="Produce", client_id=producer.name)):
            producer.send(place, "a2")
        yield Seen(
            "growth of answers to Produce without an error", "2", f"{stand.grown('requests Produce'):g}"
        )
        yield Seen("errors of brokers", _NONE, stand.errors())
        yield Seen(
            "growth of InvalidOffsetOrSequenceRecordsPerSec", "0", f"{stand.grown('invalid sequences'):g}"
        )
        yield from _rows(before, _client(producer), record_retry_total=1, record_error_total=0)
        yield Seen("copies of the record in the log", "1", str(_copies(stand.cluster, place, b"a2")))
        producer.call("commit")


def _duplicate_written(stand: Stand) -> Iterator[Seen]:
    """The same with a producer without idempotence: the broker writes both copies."""
    with stand.bench() as bench:
        place = bench.topic()
        producer = Producer(bench.driver, f"{bench.name}-plain", "")
        servers = stand.cluster.bootstrap(BrokerListener.TAPPED)
        settings = (f"client.id={producer.name}", "enable.idempotence=false", "acks=all")
        bench.driver.call("custom", producer.name, servers, *settings)
        producer.send(place, "a1")
        before = _client(producer)
        stand.mark()
        with bench.armed(LoseResponseFrame(api="Produce", client_id=producer.name)):
            producer.send(place, "a2")
        yield Seen("copies of the record in the log", "2", str(_copies(stand.cluster, place, b"a2")))
        yield Seen("errors of brokers", _NONE, stand.errors())
        yield from _rows(before, _client(producer), record_retry_total=1, record_error_total=0)


def _gap(stand: Stand) -> Iterator[Seen]:
    """A batch is missing: the broker receives a sequence that is too high."""
    place = stand.topic()
    address = stand.cluster.address_of(stand.cluster.leader_of(*place))
    (producer_id,) = new_producer_ids(address, 1)
    first = produce(address, place, encode_batch(producer_id, 0, 0, [b"a1"]))
    stand.mark()
    yield Seen("the first batch", "NONE", first.error)
    again = produce(address, place, encode_batch(producer_id, 0, 0, [b"a1"]))
    yield Seen("the same batch again", "NONE", again.error)
    yield Seen("offset in both answers", str(first.offset), str(again.offset))
    gap = produce(address, place, encode_batch(producer_id, 0, 5, [b"a6"]))
    yield Seen("a batch after a gap", "OUT_OF_ORDER_SEQUENCE_NUMBER", gap.error)
    yield Seen("errors of brokers", "Produce OUT_OF_ORDER_SEQUENCE_NUMBER 1", stand.counted())
    yield Seen("growth of InvalidOffsetOrSequenceRecordsPerSec", "0", f"{stand.grown('invalid sequences'):g}")


def _zombie(stand: Stand) -> Iterator[Seen]:
    """A producer commits after another one has taken over its transactional id."""
    with stand.bench() as bench:
        place, first = bench.topic(), bench.producer()
        first.begin(place, "a1")
        bench.producer(first.transactional_id)
        before = _client(first)
        stand.mark()
        yield Seen("commit of the first producer", "ProducerFencedException", _refusal(first, "commit"))
        yield Seen("errors of brokers", "EndTxn PRODUCER_FENCED 1", stand.counted())
        yield from _rows(before, _client(first), record_error_total=0)


def _lost(stand: Stand) -> Iterator[Seen]:
    """A late copy of an abort ends the next transaction of a client that sends EndTxn 4 or lower."""
    with stand.bench(_OLD_CLIENT) as bench:
        place, other, producer = bench.topic(), bench.topic(), bench.producer()
        producer.begin(place, "a1")
        hold = HoldFrame(api="EndTxn", client_id=producer.name, drop_client=True)
        with bench.armed(hold) as held:
            producer.call("abort")
            producer.begin(place, "b1")
            before = _client(producer)
            stand.mark()
            held.release()
            wait_until(lambda: held.wait().hits[0].answer or "", _WAIT_S, "the answer to the late abort")
            producer.send(other, "b2")
            ended = _refusal(producer, "commit")
        committed = bench.committed(place) + bench.committed(other)
        yield Seen("commit of b1 and b2", "ok", ended)
        yield Seen("committed records", "b2", " ".join(committed))
        yield Seen("errors of brokers", _NONE, stand.errors())
        yield from _rows(before, _client(producer), record_error_total=0, record_retry_total=0)


def _time_out(stand: Stand) -> Iterator[Seen]:
    """A transaction stays open for longer than its time-out, and the coordinator aborts it."""
    with stand.bench() as bench:
        place = bench.topic()
        producer = Producer(bench.driver, f"{bench.name}-slow", f"{bench.name}-slow")
        servers = stand.cluster.bootstrap(BrokerListener.TAPPED)
        settings = (f"transactional.id={producer.name}", f"transaction.timeout.ms={_SHORT_TIMEOUT_MS}")
        bench.driver.call("custom", producer.name, servers, *settings)
        producer.call("init")
        producer.begin(place, "a1")
        before = _client(producer)
        stand.mark()
        wait_until(
            lambda: any(batch.control == _ABORT for batch in leader_log(stand.cluster, place)),
            _WAIT_S,
            "the marker of the coordinator's abort",
        )
        yield Seen("errors of brokers after the abort", _NONE, stand.errors())
        late = stand.grown("partitions with late transactions")
        yield Seen("growth of PartitionsWithLateTransactionsCount", "0", f"{late:g}")
        yield from _rows(before, _client(producer), record_error_total=0, txn_abort_time_ns_total=0)
        yield Seen(
            "the client's commit", "refused", "ok" if _refusal(producer, "commit") == "ok" else "refused"
        )
        noticed = stand.counted().rpartition(" ")[0]
        yield Seen("errors of brokers after the client's commit", "EndTxn INVALID_TXN_STATE", noticed)


def _new_ids(stand: Stand) -> Iterator[Seen]:
    """Some new producers write to a topic with three replicas."""
    place = stand.topic()
    address = stand.cluster.address_of(stand.cluster.leader_of(*place))
    stand.mark()
    for producer_id in new_producer_ids(address, _IDS):
        answer = produce(address, place, encode_batch(producer_id, 0, 0, [b"a1"]))
        if answer.code:
            yield Seen("Produce", "NONE", error_name(answer.code))
    expected = _IDS * len(stand.cluster.broker_ids)
    wait_until(lambda: stand.grown(PRODUCER_IDS) >= expected, _WAIT_S, "the followers to know the ids")
    yield Seen(
        f"growth of ProducerIdCount after {_IDS} new ids", str(expected), f"{stand.grown(PRODUCER_IDS):g}"
    )


def _coordinator(stand: Stand) -> Iterator[Seen]:
    """The broker of a transaction coordinator is killed, and another broker loads its partitions."""
    metric = LOADS["transactions"]
    with stand.bench() as bench:
        place, producer = bench.topic(), bench.producer()
        producer.begin(place, "a1")
        producer.call("commit")
        coordinator = stand.cluster.txn_coordinator(producer.transactional_id)
        wait_until(lambda: metric not in stand.values(), _FORGET_S, "no load in the last minute", every=2.0)
        yield Seen("partition-load-time-max has a value before", "False", str(metric in stand.values()))
        with inject(stand.cluster, Kill(), stand.cluster.name_of(coordinator)):
            wait_until(
                lambda: stand.cluster.txn_coordinator(producer.transactional_id) != coordinator,
                _WAIT_S,
                "another coordinator",
            )
            wait_until(lambda: metric in stand.values(), _WAIT_S, "the time of a load")
            yield Seen("partition-load-time-max has a value after", "True", str(metric in stand.values()))


def _under_min_isr(stand: Stand) -> Iterator[Seen]:
    """Two of three brokers are down, and min.insync.replicas is 2."""
    place = stand.topic()
    cluster = stand.cluster
    survivor = cluster.leader_of(*place)
    others = [cluster.name_of(broker) for broker in cluster.broker_ids if broker != survivor]
    address = cluster.address_of(survivor)
    (producer_id,) = new_producer_ids(address, 1)
    stand.mark()
    yield Seen("growth of UnderMinIsrPartitionCount before", "0", f"{stand.grown(UNDER_MIN_ISR):g}")
    with inject(cluster, Kill(), others[0]), inject(cluster, Kill(), others[1]):
        wait_until(lambda: stand.grown(UNDER_MIN_ISR) > 0, _WAIT_S, "partitions under min ISR")
        yield Seen("UnderMinIsrPartitionCount has grown", "True", str(stand.grown(UNDER_MIN_ISR) > 0))
        answer = produce(address, place, encode_batch(producer_id, 0, 0, [b"a1"]))
        yield Seen("Produce with acks=all", "NOT_ENOUGH_REPLICAS", answer.error)
        yield Seen("errors of brokers", "Produce NOT_ENOUGH_REPLICAS 1", stand.counted())
    assert all(node.status().condition is Condition.RUNNING for node in cluster.brokers)


_ALL: Final = (
    MetricClaim(
        "duplicate",
        "Duplicates show in record-error-rate, and in ErrorsPerSec of the broker.",
        "Neither moves: the broker answers the second copy like the first. Only record-retry-rate moves.",
        _duplicate,
    ),
    MetricClaim(
        "duplicate-written",
        "A duplicate that is written shows in the error metrics.",
        "It does not: without idempotence, no metric distinguishes a written duplicate from a retry.",
        _duplicate_written,
    ),
    MetricClaim(
        "gap",
        "A gap in the sequence is counted by ErrorsPerSec.",
        "It is, as OUT_OF_ORDER_SEQUENCE_NUMBER. InvalidOffsetOrSequenceRecordsPerSec counts something else.",
        _gap,
    ),
    MetricClaim(
        "zombie",
        "Fenced producers are counted by ErrorsPerSec.",
        "They are, under EndTxn. record-error-rate of the fenced producer does not move.",
        _zombie,
    ),
    MetricClaim(
        "lost",
        "A loss of committed records shows in the error metrics.",
        "It does not: the late copy of an abort is an ordinary request, and every answer is NONE.",
        _lost,
    ),
    MetricClaim(
        "time-out",
        "A transaction that the coordinator aborts after its time-out shows in the metrics.",
        "It does not, until the client sends its next request. PartitionsWithLateTransactionsCount counts "
        "transactions that are minutes older than the longest time-out.",
        _time_out,
    ),
    MetricClaim(
        "producer-ids",
        "ProducerIdCount shows how many producer ids a broker remembers.",
        "It does, for each replica: with three of them, the sum over all brokers is three times higher.",
        _new_ids,
    ),
    MetricClaim(
        "coordinator",
        "partition-load-time-max (KIP-484) shows that a transaction coordinator has moved.",
        "It does: the metric has a value for about a minute after a load, and none at other times.",
        _coordinator,
        slow=True,
    ),
    MetricClaim(
        "min-isr",
        "UnderMinIsrPartitionCount shows that producers with acks=all are refused.",
        "It does, and ErrorsPerSec counts each refused request as NOT_ENOUGH_REPLICAS.",
        _under_min_isr,
        slow=True,
    ),
)
CLAIMS: Final = {claim.name: claim for claim in _ALL}


def find_claim(name: str) -> MetricClaim:
    """Return a claim by its name."""
    if name not in CLAIMS:
        raise UsageError(f"there is no claim {name[:80]!r}", f"the claims are {', '.join(CLAIMS)}")
    return CLAIMS[name]


def observe(
    claims: list[MetricClaim], cluster: Cluster, report: Report
) -> Iterator[tuple[MetricClaim, list[Seen]]]:
    """Carry out observations on a cluster, and yield the comparisons of each."""
    with BrokerMetrics(cluster) as metrics, scratch_folder("claims") as folder:
        for claim in claims:
            stand = Stand(cluster, metrics, folder / claim.name, report)
            yield claim, list(claim.observe(stand))
