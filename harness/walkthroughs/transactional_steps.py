"""Walkthrough of transactions in eight steps, from `init_transactions` to the fencing of a producer.

The application reads from a source topic, writes to partitions A and B, and commits its position in the
source topic. All this happens in one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, Literal

from harness.base.errors import UsageError
from harness.base.partition_id import PartitionId
from harness.base.waits import wait_until
from harness.clients.poll_decoding import Given
from harness.clients.scripted.group_member import GroupMember, next_positions
from harness.clients.scripted.scripted_clients import ONE_BATCH_A_SEND
from harness.clients.scripted.transactional_producer import TransactionalProducer
from harness.evidence.record import ABORT, COMMIT
from harness.evidence.step_report import WalkthroughStep
from harness.kafka.group_offsets import CommittedOffset, committed_offset
from harness.kafka.log.coordinator_log import OFFSETS_TOPIC
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from harness.kafka.transactions import ProducerIdentity
from harness.report.diagram.sequence import NOISE
from harness.tap.coordinator_entries import CoordinatorEntry
from harness.walkthroughs import transaction_evidence as evidence
from harness.walkthroughs.broker_evidence import leader_log
from harness.walkthroughs.stage import OPEN_LIMIT_S, Stage, Walkthrough
from harness.walkthroughs.transaction_evidence import LoggedExchange, ReaderView, listed

TITLES: Final = (
    "init_transactions: a producer id and an epoch from the coordinator",
    "begin_transaction: no request leaves the client",
    "The first send to each partition registers it",
    "More sends, with sequences for each partition",
    "send_offsets_to_transaction: the position becomes part of the transaction",
    "Two phases: a commit, then an abort",
    "What readers saw: before, between and after",
    "A second producer with the same transactional id",
)
TRANSACTIONAL_ID: Final = "my-txn-app"
TXN_COORDINATOR, GROUP_COORDINATOR = 3, 1
A, B = 0, 1
APP, SUCCESSOR, SOURCE = "app", "app-2", "app-source"
READERS: Final = ("reader-committed", "reader-uncommitted")
INPUTS: Final = 6
"""Number of input records of one transaction."""
STATE_LIMIT_S: Final = 15.0
QUIET_S: Final = 0.3
QUESTIONS: Final = NOISE | {"FindCoordinator"}
"""Requests that the client library sends on its own, whatever the application calls. One of them may be sent
right after a `begin` call by chance. So these requests do not count as effects of that call.
"""
FENCED: Final = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


class _TransactionalSteps:
    def __init__(self, stage: Stage) -> None:
        if not stage.source:
            raise UsageError(
                "this walkthrough reads from a topic", "name walkthrough.source and walkthrough.group"
            )
        self.stage = stage
        self.cluster = stage.cluster
        self.a, self.b = (stage.topic, A), (stage.topic, B)
        self.input = (stage.source, 0)
        self.since = time.time_ns()
        self.app: TransactionalProducer
        self.source: GroupMember
        self.inputs: list[Given] = []
        self.pid = self.epoch = -1
        self.txn_home = self._move_coordinator(TRANSACTION_TOPIC, TRANSACTIONAL_ID, TXN_COORDINATOR)
        self.group_home = self._move_coordinator(OFFSETS_TOPIC, stage.group, GROUP_COORDINATOR)
        self.offsets: PartitionId = (OFFSETS_TOPIC, self.group_home.partition)
        self.places: list[PartitionId] = [self.a, self.b, self.offsets]
        """Every partition that the application's transactions write to."""
        self.views: dict[str, ReaderView] = {}

    def steps(self) -> Iterator[WalkthroughStep]:
        methods = (
            self._initialise,
            self._begin,
            self._register_partitions,
            self._send_more,
            self._add_offsets,
            self._two_phases,
            self._compare_readers,
            self._fence,
        )
        for step, carry_out in zip(WalkthroughStep.numbered(TITLES), methods, strict=True):
            carry_out(step)
            yield step

    def _move_coordinator(self, topic: str, ident: str, broker: int) -> evidence.CoordinatorHome:
        """Move the leader of the partition to which an id hashes to this broker.

        The broker is then the coordinator of the id.
        """
        home = evidence.coordinator_home(self.cluster, topic, ident)
        self.cluster.move_leader(topic, home.partition, broker)
        return evidence.coordinator_home(self.cluster, topic, ident)

    def _open_producer(self, name: str) -> TransactionalProducer:
        return self.stage.clients.transactional(
            name,
            self.stage.topic,
            self.stage.partitions,
            transactional_id=TRANSACTIONAL_ID,
            transaction_timeout_ms=int(OPEN_LIMIT_S * 1000),
            settings=dict(ONE_BATCH_A_SEND),
            payload=0,
        )

    def _exchanges(self, *apis: str, client: str = APP, since: int = 0) -> list[LoggedExchange]:
        """Return the requests of a client with their responses."""
        return evidence.exchanges(self.stage.frames(), client, *apis, since=since)

    def _states(self) -> list[CoordinatorEntry]:
        """Return the states of the transactional id in the transaction log."""
        return evidence.states(self.cluster, TRANSACTIONAL_ID, self.since)

    def _wait_state(self, name: str, known: int) -> list[CoordinatorEntry]:
        """Wait until the newest state of the transactional id is `name`.

        Return the states in log order, without the first `known` ones, which were logged before.
        """
        return wait_until(
            lambda: states if (states := self._states()[known:]) and states[-1].what == name else [],
            STATE_LIMIT_S,
            f"{TRANSACTIONAL_ID} to be {name}",
        )

    def _position(self, *, stable: bool) -> CommittedOffset:
        """Return the group's committed position in the source topic, as its coordinator reports it."""
        return committed_offset(
            self.cluster.admin, GROUP_COORDINATOR, self.stage.group, self.input, stable=stable
        )

    def _view(self, name: str) -> ReaderView:
        """Read the topic with both isolation levels; store the result in `views[name]` and return it."""
        self.views[name] = evidence.view(self.cluster, self.stage.topic, self.stage.partitions, READERS)
        return self.views[name]

    def _initialise(self, step: WalkthroughStep) -> None:
        stage = self.stage
        stage.clients.idempotent("seeder", stage.source).send(0, 2 * INPUTS)
        self.source = stage.clients.group_member(SOURCE, stage.source, stage.group)
        self.app = self._open_producer(APP)
        stage.transactional_ids.append(TRANSACTIONAL_ID)
        self.app.init()
        home, lookups = self.txn_home, self._exchanges("FindCoordinator")
        named = [c.broker for x in lookups if x.answer for c in x.answer.coordinators if not c.error]
        step.prove(
            "a transactional id hashes to a partition of __transaction_state; its leader is the coordinator",
            f"{home.arithmetic}; FindCoordinator returns broker {listed(named)}",
            named and {home.leader, *named} == {TXN_COORDINATOR},
        )
        group, returned = self.group_home, self.cluster.group_coordinator(stage.group)
        step.prove(
            "a group does the same in __consumer_offsets",
            f"{group.arithmetic}; FindCoordinator returns broker {returned}",
            group.leader == returned == GROUP_COORDINATOR,
        )
        step.compare(
            "__transaction_state has 50 partitions, each with 3 replicas",
            f"{home.partitions} partitions, {home.replicas} replicas: 50 and 3 are the defaults",
            (home.partitions, home.replicas) == (50, 3),
        )
        inits = [x for x in self._exchanges("InitProducerId") if x.answer and not x.answer.error]
        facts = inits[-1].answer if inits else None
        self.pid, self.epoch = (facts.producer_id or -1, facts.epoch or 0) if facts else (-1, -1)
        step.prove(
            "InitProducerId: the coordinator assigns a producer id and an epoch",
            f"broker {listed([x.broker for x in inits])} assigned producer id {self.pid}, epoch {self.epoch}",
            [x.broker for x in inits] == [TXN_COORDINATOR] and self.pid >= 0,
        )
        states = self._states()
        last = states[-1] if states else None
        step.prove(
            "the state in the transaction log is Empty",
            f"{last.what}, epoch {last.epoch}" if last else "the log has no state",
            last and (last.what, last.producer_id, last.epoch) == ("Empty", self.pid, self.epoch),
        )
        step.show(states=evidence.rows(states), requests=[x.text for x in [*lookups, *inits]])

    def _begin(self, step: WalkthroughStep) -> None:
        before, known = time.monotonic_ns(), len(self._states())
        self.app.begin()
        self.app.producer.poll(QUIET_S)
        requests = self._exchanges(since=before)
        of_begin = [x.text for x in requests if x.api not in QUESTIONS]
        states = len(self._states()) - known
        step.prove(
            "begin_transaction is local: no request reaches a broker",
            f"{len(of_begin)} requests in {round(QUIET_S * 1000)} ms, {states} new states in the log",
            not of_begin and not states,
        )
        step.show(requests=of_begin, about_the_cluster=[x.text for x in requests if x.api in QUESTIONS])

    def _register_partitions(self, step: WalkthroughStep) -> None:
        inputs = self.inputs = self.source.take(INPUTS)
        known, before = len(self._states()), time.monotonic_ns()
        for lane, sent, places in ((A, inputs[:1], [self.a]), (B, inputs[1:2], [self.a, self.b])):
            self.app.hand_over_outputs(lane, sent)
            self.app.flush()
            states = self._states()[known:]
            last = states[-1] if states else None
            step.prove(
                f"the first record to {'AB'[lane]} makes the transaction Ongoing with {'AB'[: lane + 1]}",
                f"{last.what} with {_places(last)}" if last else "the log has no new state",
                last and last.what == "Ongoing" and last.places == places,
            )
        added = self._exchanges("AddPartitionsToTxn", since=before)
        produced = self._exchanges("Produce", since=before)
        step.prove(
            "each partition is added at the transaction coordinator before its first batch is sent",
            f"{', '.join(x.text for x in added)}; {len(produced)} Produce requests, each after one of them",
            len(added) == len(produced) == 2
            and all(x.broker == TXN_COORDINATOR for x in added)
            and all(a.asked_mono < p.asked_mono for a, p in zip(added, produced, strict=True)),
        )
        step.compare(
            "with transaction version 2 the partition's leader adds it without a request of the client",
            f"librdkafka sends AddPartitionsToTxn {added[0].version if added else '?'}",
            not added,
        )
        step.show(
            states=evidence.rows(self._states()[known:]), requests=[x.text for x in [*added, *produced]]
        )

    def _send_more(self, step: WalkthroughStep) -> None:
        for lane in (A, B):
            self.app.hand_over_outputs(lane, self.inputs[2 + lane :: 2])
        self.app.flush()
        for name, place, leader in (("A", self.a, 1), ("B", self.b, 2)):
            log = leader_log(self.cluster, place)
            sequences = [b.base_sequence for b in log if (b.producer_id, b.epoch) == (self.pid, self.epoch)]
            current_leader = self.cluster.leader_of(*place)
            receivers = {
                x.broker
                for x in self._exchanges("Produce")
                if any((b.topic, b.partition) == place for b in x.asked.batches)
            }
            step.prove(
                f"{name}: batches with producer id, epoch and sequences from 0, marked as transactional",
                f"broker {current_leader} is the leader and received them; its log has producer id "
                f"{self.pid}, epoch {self.epoch}, base sequences {listed(sequences)}",
                sequences == [0, 1]
                and all(b.transactional for b in log)
                and receivers == {current_leader} == {leader},
            )
            step.show(**{name: [[*b[:6]] for b in log]})

    def _add_offsets(self, step: WalkthroughStep) -> None:
        known = len(self._states())
        positions = next_positions(self.inputs)
        self.app.send_offsets(self.stage.group, positions, self.source.metadata)
        requests = self._exchanges("AddOffsetsToTxn", "TxnOffsetCommit")
        brokers = {x.api: x.broker for x in requests}
        states = self._states()[known:]
        step.prove(
            "the group's offsets partition joins the transaction",
            f"{states[-1].what} with {_places(states[-1])}" if states else "the log has no new state",
            states and sorted(states[-1].places) == sorted(self.places),
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
        stable, plain = self._position(stable=True), self._position(stable=False)
        step.prove(
            "the position stays invisible until the commit",
            f"OffsetFetch of stable offsets returns {stable.error}; without that condition it returns "
            f"{plain.offset} (none)",
            stable.error == "UNSTABLE_OFFSET_COMMIT" and plain == (-1, "NONE"),
        )
        self._view("open")
        step.show(states=evidence.rows(states), requests=[x.text for x in requests], positions=positions)

    def _two_phases(self, step: WalkthroughStep) -> None:
        """Commit the open transaction; then process the next inputs and abort."""
        epochs = [self._end(step, "commit")]
        first = self._position(stable=True)
        step.prove(
            "with the commit the position becomes visible",
            f"the group's position is {first.offset}",
            first == (INPUTS, "NONE"),
        )
        self._view("committed")
        self._process(self.app, self.source.take(INPUTS), ABORT)
        self._view("open again")
        epochs.append(self._end(step, "abort"))
        again = self._position(stable=True)
        step.prove(
            "an abort drops the position: the group's position is the earlier one",
            f"the group's position is {again.offset}",
            again == first,
        )
        self._view("aborted")
        step.compare(
            "with transaction version 2 the epoch grows with each transaction",
            f"epochs {listed(epochs)}: librdkafka ends them with EndTxn 1",
            len(set(epochs)) == 2,
        )

    def _process(self, app: TransactionalProducer, inputs: list[Given], outcome: str) -> None:
        """Begin a transaction and send the outputs of these inputs.

        Then add the group's position after these inputs to the transaction.
        """
        app.begin()
        for lane in (A, B):
            app.hand_over_outputs(lane, inputs[lane::2], outcome)
        app.flush()
        app.send_offsets(self.stage.group, next_positions(inputs), self.source.metadata)

    def _end(self, step: WalkthroughStep, how: Literal["commit", "abort"]) -> int:
        """End the open transaction and show the order of the log writes.

        Return the producer epoch of the markers.
        """
        known = len(self._states())
        old = len(evidence.markers(self.cluster, self.places, self.since, self.pid))
        (self.app.commit if how == "commit" else self.app.abort)()
        word = how.capitalize()
        states = self._wait_state(f"Complete{word}", known)
        markers = evidence.markers(self.cluster, self.places, self.since, self.pid)
        markers = sorted(markers, key=lambda marker: marker.wall)[old:]
        step.prove(
            f"{how}: the coordinator logs the decision for all partitions, then its completion",
            " → ".join(" ".join([s.what, *(f"{t}-{p}" for t, p in s.places)]) for s in states),
            [s.what for s in states] == [f"Prepare{word}", f"Complete{word}"]
            and sorted(states[0].places) == sorted(self.places),
        )
        coordinator_epochs = sorted({m.coordinator_epoch for m in markers})
        step.prove(
            f"{how}: a marker is written into each of them, with the coordinator's epoch",
            ", ".join(f"{m.what.upper()} in {m.topic}-{m.partition} at {m.offset}" for m in markers)
            + f", with coordinator epoch {listed(coordinator_epochs)}",
            sorted((m.topic, m.partition) for m in markers) == sorted(self.places)
            and {(m.what, m.coordinator_epoch) for m in markers} == {(how, self.txn_home.leader_epoch)},
        )
        if how == "abort":
            on_offsets = [m.what.upper() for m in markers if (m.topic, m.partition) == self.offsets]
            step.compare(
                "on abort the offsets partition gets a COMMIT marker",
                f"it gets {listed(on_offsets)}",
                on_offsets == ["COMMIT"],
            )
        request = self._exchanges("EndTxn")[-1]
        start, last_marker = states[0].wall, max((m.wall for m in markers), default=0)
        times = {
            "the response to the client": request.answered_wall,
            "the last marker": last_marker,
            states[-1].what: states[-1].wall,
        }
        after = ", ".join(f"{what} {(at - start) / 1e6:+.1f} ms" for what, at in times.items())
        step.compare(
            f"{how}: the client gets its response when all markers are written",
            f"{states[0].what} at 0 ms, {after} (logs have milliseconds)",
            request.answered_wall >= last_marker + 1_000_000,
        )
        step.show(
            **{
                how: {
                    "states": evidence.rows(states),
                    "markers": evidence.rows(markers),
                    "request": request.text,
                }
            }
        )
        return markers[0].epoch if markers else -1

    def _compare_readers(self, step: WalkthroughStep) -> None:
        """Compare what readers of both isolation levels received.

        They read while transactions were open, after a commit, and after an abort.
        """
        views = self.views
        steady, done = views["committed"], views["aborted"]
        for name, before in (("open", []), ("open again", steady.committed)):
            now = views[name]
            firsts = {p: min(o for q, o in set(now.uncommitted) - set(before) if q == p) for p in (A, B)}
            step.prove(
                f"{name}: read_committed stops at the last stable offset, where the open transaction starts",
                f"{_ends(now)}; read_committed got {len(now.committed)} records, "
                f"read_uncommitted {len(now.uncommitted)}",
                now.committed == before
                and now.hidden == INPUTS
                and {p: end.last_stable for p, end in now.ends.items()} == firsts,
            )
        step.prove(
            "committed: every record is read, and the last stable offset is the high watermark",
            f"{_ends(steady)}; read_committed got {len(steady.committed)} records",
            len(steady.committed) == INPUTS and not steady.hidden and _stable(steady),
        )
        step.prove(
            "aborted: only read_uncommitted gets the records",
            f"{_ends(done)}; read_committed got {len(done.committed)} records, "
            f"read_uncommitted {len(done.uncommitted)}",
            done.committed == steady.committed and done.hidden == INPUTS and _stable(done),
        )
        self._inspect_fetches(step)
        step.show(views={name: [_ends(v), v.committed, v.uncommitted] for name, v in views.items()})

    def _inspect_fetches(self, step: WalkthroughStep) -> None:
        """Show what brokers sent to the read_committed reader.

        The reader's client library then drops some of these records.
        """
        answers = [
            x.answer
            for x in self._exchanges("Fetch", client=READERS[0])
            if x.answer and any(p.topic == self.stage.topic for p in x.answer.partitions)
        ]
        beyond = [
            b
            for answer in answers
            for b in answer.batches
            for p in answer.partitions
            if (p.topic, p.partition) == (b.topic, b.partition)
            and b.base_offset >= (p.last_stable_offset or 0)
        ]
        step.compare(
            "brokers return records behind the last stable offset, and the reader holds them back",
            f"{len(beyond)} of {sum(len(a.batches) for a in answers)} returned batches were behind it: "
            "the broker stops there",
            beyond,
        )
        transactions = {(p.partition, *entry) for a in answers for p in a.partitions for entry in p.aborted}
        sent = [b for a in answers if any(p.aborted for p in a.partitions) for b in a.batches]
        aborted = [
            b
            for b in sent
            if any((b.partition, b.producer_id) == t[:2] and b.base_offset >= t[2] for t in transactions)
        ]
        step.prove(
            "brokers return aborted records with the list of aborted transactions, and the reader drops them",
            f"aborted (partition, producer id, first offset): {sorted(transactions)}; "
            f"{sum(b.count for b in aborted if not b.marker)} of their records were returned",
            transactions and any(not b.marker for b in aborted),
        )

    def _fence(self, step: WalkthroughStep) -> None:
        """Start a second producer while the first has an open transaction.

        Then let both producers continue.
        """
        self.source.rewind()
        inputs = self.source.take(INPUTS)
        self._process(self.app, inputs, COMMIT)
        known = len(self._states())
        successor = self._open_producer(SUCCESSOR)
        successor.init()
        inits = [
            x for x in self._exchanges("InitProducerId", client=SUCCESSOR) if x.answer and not x.answer.error
        ]
        facts = inits[-1].answer if inits else None
        pid, epoch = (facts.producer_id, facts.epoch or 0) if facts else (-1, -1)
        step.prove(
            "the second producer gets the same id and a higher epoch",
            f"producer id {pid}, epoch {epoch} after {self.epoch}",
            pid == self.pid and epoch > self.epoch,
        )
        states = self._states()[known:]
        step.prove(
            "its init ends the open transaction of the first producer",
            " → ".join(f"{s.what} (epoch {s.epoch})" for s in states),
            "CompleteAbort" in [s.what for s in states] and states[-1].what == "Empty",
        )
        self._show_refusals(step, inputs)
        self.source.rewind()
        self._process(successor, self.source.take(INPUTS), COMMIT)
        successor.commit()
        wait_until(lambda: self._position(stable=True).error == "NONE", STATE_LIMIT_S, "a stable position")
        position = self._position(stable=True)
        now = self._view("taken over")
        step.prove(
            "the second producer processes the same input, once",
            f"the group's position is {position.offset}, read_committed got {len(now.committed)} records",
            position.offset == len(now.committed) == 2 * INPUTS,
        )
        step.show(states=evidence.rows(self._states()[known:]), init=[x.text for x in inits])

    def _show_refusals(self, step: WalkthroughStep, inputs: list[Given]) -> None:
        """Let the first producer send and commit; show the brokers' responses and the client's errors."""
        before = len(self._exchanges())
        answers = [self.app.hand_over_outputs(A, inputs[:1]), self.app.flush(), self.app.commit()]
        errors = [answer for answer in answers if not answer.ok]
        refused = [x for x in self._exchanges()[before:] if x.refusals]
        step.prove(
            "the first producer is fenced: its requests are refused, and its client reports it",
            f"{'; '.join(x.text for x in refused) or 'no request was refused'}; the client: "
            f"{listed(' '.join([error.name, *error.flags]) for error in errors)}",
            any(refusal in FENCED for x in refused for refusal in x.refusals)
            and any(error.name in FENCED for error in errors),
        )
        fenced = ProducerIdentity(TRANSACTIONAL_ID, self.pid, self.epoch)
        codes = evidence.refusals(self.cluster, fenced, self.a)
        step.compare(
            "a fenced producer gets PRODUCER_FENCED",
            ", ".join(f"{request}: {code}" for request, code in codes.items()),
            set(codes.values()) == {"PRODUCER_FENCED"},
        )
        count = sum(code in FENCED for code in codes.values())
        step.prove(
            "every request with the old epoch is refused",
            f"{count} of {len(codes)} kinds of requests were",
            count == len(codes),
        )
        step.show(refused=[x.text for x in refused], raw=codes, errors=[error.message for error in errors])


def _places(state: CoordinatorEntry) -> str:
    return listed(f"{topic}-{partition}" for topic, partition in state.places)


def _ends(view: ReaderView) -> str:
    return "; ".join(
        f"{'AB'[p]}: last stable {end.last_stable}, high watermark {end.high_watermark}"
        for p, end in view.ends.items()
    )


def _stable(view: ReaderView) -> bool:
    return all(end.last_stable == end.high_watermark for end in view.ends.values())


WALKTHROUGH: Final = Walkthrough(
    titles=TITLES,
    placement=((1, 2, 3), (2, 3, 1)),
    drawn=(APP, SUCCESSOR, SOURCE, READERS[0]),
    steps=lambda stage: _TransactionalSteps(stage).steps(),
)
