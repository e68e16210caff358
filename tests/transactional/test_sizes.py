"""Transactions of every size: empty, offsets only, fifty partitions, ten thousand records."""

from __future__ import annotations

from collections import Counter

import pytest

from harness.cluster.cluster import Cluster
from harness.walkthroughs.transaction_evidence import exchanges
from harness.witness.plain_consumer import group_positions
from tests.client_case import text
from tests.tapped import Evidence, Frames
from tests.transactional.transactional_case import TransactionalCase, markers, requests

pytestmark = pytest.mark.cluster

WIDE, LONG = 50, 10_000


def test_an_empty_transaction_sends_no_endtxn(
    case: TransactionalCase, frames: Frames, evidence: Evidence
) -> None:
    """Commit and abort transactions without records: the coordinator gets no request for either."""
    topic = case.topic("t")
    producer = case.producer(topic)
    assert producer.init().ok
    before = case.describe()
    ends = [producer.whole({}), producer.whole({}, commits=False)]
    after = case.describe()
    apis = requests(frames(), producer.name)
    assert producer.whole({0: 2}).ok
    case.wait_ended()
    judged = case.judge()
    evidence(before=before, after=after, requests=apis, ends=ends)
    assert [end.name for end in ends] == ["ok", "ok"]
    assert (before.state, after) == ("Empty", before)
    assert "EndTxn" not in apis
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def test_a_transaction_of_offsets_only(
    cluster: Cluster, case: TransactionalCase, frames: Frames, evidence: Evidence
) -> None:
    source, sink, group = case.topic("source"), case.topic("sink"), f"{case.name}-g"
    producer = case.producer(sink)
    assert producer.init().ok
    positions = {}
    for what, offset in (("abort", 7), ("commit", 3)):
        producer.begin()
        assert producer.offsets(group, source, 0, offset).ok
        assert (producer.abort() if what == "abort" else producer.commit()).ok
        case.wait_ended()
        found = group_positions(cluster.bootstrap("DIRECT"), group)
        positions[what] = [(*place, position) for place, position in found.items()]
    log = frames()
    apis = requests(log, producer.name)
    refused = Counter(x.api for x in exchanges(log, producer.name) if x.refusals)
    ends = cluster.end_offsets(sink)
    evidence(positions=positions, requests=apis, refused=refused)
    assert positions == {"abort": [], "commit": [(source, 0, 3)]}
    # While a coordinator is not ready, it refuses requests, and the client repeats them. So each API has one
    # more request for each refusal.
    for api in ("TxnOffsetCommit", "EndTxn"):
        assert apis.count(api) == 2 + refused[api], api
    assert "AddPartitionsToTxn" not in apis
    assert all(end.high_watermark == 0 for end in ends.values())


def test_a_transaction_over_fifty_partitions(case: TransactionalCase, evidence: Evidence) -> None:
    topic = case.topic("t", WIDE)
    producer = case.producer(topic)
    assert producer.init().ok
    aborted = producer.whole(dict.fromkeys(range(WIDE), 2), commits=False)
    committed = producer.whole(dict.fromkeys(range(WIDE), 2))
    case.wait_ended()
    logs = [log for _, log in case.logs(topic)]
    judged = case.judge()
    evidence(aborted=aborted, committed=committed, verdict=judged.verdict)
    assert (aborted.name, committed.name) == ("ok", "ok")
    assert [markers(log) for log in logs] == [[0, 1]] * WIDE
    assert [len(values) for values in case.read(topic).values()] == [2] * WIDE
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def test_a_transaction_of_ten_thousand_records(case: TransactionalCase, evidence: Evidence) -> None:
    topic = case.topic("t")
    producer = case.producer(topic)
    assert producer.init().ok
    aborted = producer.whole(dict.fromkeys(range(3), LONG // 3), commits=False)
    committed = producer.whole({0: LONG // 2, 1: LONG // 4, 2: LONG // 4})
    case.wait_ended()
    log = case.log(topic)
    judged = case.judge()
    evidence(aborted=aborted, committed=committed, batches=len(log), verdict=judged.verdict)
    assert [len(values) for values in case.read(topic).values()] == [LONG // 2, LONG // 4, LONG // 4]
    assert markers(log) == [0, 1]
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)
