"""Transactions in eight steps: outputs and a position in one transaction, its ends, readers and a fence."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

from harness.clients.poll_decoding import Given
from harness.clients.scripted.source_actor import positions_behind
from harness.evidence.step_report import WalkthroughStep
from harness.report.diagram.sequence import NOISE
from harness.walkthroughs import transaction_evidence as seen
from harness.walkthroughs.broker_evidence import leader_log
from harness.walkthroughs.stage import Stage
from harness.walkthroughs.transaction_ending import fenced, read, two_phases
from harness.walkthroughs.transaction_evidence import listed
from harness.walkthroughs.transaction_fixture import (
    APP,
    GROUP_COORDINATOR,
    INPUTS,
    READERS,
    SOURCE,
    SUCCESSOR,
    TRANSACTIONAL_ID,
    TXN_COORDINATOR,
    A,
    B,
    Scene,
)

TITLES: Final = (
    "init_transactions: an id and an epoch from the coordinator",
    "begin_transaction: nothing happens outside the client",
    "The first send to each partition registers it",
    "More sends, with sequences of each partition",
    "send_offsets_to_transaction: the position becomes part of it",
    "Two phases: a commit, then an abort",
    "What readers saw: before, between and after",
    "A second producer with the same id",
)
PLACEMENT: Final[Sequence[Sequence[int]]] = ((1, 2, 3), (2, 3, 1))
DRAWN: Final = (APP, SUCCESSOR, SOURCE, READERS[0])
QUIET_S: Final = 0.3
QUESTIONS: Final = NOISE | {"FindCoordinator"}
"""What the client library asks about the cluster when its own clock says so, also just behind a begin."""


def steps(stage: Stage) -> Iterator[WalkthroughStep]:
    """Carry out the eight steps, each seen before the next begins."""
    made = WalkthroughStep.numbered(TITLES)
    scene = Scene(stage)
    yield _gets_an_id(scene, made[0])
    yield _begins(scene, made[1])
    inputs = scene.source.take(INPUTS)
    yield _registers(scene, made[2], inputs)
    yield _sends(scene, made[3], inputs)
    yield _adds_offsets(scene, made[4], inputs)
    yield two_phases(scene, made[5])
    yield read(scene, made[6])
    yield fenced(scene, made[7])


def _gets_an_id(scene: Scene, step: WalkthroughStep) -> WalkthroughStep:
    stage, cluster = scene.stage, scene.cluster
    seeder = stage.actor("seeder", stage.source)
    seeder.send(0, 2 * INPUTS)
    scene.source = stage.reading(SOURCE)
    scene.app = stage.transactional(APP, TRANSACTIONAL_ID)
    stage.transactional_ids.append(TRANSACTIONAL_ID)
    scene.app.init()
    home, found = scene.txn_home, scene.exchanges("FindCoordinator")
    named = [c.broker for x in found if x.answer for c in x.answer.coordinators if not c.error]
    step.prove(
        "a transactional id hashes to a partition of __transaction_state, and its leader is the coordinator",
        f"{home.arithmetic}; FindCoordinator names broker {listed(named)}",
        named and {home.leader, *named} == {TXN_COORDINATOR},
    )
    group, said = scene.group_home, cluster.group_coordinator(stage.group)
    step.prove(
        "a group does the same in __consumer_offsets",
        f"{group.arithmetic}; FindCoordinator names broker {said}",
        group.leader == said == GROUP_COORDINATOR,
    )
    step.compare(
        "__transaction_state has 50 partitions, each with 3 replicas",
        f"{home.partitions} partitions, {home.replicas} replicas: 50 and 3 are the defaults",
        (home.partitions, home.replicas) == (50, 3),
    )
    given = [x for x in scene.exchanges("InitProducerId") if x.answer and not x.answer.error]
    facts = given[-1].answer if given else None
    scene.pid, scene.epoch = (facts.producer_id or -1, facts.epoch or 0) if facts else (-1, -1)
    step.prove(
        "InitProducerId: the coordinator gives a producer id and an epoch",
        f"broker {listed([x.broker for x in given])} gave producer id {scene.pid}, epoch {scene.epoch}",
        [x.broker for x in given] == [TXN_COORDINATOR] and scene.pid >= 0,
    )
    noted = scene.states()
    last = noted[-1] if noted else None
    step.prove(
        "the transaction log says Empty",
        f"{last.what}, epoch {last.epoch}" if last else "it says nothing",
        last and (last.what, last.producer_id, last.epoch) == ("Empty", scene.pid, scene.epoch),
    )
    step.show(states=seen.rows(noted), requests=[x.text for x in [*found, *given]])
    return step


def _begins(scene: Scene, step: WalkthroughStep) -> WalkthroughStep:
    before, known = time.monotonic_ns(), len(scene.states())
    scene.app.begin()
    scene.app.serve(QUIET_S)
    asked = scene.exchanges(since=before)
    telling = [x.text for x in asked if x.api not in QUESTIONS]
    noted = len(scene.states()) - known
    step.prove(
        "beginTransaction is local: nothing reaches a broker",
        f"{len(telling)} requests in {round(QUIET_S * 1000)} ms, {noted} new states in the transaction log",
        not telling and not noted,
    )
    step.show(requests=telling, about_the_cluster=[x.text for x in asked if x.api in QUESTIONS])
    return step


def _registers(scene: Scene, step: WalkthroughStep, inputs: list[Given]) -> WalkthroughStep:
    known, before = len(scene.states()), time.monotonic_ns()
    for lane, sent, places in ((A, inputs[:1], [scene.a]), (B, inputs[1:2], [scene.a, scene.b])):
        scene.app.send_outputs(lane, sent)
        scene.app.flush()
        noted = scene.states()[known:]
        last = noted[-1] if noted else None
        step.prove(
            f"the first record to {'AB'[lane]} makes the transaction Ongoing with {'AB'[: lane + 1]}",
            f"{last.what} with {listed([f'{t}-{p}' for t, p in last.places])}"
            if last
            else "nothing was noted",
            last and last.what == "Ongoing" and last.places == places,
        )
    added = scene.exchanges("AddPartitionsToTxn", since=before)
    produced = scene.exchanges("Produce", since=before)
    step.prove(
        "each partition is added at the transaction coordinator before its first batch is sent",
        f"{', '.join(x.text for x in added)}; {len(produced)} Produce requests, each behind one of them",
        len(added) == len(produced) == 2
        and all(x.broker == TXN_COORDINATOR for x in added)
        and all(a.asked_mono < p.asked_mono for a, p in zip(added, produced, strict=True)),
    )
    step.compare(
        "with transaction version 2 the partition's leader adds it, and the client asks for nothing",
        f"librdkafka asks with AddPartitionsToTxn {added[0].version if added else '?'}",
        not added,
    )
    step.show(states=seen.rows(scene.states()[known:]), requests=[x.text for x in [*added, *produced]])
    return step


def _sends(scene: Scene, step: WalkthroughStep, inputs: list[Given]) -> WalkthroughStep:
    for lane in (A, B):
        scene.app.send_outputs(lane, inputs[2 + lane :: 2])
    scene.app.flush()
    for name, place, leader in (("A", scene.a, 1), ("B", scene.b, 2)):
        log = leader_log(scene.cluster, place)
        ours = [b.base_sequence for b in log if (b.producer_id, b.epoch) == (scene.pid, scene.epoch)]
        led = scene.cluster.leader_of(*place)
        went = {
            x.broker
            for x in scene.exchanges("Produce")
            if any((b.topic, b.partition) == place for b in x.asked.batches)
        }
        step.prove(
            f"{name}: batches with producer id, epoch and sequences from 0, marked as transactional",
            f"broker {led} leads and was sent to; its log has producer id {scene.pid}, epoch {scene.epoch}, "
            f"base sequences {listed(ours)}",
            ours == [0, 1] and all(b.transactional for b in log) and went == {led} == {leader},
        )
        step.show(**{name: [[*b[:6]] for b in log]})
    return step


def _adds_offsets(scene: Scene, step: WalkthroughStep, inputs: list[Given]) -> WalkthroughStep:
    known, group = len(scene.states()), scene.stage.group
    positions = positions_behind(inputs)
    scene.app.send_offsets(group, positions, scene.source.metadata)
    asked = scene.exchanges("AddOffsetsToTxn", "TxnOffsetCommit")
    brokers = {x.api: x.broker for x in asked}
    noted = scene.states()[known:]
    step.prove(
        "the group's offsets partition joins the transaction",
        f"{noted[-1].what} with {listed([f'{t}-{p}' for t, p in noted[-1].places])}"
        if noted
        else "nothing was noted",
        noted and sorted(noted[-1].places) == sorted(scene.places),
    )
    step.prove(
        "AddOffsetsToTxn goes to the transaction coordinator",
        f"to broker {brokers.get('AddOffsetsToTxn')}",
        brokers.get("AddOffsetsToTxn") == TXN_COORDINATOR,
    )
    step.compare(
        "TxnOffsetCommit goes to the transaction coordinator too",
        f"to broker {brokers.get('TxnOffsetCommit')}, the group coordinator",
        brokers.get("TxnOffsetCommit") == TXN_COORDINATOR,
    )
    stable, plain = scene.position(stable=True), scene.position(stable=False)
    step.prove(
        "the position stays invisible until the commit",
        f"who asks for stable ones is told {stable.error}; who does not, {plain.offset} (none)",
        stable.error == "UNSTABLE_OFFSET_COMMIT" and plain == (-1, "NONE"),
    )
    scene.look("open")
    step.show(states=seen.rows(noted), requests=[x.text for x in asked], positions=positions)
    return step
