"""Pipeline workers that are killed between produce and commit, and how long this blocks their successors."""

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
from tests.client_case import text
from tests.tapped import Evidence
from tests.transactional.transactional_case import TransactionalCase

pytestmark = [pytest.mark.cluster, pytest.mark.timing]

# Seed of the random moments at which workers are killed. Each test session draws a new seed, and the evidence
# contains it.
SEED = random.SystemRandom().randrange(1_000_000)
STEPS = ("begin", "send_offsets", "commit")
BETWEEN = STEPS[:2]
ANSWER_MS = 150
"""Delay of every response in ms. It leaves time to kill a worker between `send_offsets` and the commit."""
WORK_S = 0.3
"""Seconds that a worker waits in each transaction between its outputs and `send_offsets`."""
RATE = 40
"""Input records per second. A worker that waits WORK_S in each transaction can keep up with this rate."""
TIMEOUT_MS = 3_000
FEW, MANY = 3, 20


class Death(NamedTuple):
    """Kill of a worker: what the worker had requested last, and the effects of the kill on its group."""

    asked: str
    pending: bool
    same_id: bool
    blocked_s: float
    """Seconds from the kill until the group had no pending offsets; 0 if it had none."""
    next_commit_s: float


@pytest.mark.parametrize("wanted", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
def test_a_pipeline_stays_exactly_once_when_workers_are_killed_between_produce_and_commit(
    cluster: Cluster, case: TransactionalCase, evidence: Evidence, wanted: int
) -> None:
    rng = random.Random(SEED)
    source, sink, group = case.topic("source"), case.topic("sink"), f"{case.name}-g"
    writer = case.transactional(source, abort_share=0.0, rate=RATE)
    deaths: list[Death] = []
    with inject(cluster, Jitter(latency_ms=ANSWER_MS), "all") as slow:
        worker = started(case, source, sink, f"{case.name}-p0")
        while not enough(deaths, wanted) and len(deaths) < wanted + MANY:
            case.wait_committed(worker)
            # As long as no kill has left pending offsets, set up the case that blocks longest: the offsets
            # are pending, and the successor has another transactional id. Offsets are pending only after the
            # first response to `send_offsets`, so kill the worker at least one response delay after this
            # request. Once a kill has left pending offsets, draw the step and the successor's id at random.
            drawn = any(death.pending for death in deaths)
            step, earliest = (rng.choice(BETWEEN), 0.0) if drawn else ("send_offsets", ANSWER_MS / 1000)
            die_at(cluster, worker, step, rng.uniform(earliest, WORK_S))
            killed = time.monotonic()
            pending = blocked(cluster, source, group)
            same = rng.random() < 0.5 if drawn else False
            ident = worker.spec.transactional_id if same else f"{case.name}-p{len(deaths) + 1}"  # type: ignore[attr-defined]
            asked, worker = asked_last(worker), started(case, source, sink, ident)
            wait_until(lambda: not blocked(cluster, source, group), 30, "stable positions")
            described = time.monotonic() - killed
            case.wait_committed(worker)
            taken = time.monotonic() - killed
            deaths.append(Death(asked, pending, same, round(pending and described, 2), round(taken, 2)))
    assert writer.stop() == 0
    case.wait_caught_up(source, group)
    assert worker.stop() == 0
    judged = case.judge(expect=Expect(pipeline=Pipeline(group=group, inputs=[source])))
    compared = next(r.compared for r in judged.results if r.property == "pipeline")
    evidence(
        seed=SEED, slower=slow.bite["slower_ms"], deaths=deaths, compared=compared, verdict=judged.verdict
    )
    assert enough(deaths, wanted)
    assert compared > 0
    assert (judged.verdict, judged.names()) == ("valid", []), text(judged)


def enough(deaths: list[Death], wanted: int) -> bool:
    """Return whether the test has seen enough kills.

    At least `wanted` kills must be between produce and commit, and any kill must have left pending offsets.
    """
    return sum(d.asked in BETWEEN for d in deaths) >= wanted and any(d.pending for d in deaths)


def started(case: TransactionalCase, source: str, sink: str, ident: str) -> ClientProcess:
    return case.pipeline(
        source,
        sink,
        transactional_id=ident,
        abort_share=0.0,
        work=WORK_S,
        transaction_timeout_ms=TIMEOUT_MS,
        settings={"consumer.session.timeout.ms": 2_000, "consumer.heartbeat.interval.ms": 500},
    )


def die_at(cluster: Cluster, worker: ClientProcess, step: str, later: float) -> None:
    """Wait until the last request of a worker is `step`; kill the worker `later` seconds afterwards."""
    wait_until(lambda: asked_last(worker) == step, 30, f"the worker to {step}", every=0.005)
    due = time.monotonic() + later
    wait_until(lambda: time.monotonic() >= due, 5, "the moment", every=0.005)
    with inject(cluster, CrashClient(), "client(worker)", process=worker):
        pass


def asked_last(worker: ClientProcess) -> str:
    """Return the last step of a transaction that a worker requested."""
    asked = [line for _, line in HistoryFile(Path(worker.spec.history)).read() if isinstance(line, Invoke)]
    return next((line.f for line in reversed(asked) if line.f in STEPS), "")


def blocked(cluster: Cluster, source: str, group: str) -> bool:
    """Return whether the group has pending offsets, which an open transaction may still commit or abort."""
    coordinator = cluster.group_coordinator(group)
    return any(
        committed_offset(cluster.admin, coordinator, group, (source, partition), stable=True).error != "NONE"
        for partition in range(3)
    )
