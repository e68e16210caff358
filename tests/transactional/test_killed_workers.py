"""Pipeline workers that are SIGKILLed between produce and commit, and how long that blocks a successor."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.base.waits import wait_until
from harness.clients.client_process import ClientProcess
from harness.cluster.cluster import Cluster
from harness.evidence.checkers.model import Expect, Pipeline
from harness.evidence.history import HistoryFile, Invoke
from harness.faults import CrashClient, Jitter, inject
from harness.kafka.group_offsets import committed_offset
from tests.rig import text
from tests.tapped import Evidence
from tests.transactional.bench import Bench

pytestmark = [pytest.mark.cluster, pytest.mark.timing]

# Moments are drawn anew in each session; the seed is in the evidence.
SEED = random.SystemRandom().randrange(1_000_000)
STEPS = ("begin", "send_offsets", "commit")
BETWEEN = STEPS[:2]
ANSWER_MS = 150
"""So late are all answers: a worker waits between its positions and its commit, and can be caught there."""
WORK_S = 0.3
"""And so long between its outputs and its positions."""
RATE = 40
"""Records a second: about what such a worker takes, so that little is left to catch up with."""
TIMEOUT_MS = 3_000
FEW, MANY = 3, 20


class Death(NamedTuple):
    """What a worker had asked for last, whether its positions were pending, and what came after."""

    asked: str
    pending: bool
    same_id: bool
    blocked_s: float
    """From the kill until its group could be told every position."""
    next_commit_s: float


@pytest.mark.parametrize("wanted", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
def test_workers_are_killed_between_produce_and_commit(
    cluster: Cluster, bench: Bench, evidence: Evidence, wanted: int
) -> None:
    rng = random.Random(SEED)
    source, sink, group = bench.topic("source"), bench.topic("sink"), f"{bench.name}-g"
    writer = bench.transactional(source, abort_share=0.0, rate=RATE)
    deaths: list[Death] = []
    with inject(cluster, Jitter(latency_ms=ANSWER_MS), "all") as slow:
        worker = started(bench, source, sink, f"{bench.name}-p0")
        while not enough(deaths, wanted) and len(deaths) < wanted + MANY:
            bench.committed(worker)
            # First of all what blocks the longest: pending positions, and a successor with another id. They
            # are pending from when their first request is answered.
            drawn = any(death.pending for death in deaths)
            step, earliest = (rng.choice(BETWEEN), 0.0) if drawn else ("send_offsets", ANSWER_MS / 1000)
            die_at(cluster, worker, step, rng.uniform(earliest, WORK_S))
            killed = time.monotonic()
            pending = blocked(cluster, source, group)
            same = rng.random() < 0.5 if drawn else False
            ident = worker.spec.transactional_id if same else f"{bench.name}-p{len(deaths) + 1}"  # type: ignore[attr-defined]
            asked, worker = asked_last(worker), started(bench, source, sink, ident)
            wait_until(lambda: not blocked(cluster, source, group), 30, "the positions to be told")
            told = time.monotonic() - killed
            bench.committed(worker)
            taken = time.monotonic() - killed
            deaths.append(Death(asked, pending, same, round(pending and told, 2), round(taken, 2)))
    assert writer.stop() == 0
    bench.caught_up(source, group)
    assert worker.stop() == 0
    judged = bench.judge(expect=Expect(pipeline=Pipeline(group=group, inputs=[source])))
    compared = next(r.compared for r in judged.results if r.property == "pipeline")
    evidence(
        seed=SEED, slower=slow.bite["slower_ms"], deaths=deaths, compared=compared, verdict=judged.verdict
    )
    assert enough(deaths, wanted)
    assert compared > 0
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def enough(deaths: list[Death], wanted: int) -> bool:
    """So many died between the two, and one of them left positions that nobody could be told."""
    return sum(d.asked in BETWEEN for d in deaths) >= wanted and any(d.pending for d in deaths)


def started(bench: Bench, source: str, sink: str, ident: str) -> ClientProcess:
    return bench.pipeline(
        source,
        sink,
        transactional_id=ident,
        abort_share=0.0,
        work=WORK_S,
        transaction_timeout_ms=TIMEOUT_MS,
        settings={"consumer.session.timeout.ms": 2_000, "consumer.heartbeat.interval.ms": 500},
    )


def die_at(cluster: Cluster, worker: ClientProcess, step: str, later: float) -> None:
    """Kill a worker that has asked for this step last, after so many seconds."""
    wait_until(lambda: asked_last(worker) == step, 30, f"the worker to {step}", every=0.005)
    due = time.monotonic() + later
    wait_until(lambda: time.monotonic() >= due, 5, "the moment", every=0.005)
    with inject(cluster, CrashClient(), "client(worker)", process=worker):
        pass


def asked_last(worker: ClientProcess) -> str:
    """Which of the steps of a transaction a worker has asked for last."""
    asked = [line for _, line in HistoryFile(Path(worker.spec.history)).read() if isinstance(line, Invoke)]
    return next((line.f for line in reversed(asked) if line.f in STEPS), "")


def blocked(cluster: Cluster, source: str, group: str) -> bool:
    """Whether a position of the group is not told, because a transaction may yet change it."""
    coordinator = cluster.group_coordinator(group)
    return any(
        committed_offset(cluster.admin, coordinator, group, (source, partition), stable=True).error != "NONE"
        for partition in range(3)
    )
