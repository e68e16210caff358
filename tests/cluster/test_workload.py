"""Clients of all kinds work through faults, and the checkers find their records valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.base.errors import WaitTimeoutError
from harness.base.processes import memory_of
from harness.base.waits import wait_until
from harness.clients.client_spec import IdempotentSpec, ReaderSpec
from harness.cluster.cluster import Cluster
from harness.evidence.checkers.model import Expect, Pipeline
from harness.evidence.history import HistoryClosed, HistoryFile, Info, Ok
from harness.faults import Fault, Jitter, Kill, LoseResponse, Sever, Zombie, inject
from tests.client_case import ClientCase, operations, text

pytestmark = pytest.mark.cluster


FAULTS: dict[str, tuple[Fault, str]] = {
    "classic": (Kill(), "group_coordinator({group})"),
    "consumer": (Sever(), "all"),
}


@pytest.mark.parametrize("protocol", ["consumer", pytest.param("classic", marks=pytest.mark.soak)])
def test_all_clients_together_are_valid_through_faults(
    case: ClientCase, cluster: Cluster, protocol: str
) -> None:
    plain, source, sink = case.topic("plain"), case.topic("source"), case.topic("sink")
    group = f"{case.name}-g"
    idempotent = case.start(IdempotentSpec, topic=plain, partitions=3, rate=500)
    writer = case.transactional(source)
    workers = [case.pipeline(source, sink, protocol=protocol) for _ in range(2)]
    reader = case.start(ReaderSpec, topics=[plain, source, sink])
    case.wait_committed(writer)
    with inject(cluster, Jitter(latency_ms=100, jitter_ms=80), "all"):
        case.wait_committed(writer, more_than=writer.progress().committed + 3)
    fault, target = FAULTS[protocol]
    with inject(cluster, fault, target.format(group=group)):
        case.wait_committed(writer, more_than=writer.progress().committed + 3)
    case.wait_committed(writer, more_than=writer.progress().committed + 3)

    assert [idempotent.stop(), writer.stop()] == [0, 0]
    case.wait_caught_up(source, group)
    assert [client.stop() for client in (*workers, reader)] == [0, 0, 0]

    judged = case.judge(expect=Expect(pipeline=Pipeline(group=group, inputs=[source])))
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)
    compared = {result.property: result.compared for result in judged.results}
    assert min(compared["pipeline"], compared["atomicity"], compared["offsets"]) > 0
    assert idempotent.progress().acknowledged == idempotent.progress().sent
    assert reader.progress().read > 0
    assert sum(worker.progress().committed for worker in workers) > 0


def test_statistics_of_an_idle_worker_do_not_accumulate(case: ClientCase) -> None:
    # The client library produces about 10 KB of statistics every 2 ms. That is 5 MB of memory per second,
    # unless a callback takes the statistics.
    worker = case.pipeline(case.topic("source"), case.topic("sink"), settings={"statistics.interval.ms": 2})
    wait_until(lambda: "assigned" in worker.log(), 30, "the worker to get its partitions", every=0.1)
    before = memory_of(worker.pid, children=True)

    def grown() -> bool:
        return memory_of(worker.pid, children=True) - before > 10 << 20

    with pytest.raises(WaitTimeoutError):
        wait_until(grown, 5, "10 MB more")
    assert worker.stop() == 0


@pytest.mark.parametrize("discipline", ["reinit", "naive"])
def test_an_end_that_was_sent_twice_is_noticed(case: ClientCase, cluster: Cluster, discipline: str) -> None:
    topic = case.topic("t")
    # Transactions are small, so at any moment an EndTxn is in flight or about to be sent.
    client = case.transactional(topic, records=(1, 1), rate=2000, end_discipline=discipline)
    coordinator = f"txn_coordinator({case.name}-x)"

    def resent() -> bool:
        committed = client.progress().committed
        with inject(cluster, LoseResponse(), coordinator):
            pass
        case.wait_committed(client, more_than=committed)
        return client.progress().resent_ends > 0

    case.wait_committed(client)
    wait_until(resent, 90, "an end to be sent twice")
    committed = client.progress().committed
    case.wait_committed(client, more_than=committed + 3)
    assert client.stop() == 0

    messages = [
        line.error.message for line in operations(client, "reinit") if isinstance(line, Info) and line.error
    ]
    if discipline == "reinit":
        assert any("EndTxn was sent" in why or "coordinator" in why for why in messages), client.log()
        assert len([line for line in operations(client, "init") if isinstance(line, Ok)]) == 1 + len(messages)
    else:
        assert messages == []


def test_a_client_that_was_fenced_by_a_successor_stops(case: ClientCase, cluster: Cluster) -> None:
    topic = case.topic("t")
    old = case.transactional(topic, abort_share=0.0)
    case.wait_committed(old)
    with inject(cluster, Zombie(), "client(old)", process=old):
        new = case.transactional(topic, abort_share=0.0)
        case.wait_committed(new)
    wait_until(lambda: old.exit_code() is not None, 60, "the fenced client to stop")
    case.wait_committed(new, more_than=new.progress().committed)

    assert old.exit_code() == 1
    assert "a successor has the transactional id" in old.log()
    closing = [
        line for _, line in HistoryFile(Path(old.spec.history)).read() if isinstance(line, HistoryClosed)
    ]
    assert "gave up" in closing[0].reason
    assert new.stop() == 0
    judged = case.judge()
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)
    assert next(r.compared for r in judged.results if r.property == "fencing") > 0


def test_a_client_whose_transaction_timed_out_continues(case: ClientCase, cluster: Cluster) -> None:
    topic = case.topic("t")
    # A transaction takes 2 s to fill, and its time-out is 4 s. So it times out only if the client is frozen.
    client = case.transactional(
        topic, abort_share=0.0, rate=50, records=(100, 100), transaction_timeout_ms=4000
    )
    case.wait_committed(client)
    ends = cluster.end_offsets(topic)

    def moved() -> bool:
        return any(e.high_watermark > e.last_stable for e in cluster.end_offsets(topic).values())

    def timed_out() -> bool:
        wait_until(moved, 20, "an open transaction")
        with inject(cluster, Zombie(), "client(client)", process=client):
            # The coordinator aborts the transaction. Then no transaction is open, although no client ended
            # one.
            wait_until(lambda: not moved(), 30, "the open transaction to be aborted")
        committed = client.progress().committed
        case.wait_committed(client, more_than=committed + 1)
        # The freeze may begin while the client ends a transaction. That transaction does not time out, so the
        # next round tries again.
        done = operations(client, "reinit")
        messages = [line.error.message for line in done if isinstance(line, Info) and line.error]
        return any("open for too long" in why for why in messages)

    wait_until(timed_out, 90, "a transaction to be open for too long")
    assert client.stop() == 0
    assert ends != cluster.end_offsets(topic)

    judged = case.judge()
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)
