"""Transactions of every size: of nothing, of offsets alone, of fifty partitions, of ten thousand records."""

from __future__ import annotations

from collections import Counter

import pytest

from harness.cluster.cluster import Cluster
from harness.walkthroughs.transaction_evidence import exchanges
from harness.witness.plain_consumer import group_positions
from tests.rig import text
from tests.tapped import Evidence, Frames
from tests.transactional.bench import Bench, asked, markers

pytestmark = pytest.mark.cluster

WIDE, LONG = 50, 10_000


def test_a_transaction_of_nothing(bench: Bench, frames: Frames, evidence: Evidence) -> None:
    """The coordinator hears nothing of it, whether it commits or aborts."""
    topic = bench.topic("t")
    told = bench.told(topic)
    assert told.init().said == "ok"
    before = bench.known()
    ends = [told.whole({}), told.whole({}, commits=False)]
    after = bench.known()
    apis = asked(frames(), told.name)
    assert told.whole({0: 2}).said == "ok"
    bench.ended()
    judged = bench.judge()
    evidence(before=before, after=after, asked=apis, ends=ends)
    assert [end.said for end in ends] == ["ok", "ok"]
    assert (before.state, after) == ("Empty", before)
    assert "EndTxn" not in apis
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def test_a_transaction_of_nothing_but_offsets(
    cluster: Cluster, bench: Bench, frames: Frames, evidence: Evidence
) -> None:
    source, sink, group = bench.topic("source"), bench.topic("sink"), f"{bench.name}-g"
    told = bench.told(sink)
    assert told.init().said == "ok"
    positions = {}
    for what, offset in (("abort", 7), ("commit", 3)):
        told.begin()
        assert told.offsets(group, source, 0, offset).said == "ok"
        assert (told.abort() if what == "abort" else told.commit()).said == "ok"
        bench.ended()
        found = group_positions(cluster.bootstrap("DIRECT"), group)
        positions[what] = [(*place, position) for place, position in found.items()]
    log = frames()
    apis, refused = asked(log, told.name), Counter(x.api for x in exchanges(log, told.name) if x.refusals)
    ends = cluster.end_offsets(sink)
    evidence(positions=positions, asked=apis, refused=refused)
    assert positions == {"abort": [], "commit": [(source, 0, 3)]}
    # A coordinator that is not ready yet is asked again; what it refused it has not done.
    for api in ("TxnOffsetCommit", "EndTxn"):
        assert apis.count(api) == 2 + refused[api], api
    assert "AddPartitionsToTxn" not in apis
    assert all(end.high_watermark == 0 for end in ends.values())


def test_a_transaction_over_fifty_partitions(bench: Bench, evidence: Evidence) -> None:
    topic = bench.topic("t", WIDE)
    told = bench.told(topic)
    assert told.init().said == "ok"
    aborted = told.whole(dict.fromkeys(range(WIDE), 2), commits=False)
    committed = told.whole(dict.fromkeys(range(WIDE), 2))
    bench.ended()
    logs = [log for _, log in bench.logs(topic)]
    judged = bench.judge()
    evidence(aborted=aborted, committed=committed, verdict=judged.verdict)
    assert (aborted.said, committed.said) == ("ok", "ok")
    assert [markers(log) for log in logs] == [[0, 1]] * WIDE
    assert [len(values) for values in bench.read(topic).values()] == [2] * WIDE
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def test_a_transaction_of_ten_thousand_records(bench: Bench, evidence: Evidence) -> None:
    topic = bench.topic("t")
    told = bench.told(topic)
    assert told.init().said == "ok"
    aborted = told.whole(dict.fromkeys(range(3), LONG // 3), commits=False)
    committed = told.whole({0: LONG // 2, 1: LONG // 4, 2: LONG // 4})
    bench.ended()
    log = bench.log(topic)
    judged = bench.judge()
    evidence(aborted=aborted, committed=committed, batches=len(log), verdict=judged.verdict)
    assert [len(values) for values in bench.read(topic).values()] == [LONG // 2, LONG // 4, LONG // 4]
    assert markers(log) == [0, 1]
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)
