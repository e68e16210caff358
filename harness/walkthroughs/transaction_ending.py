"""The last three steps of the transactional flow: both ends, the readers, the fence."""

from __future__ import annotations

from typing import Final, Literal

from harness.base.waits import wait_until
from harness.clients.client import CannotGoOnError
from harness.clients.poll_decoding import Given
from harness.clients.producer_lifecycle import BrokenTransactionError
from harness.clients.scripted.source_actor import positions_behind
from harness.clients.scripted.transactional_actor import TransactionalActor
from harness.evidence.record import ABORT, COMMIT
from harness.evidence.step_report import WalkthroughStep
from harness.kafka.transactions import ProducerIdentity
from harness.walkthroughs import transaction_evidence as seen
from harness.walkthroughs.transaction_evidence import listed
from harness.walkthroughs.transaction_fixture import INPUTS, READERS, SUCCESSOR, TRANSACTIONAL_ID, A, B, Scene

FENCED: Final = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


def two_phases(scene: Scene, step: WalkthroughStep) -> WalkthroughStep:
    """Commit the open transaction; then the next inputs, aborted."""
    epochs = [_phases(scene, step, "commit")]
    first = scene.position(stable=True)
    step.prove(
        "with the commit the position is visible",
        f"the group stands at {first.offset}",
        first == (INPUTS, "NONE"),
    )
    scene.look("committed")
    inputs = scene.source.take(INPUTS)
    _process(scene, scene.app, inputs, ABORT)
    scene.look("open again")
    epochs.append(_phases(scene, step, "abort"))
    again = scene.position(stable=True)
    step.prove(
        "an abort drops the position: the group is where it was",
        f"the group stands at {again.offset}",
        again == first,
    )
    scene.look("aborted")
    step.compare(
        "with transaction version 2 the epoch grows with each transaction",
        f"epochs {listed(epochs)}: librdkafka ends them with EndTxn 1",
        len(set(epochs)) == 2,
    )
    return step


def _process(scene: Scene, app: TransactionalActor, inputs: list[Given], outcome: str) -> None:
    """A transaction with the outputs of these inputs and the position behind them, still open."""
    app.begin()
    for lane in (A, B):
        app.send_outputs(lane, inputs[lane::2], outcome)
    app.flush()
    app.send_offsets(scene.stage.group, positions_behind(inputs), scene.source.metadata)


def _phases(scene: Scene, step: WalkthroughStep, how: Literal["commit", "abort"]) -> int:
    """End the open transaction, and tell what was written in which order; return the markers' epoch."""
    known = len(scene.states())
    old = len(seen.markers(scene.cluster, scene.places, scene.since, scene.pid))
    (scene.app.commit if how == "commit" else scene.app.abort)()
    word = how.capitalize()
    noted = scene.wait_state(f"Complete{word}", known)
    marks = sorted(seen.markers(scene.cluster, scene.places, scene.since, scene.pid), key=lambda m: m.wall)
    marks = marks[old:]
    step.prove(
        f"{how}: the coordinator notes the decision for all partitions, then that it is done",
        " → ".join(" ".join([s.what, *(f"{t}-{p}" for t, p in s.places)]) for s in noted),
        [s.what for s in noted] == [f"Prepare{word}", f"Complete{word}"]
        and sorted(noted[0].places) == sorted(scene.places),
    )
    step.prove(
        f"{how}: a marker is written into each of them, under the coordinator's epoch",
        ", ".join(f"{m.what.upper()} in {m.topic}-{m.partition} at {m.offset}" for m in marks)
        + f", of coordinator epoch {listed(sorted({m.coordinator_epoch for m in marks}))}",
        sorted((m.topic, m.partition) for m in marks) == sorted(scene.places)
        and {(m.what, m.coordinator_epoch) for m in marks} == {(how, scene.txn_home.leader_epoch)},
    )
    if how == "abort":
        on_offsets = [m.what.upper() for m in marks if (m.topic, m.partition) == scene.offsets]
        step.compare(
            "on abort the offsets partition gets a COMMIT marker",
            f"it gets {listed(on_offsets)}",
            on_offsets == ["COMMIT"],
        )
    ended = scene.exchanges("EndTxn")[-1]
    start, last = noted[0].wall, max((m.wall for m in marks), default=0)
    times = {
        "the client's answer": ended.answered_wall,
        "the last marker": last,
        noted[-1].what: noted[-1].wall,
    }
    after = ", ".join(f"{what} {(at - start) / 1e6:+.1f} ms" for what, at in times.items())
    step.compare(
        f"{how}: the client is answered when all markers are written",
        f"{noted[0].what} at 0 ms, {after} (logs know milliseconds)",
        ended.answered_wall >= last + 1_000_000,
    )
    step.show(**{how: {"states": seen.rows(noted), "markers": seen.rows(marks), "request": ended.text}})
    return marks[0].epoch if marks else -1


def read(scene: Scene, step: WalkthroughStep) -> WalkthroughStep:
    """Tell what both kinds of reader were given while transactions were open, committed and aborted."""
    views = scene.views
    steady, done = views["committed"], views["aborted"]
    for name, before in (("open", []), ("open again", steady.committed)):
        now = views[name]
        firsts = {p: min(o for q, o in set(now.uncommitted) - set(before) if q == p) for p in (A, B)}
        step.prove(
            f"{name}: read_committed stops at the last stable offset, where the open transaction begins",
            f"{_ends(now)}; read_committed was given {len(now.committed)} records, "
            f"read_uncommitted {len(now.uncommitted)}",
            now.committed == before
            and now.hidden == INPUTS
            and {p: end.last_stable for p, end in now.ends.items()} == firsts,
        )
    step.prove(
        "committed: everything of it is read, and the last stable offset is the high watermark",
        f"{_ends(steady)}; read_committed was given {len(steady.committed)} records",
        len(steady.committed) == INPUTS and not steady.hidden and _stable(steady),
    )
    step.prove(
        "aborted: nothing of it is read, except read_uncommitted",
        f"{_ends(done)}; read_committed was given {len(done.committed)} records, "
        f"read_uncommitted {len(done.uncommitted)}",
        done.committed == steady.committed and done.hidden == INPUTS and _stable(done),
    )
    _fetched(scene, step)
    step.show(views={name: [_ends(v), v.committed, v.uncommitted] for name, v in views.items()})
    return step


def _fetched(scene: Scene, step: WalkthroughStep) -> None:
    """What the broker handed to the read_committed reader, before the client library sorted it out."""
    answers = [
        x.answer
        for x in scene.exchanges("Fetch", client=READERS[0])
        if x.answer and any(p.topic == scene.stage.topic for p in x.answer.partitions)
    ]
    beyond = [
        b
        for answer in answers
        for b in answer.batches
        for p in answer.partitions
        if (p.topic, p.partition) == (b.topic, b.partition) and b.base_offset >= (p.last_stable_offset or 0)
    ]
    step.compare(
        "records behind the last stable offset are handed out, and the reader keeps them back",
        f"{len(beyond)} of {sum(len(a.batches) for a in answers)} batches that it was sent lay behind it: "
        "the broker stops there",
        beyond,
    )
    listed = {(p.partition, *entry) for a in answers for p in a.partitions for entry in p.aborted}
    sent = [b for a in answers if any(p.aborted for p in a.partitions) for b in a.batches]
    aborted = [
        b
        for b in sent
        if any((b.partition, b.producer_id) == e[:2] and b.base_offset >= e[2] for e in listed)
    ]
    step.prove(
        "aborted records are handed out with the list of aborted transactions, and the reader drops them",
        f"aborted (partition, producer id, first offset): {sorted(listed)}; "
        f"{sum(b.count for b in aborted if not b.marker)} of their records were sent",
        listed and any(not b.marker for b in aborted),
    )


def _ends(view: seen.ReaderView) -> str:
    return "; ".join(
        f"{'AB'[p]}: last stable {end.last_stable}, high watermark {end.high_watermark}"
        for p, end in view.ends.items()
    )


def _stable(view: seen.ReaderView) -> bool:
    return all(end.last_stable == end.high_watermark for end in view.ends.values())


def fenced(scene: Scene, step: WalkthroughStep) -> WalkthroughStep:
    """Start a second producer while the first has a transaction open, and let both go on."""
    scene.source.rewind()
    inputs = scene.source.take(INPUTS)
    _process(scene, scene.app, inputs, COMMIT)
    known = len(scene.states())
    successor = scene.stage.transactional(SUCCESSOR, TRANSACTIONAL_ID)
    successor.init()
    given = [
        x for x in scene.exchanges("InitProducerId", client=SUCCESSOR) if x.answer and not x.answer.error
    ]
    facts = given[-1].answer if given else None
    pid, epoch = (facts.producer_id, facts.epoch or 0) if facts else (-1, -1)
    step.prove(
        "the second producer has the same id and a higher epoch",
        f"producer id {pid}, epoch {epoch} after {scene.epoch}",
        pid == scene.pid and epoch > scene.epoch,
    )
    noted = scene.states()[known:]
    step.prove(
        "its init ends what the first one left open",
        " → ".join(f"{s.what} (epoch {s.epoch})" for s in noted),
        "CompleteAbort" in [s.what for s in noted] and noted[-1].what == "Empty",
    )
    _refused(scene, step, inputs)
    scene.source.rewind()
    _process(scene, successor, scene.source.take(INPUTS), COMMIT)
    successor.commit()
    wait_until(lambda: scene.position(stable=True).error == "NONE", 15, "a stable position")
    position = scene.position(stable=True)
    now = scene.look("taken over")
    step.prove(
        "the second one processes the same input, once",
        f"the group stands at {position.offset}, read_committed is given {len(now.committed)} records",
        position.offset == len(now.committed) == 2 * INPUTS,
    )
    step.show(states=seen.rows(scene.states()[known:]), init=[x.text for x in given])
    return step


def _refused(scene: Scene, step: WalkthroughStep, inputs: list[Given]) -> None:
    """Let the first producer send and commit: what the broker answers, and what the application is told."""
    before = len(scene.exchanges())
    try:
        scene.app.send_outputs(A, inputs[:1])
        scene.app.commit()
    except (BrokenTransactionError, CannotGoOnError):
        pass
    told = scene.app.error
    name = told.name() if told else "nothing"
    answers = [x for x in scene.exchanges()[before:] if x.refusals]
    step.prove(
        "the first one is fenced: its requests are refused, and its client says so",
        f"{'; '.join(x.text for x in answers) or 'nothing was refused'}; the client: {name}"
        f"{', fatal' if told and told.fatal() else ''}",
        any(refusal in FENCED for x in answers for refusal in x.refusals) and name in FENCED,
    )
    who = ProducerIdentity(TRANSACTIONAL_ID, scene.pid, scene.epoch)
    codes = seen.refusals(scene.cluster, who, scene.a)
    step.compare(
        "a fenced producer is told PRODUCER_FENCED",
        ", ".join(f"{request}: {code}" for request, code in codes.items()),
        set(codes.values()) == {"PRODUCER_FENCED"},
    )
    refused = [code for code in codes.values() if code in FENCED]
    step.prove(
        "every request of its epoch is refused",
        f"{len(refused)} of {len(codes)} kinds were",
        len(refused) == len(codes),
    )
    step.show(refused=[x.text for x in answers], raw=codes, error=told.str() if told else "")
