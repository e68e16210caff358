"""Walkthroughs of late requests of a client: a position, a partition, and a record whose answer is lost.

Each attempt makes transaction A and then transaction B of the same producer, and differs from its controls in
one step. Neither transaction aborts because of an error, except where the text below reports one:

    LATE_OFFSET_COMMIT   the TxnOffsetCommit of A arrives in B: B commits, and the group has the position of A
    LATE_POSITION_MARKER the marker of A for the group's positions arrives in B, and ends B for the group
    LATE_PARTITION       the AddPartitionsToTxn of A arrives after A: it opens a transaction that no client
                         began. The time-out of this transaction fences the producer
    REUSED_SEQUENCE      the answer to the record of A is lost, and the application aborts at once. The client
                         library gives the sequence of A's record to B's record. The broker takes it for a
                         duplicate: B's record is acknowledged and committed, and it is lost

Without transaction version 2, both transactions have the same producer id and epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

from harness.base.waits import wait_until
from harness.clients.scripted.client_libraries import ConfluentClient, RefusedCallError
from harness.clients.scripted.library_producer import End, LibraryProducer
from harness.clients.scripted.membership import membership
from harness.clients.scripted.scripted_clients import LIBRARY_TIMEOUT_MS
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.log_audit import audit
from harness.evidence.step_report import WalkthroughStep
from harness.faults import ArmedFrameFault, HoldFrame, LoseResponseFrame
from harness.faults.link_faults import LoseResponse
from harness.faults.proxy_chain import ProxyChain
from harness.kafka.coordinators import java_hash
from harness.kafka.group_offsets import committed_offset
from harness.kafka.log.audit_tables import read_tables
from harness.kafka.log.coordinator_log import OFFSETS_TOPIC
from harness.tap.coordinator_entries import decisions
from harness.tap.frame_lines import Frame
from harness.walkthroughs.endtxn_race import DELAY_MS, ENDS, ON_ITS_WAY_S, Variant, judge_part
from harness.walkthroughs.late_marker import DAMAGE
from harness.walkthroughs.stage import Stage, Walkthrough
from harness.witness.plain_consumer import observe_topics

CONFLUENT: Final = "confluent-kafka"
LIMIT_S: Final = 30.0
GHOST_TIMEOUT_MS: Final = 3_000
"""Transaction time-out of producers that meet a transaction that they did not begin."""
FIRST, SECOND = 1, 4
"""The positions that transactions A and B hand over, counted from the position before the attempt."""
STEP: Final = 10
"""How far the group's position is between the starts of two attempts."""
PROXIES: Final = "two-proxies"
LINK: Final = "link"
BY_LINKS: Final = (PROXIES, LINK)
"""Cases that fault links in Toxiproxy, and need no wire tap."""
TWICE: Final = 2
SUFFIXES: Final = tuple("abcdefghijklmnopqrst")
COMMITTED: Final = ["Ongoing", "PrepareCommit", "CompleteCommit"]
ABORTED: Final = ["Ongoing", "PrepareAbort", "CompleteAbort"]
EPOCH_REFUSED: Final = "INVALID_PRODUCER_EPOCH"
_PLACEMENT: Final = ((1, 2, 3),)


@dataclass
class Attempt:
    """One attempt with its result."""

    case: str
    producer: LibraryProducer
    late_answer: str = ""
    """The broker's answer to the late frame, or an empty string if no frame was released."""
    error: str = ""
    """The first error that the client reported."""
    position: int | None = None
    """The position of the group after the attempt, counted from the position before it."""
    judgement: Judgement | None = None
    decided: list[str] = field(default_factory=list)
    """The states that the coordinator logged, without Empty and without repetitions."""
    damage: list[str] = field(default_factory=list)
    """The kinds of damage that a search of the logs finds (`eos audit`)."""

    @property
    def anomalies(self) -> list[str]:
        """The names of the anomalies that the checkers found in this attempt."""
        return sorted(self.judgement.names()) if self.judgement else []

    def facts(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "name": self.producer.name,
            "decided": self.decided,
            "late_answer": self.late_answer,
            "error": self.error,
            "position": self.position,
            "found": self.anomalies,
            "damage": self.damage,
        }


@dataclass(frozen=True)
class Outcome:
    """What an attempt must show."""

    late_answer: str = ""
    error: str = ""
    position: int | None = None
    found: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()

    def matches(self, attempt: Attempt) -> bool:
        return self == Outcome(
            attempt.late_answer,
            attempt.error.split(":")[0],
            attempt.position,
            tuple(attempt.anomalies),
            tuple(attempt.damage),
        )


class LateRequests:
    """Runner of the attempts of one walkthrough, one after the other."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._since = time.time_ns()
        self._made = 0
        self.group = ""
        self.avoided = 0
        """Broker that is not the coordinator of any attempt, so that its links can be faulted alone."""
        self._member: Any = None

    def show(
        self,
        step: WalkthroughStep,
        case: tuple[str, str],
        make: Callable[[Attempt], None],
        expected: Outcome,
        *,
        library: str = CONFLUENT,
        timeout_ms: int = LIBRARY_TIMEOUT_MS,
    ) -> WalkthroughStep:
        """Make as many attempts of a case as the scenario requires, and compare each with `expected`.

        `case` is the name of the case, and the claim that each attempt must prove.
        """
        name, claim = case
        attempts = [self._attempt(name, make, library, timeout_ms) for _ in range(self.stage.tries)]
        self._judge(attempts)
        as_expected = sum(expected.matches(attempt) for attempt in attempts)
        step.prove(
            claim,
            f"{library}: {as_expected} of {len(attempts)}; {_describe(attempts[0])}",
            as_expected == len(attempts),
        )
        step.show(tries=[attempt.facts() for attempt in attempts], frames=self._frames(attempts[0]))
        return step

    def _attempt(self, case: str, make: Callable[[Attempt], None], library: str, timeout_ms: int) -> Attempt:
        self._made += 1
        name = f"{case}-{self._made}"
        stage = self.stage
        spec = {
            "transactional_id": self._transactional_id(name),
            "transaction_timeout_ms": timeout_ms,
            "bootstrap": stage.cluster.bootstrap("PROXIED" if case in BY_LINKS else "TAPPED"),
        }
        producer = stage.clients.library(name, library, stage.topic, [0], **spec)
        attempt = Attempt(case, producer)
        if self._made == 1:
            self.stage.transactional_ids.append(producer.transactional_id)
        try:
            producer.init()
            make(attempt)
        except RefusedCallError as refused:
            attempt.error = str(refused)
        finally:
            producer.close()
        self.wait_complete(attempt)
        return attempt

    def _transactional_id(self, name: str) -> str:
        """Return an id whose coordinator is not the broker `self.avoided`."""
        ids = [f"{name}{suffix}.{self.stage.run}" for suffix in ("", *SUFFIXES)]
        return next(i for i in ids if self.stage.cluster.txn_coordinator(i) != self.avoided)

    def _judge(self, attempts: list[Attempt]) -> None:
        """Check each attempt's records against its history, and search the logs for damage."""
        stage = self.stage
        observation = observe_topics(stage.cluster.bootstrap("DIRECT"), [stage.topic], stage.run)
        tables = read_tables(stage.cluster.admin, [stage.topic])
        damage = audit(tables.partitions, tables.coordinators).findings
        for attempt in attempts:
            producer = attempt.producer
            attempt.damage = [f.kind for f in damage if f.transactional_id == producer.transactional_id]
            attempt.judgement = judge_part([producer.history], [observation], [producer.number])
            attempt.decided = self._decided(attempt)

    def _frames(self, attempt: Attempt) -> list[list[object]]:
        """Return the frames of an attempt's requests, one row each, and the answers to them.

        The columns are connection, API and side, tap action, sequences of batches, offsets, and error.
        """
        wanted = ("Produce", "TxnOffsetCommit", "AddPartitionsToTxn", "EndTxn", "InitProducerId")
        return [
            [
                line.conn,
                f"{line.api} {line.side}",
                line.fate,
                [batch.base_sequence for batch in line.facts.batches],
                [p.offset for p in line.facts.partitions if p.offset is not None],
                line.facts.refusals,
            ]
            for line in self.stage.frames()
            if isinstance(line, Frame) and line.client_id == attempt.producer.name
            if line.api in wanted and line.facts
        ]

    def hold(self, api: str, attempt: Attempt) -> ArmedFrameFault:
        """Return a fault that holds the attempt's next request of an api, so that the client retries it."""
        ident = attempt.producer.transactional_id
        return self.stage.arm(HoldFrame(api=api, transactional_id=ident, drop_client=True))

    @staticmethod
    def release(attempt: Attempt, held: ArmedFrameFault) -> None:
        """Release the held request, and store the broker's answer to it."""
        held.release()
        attempt.late_answer = wait_until(
            lambda: held.wait().hits[0].answer or "", LIMIT_S, "the broker's answer to the late request"
        )

    def wait_complete(self, attempt: Attempt) -> None:
        """Wait until the last transaction of an attempt is complete.

        A client gets its answer before. Until then, the coordinator refuses further requests.
        """
        wait_until(
            lambda: (self._decided(attempt) or ["Complete"])[-1].startswith("Complete"),
            LIMIT_S,
            f"the last transaction of {attempt.producer.name} to be complete",
        )

    def _decided(self, attempt: Attempt) -> list[str]:
        ident = attempt.producer.transactional_id
        states = [s.what for s in decisions(self.stage.cluster, ident, self._since) if s.what != "Empty"]
        return [state for state, _ in groupby(states)]

    # Late positions.

    @contextmanager
    def membership(self) -> Iterator[None]:
        """Let a member join the group whose positions the transactions hand over, and leave it at the end.

        Another broker leads the partition of the walkthrough's topic than that of the group's positions.
        Therefore no request carries the markers of both.
        """
        stage = self.stage
        names = [f"{stage.topic}-group{suffix}" for suffix in SUFFIXES]
        leader = stage.cluster.leader_of(stage.topic, 0)
        self.group = next(name for name in names if stage.cluster.group_coordinator(name) != leader)
        self.avoided = stage.cluster.group_coordinator(self.group)
        with membership(stage.cluster.bootstrap("DIRECT"), self.group, stage.topic) as self._member:
            yield

    def positions(self, attempt: Attempt, *, release_in_second: bool, reinit: bool = False) -> None:
        """Hand over a position in A and one in B. The request of A is released in B, or after B's end."""
        producer, base = attempt.producer, self._made * STEP
        with self.hold("TxnOffsetCommit", attempt) as held:
            self._hand_over(producer, base + FIRST)
            producer.end("commit")
            if reinit:
                producer.init()
            self._hand_over(producer, base + SECOND)
            if release_in_second:
                self.release(attempt, held)
            producer.end("commit")
            if not release_in_second:
                self.wait_complete(attempt)
                self.release(attempt, held)
        self.wait_complete(attempt)
        attempt.position = self._committed() - base

    def by_proxies(self, attempt: Attempt) -> None:
        """Hand over a position in A and one in B. Two proxies in series make the request of A late."""
        producer, base = attempt.producer, self._made * STEP
        cluster = self.stage.cluster
        coordinator = cluster.group_coordinator(self.group)
        with ProxyChain(cluster, journal=self.stage.journal) as proxies, ThreadPoolExecutor(1) as pool:
            # Connect to the coordinator of the group now, so that only the position waits in the proxy.
            self._hand_over(producer, base)
            producer.end("commit")
            producer.begin()
            producer.send(0, "commit")
            proxies.slow(DELAY_MS, brokers=[coordinator])
            first = pool.submit(self._send_offset, producer, base + FIRST)
            # Give the request time to reach the inner proxy. An error of the call is raised here.
            for done in wait_for([first], ON_ITS_WAY_S).done:
                done.result()
            proxies.shortcut()
            first.result()
            producer.end("commit")
            self._hand_over(producer, base + SECOND)
            wait_until(
                lambda: self._count(base + FIRST) == TWICE, LIMIT_S, "the late position to arrive", every=0.2
            )
            producer.end("commit")
        self.wait_complete(attempt)
        attempt.position = self._committed() - base

    def markers(self, attempt: Attempt, variant: Variant, *, release_in_second: bool) -> None:
        """Hand over positions in A and in B. The marker of A for the group's positions is late."""
        producer, base = attempt.producer, self._made * STEP
        first, second = ENDS[variant]
        self._hand_over(producer, base)
        producer.end("commit")
        self.wait_complete(attempt)
        fault = HoldFrame(
            api="WriteTxnMarkers",
            topic=OFFSETS_TOPIC,
            partition=self._positions_partition(),
            drop_client=True,
            listener="INTERNAL",
        )
        with self.stage.arm(fault) as held:
            self._hand_over(producer, base + FIRST, first)
            producer.end(first)
            if not release_in_second:
                self.wait_complete(attempt)
                self.release(attempt, held)
            self._hand_over(producer, base + SECOND, second)
            if release_in_second:
                self.release(attempt, held)
            producer.end(second)
        self.wait_complete(attempt)
        attempt.position = self._committed() - base

    def _hand_over(self, producer: LibraryProducer, position: int, outcome: End = "commit") -> None:
        producer.begin()
        producer.send(0, outcome)
        self._send_offset(producer, position)

    def _send_offset(self, producer: LibraryProducer, position: int) -> None:
        client = producer.client
        assert isinstance(client, ConfluentClient)
        member = self._member.consumer_group_metadata()
        client.send_offset((self.stage.topic, 0), position, member)

    def _positions_partition(self) -> int:
        """Return the partition of the log in which the group's positions are."""
        partitions = self.stage.cluster.admin.metadata([OFFSETS_TOPIC]).partitions
        return java_hash(self.group) % len(partitions)

    def _count(self, position: int) -> int:
        """Return how often a position was written for the group, in whichever transaction."""
        written = [p for log in read_tables(self.stage.cluster.admin, []).partitions for p in log.positions]
        return sum((p.group, p.position) == (self.group, position) for p in written)

    def _committed(self) -> int:
        cluster = self.stage.cluster
        coordinator = cluster.group_coordinator(self.group)
        place = (self.stage.topic, 0)

        def stable() -> int | None:
            answer = committed_offset(cluster.admin, coordinator, self.group, place, stable=True)
            return None if answer.error != "NONE" else answer.offset

        position = wait_until(stable, LIMIT_S, f"a position of {self.group} without an open transaction")
        assert position is not None
        return position

    # Late partitions.

    def partitions(self, attempt: Attempt, *, released: bool, reinit: bool = False) -> None:
        """Release the AddPartitionsToTxn of A after A is complete, or never. Then make B."""
        producer = attempt.producer
        with self.hold("AddPartitionsToTxn", attempt) as held:
            producer.whole("commit", 0)
            self.wait_complete(attempt)
            if reinit:
                producer.init()
            if released:
                self.release(attempt, held)
            if released and not reinit:
                ended = [*COMMITTED, *ABORTED]
                wait_until(
                    lambda: self._decided(attempt) == ended,
                    LIMIT_S,
                    "the time-out of a transaction that the client did not begin",
                )
        producer.whole("commit", 0)

    # Reused sequences.

    def sequences(
        self, attempt: Attempt, *, times: int | None = None, flush: bool = False, reinit: bool = False
    ) -> None:
        """Lose the answer to the record of A, abort A, and commit B with one record.

        The answers to the first `times` requests are lost (None: all of them until the abort). With `flush`,
        they arrive again before A is aborted.
        """
        producer = attempt.producer
        producer.whole("commit", 0, count=1)
        ident = producer.transactional_id
        with self.stage.arm(LoseResponseFrame(api="Produce", transactional_id=ident, times=times)) as lost:
            producer.begin()
            producer.submit(0, "abort", 1)
            lost.wait("lost", LIMIT_S)
            if not flush:
                producer.end("abort")
        if flush:
            producer.flush()
            producer.end("abort")
        if reinit:
            producer.init()
        producer.whole("commit", 0, count=1)

    def by_link(self, attempt: Attempt) -> None:
        """Lose the answers of the leader on its link, abort A, and commit B with one record."""
        producer, stage = attempt.producer, self.stage
        producer.whole("commit", 0, count=1)
        self.wait_complete(attempt)
        before = self._end()
        with stage.inject(LoseResponse(), f"kafka-{self.avoided}"):
            producer.begin()
            producer.submit(0, "abort", 1)
            wait_until(lambda: self._end() > before, LIMIT_S, "the record of A to be written")
            producer.end("abort")
        producer.whole("commit", 0, count=1)

    def _end(self) -> int:
        return self.stage.cluster.end_offsets(self.stage.topic)[0].high_watermark


def _describe(attempt: Attempt) -> str:
    parts = [f"the transaction log: {' '.join(attempt.decided)}"]
    if attempt.late_answer:
        parts.append(f"answer to the late request: {attempt.late_answer}")
    if attempt.position is not None:
        parts.append(f"position {attempt.position}")
    parts.append(f"error: {attempt.error or 'none'}")
    parts.append(f"anomalies: {', '.join(attempt.anomalies) or 'none'}")
    parts.append(f"eos audit: {', '.join(attempt.damage) or 'nothing'}")
    return "; ".join(parts)


OFFSET_TITLES: Final = (
    "The position of A arrives in B: the group goes back",
    "Control: the position of A arrives after the end of B",
    "The cure: a new producer with the same transactional id before B",
    "Without the wire tap: two Toxiproxy proxies in series",
)
MARKER_TITLES: Final = (
    "A aborts, its marker is late; B commits, and the group stays behind",
    "A commits, its marker is late; B aborts, and the group skips input",
    "Control: the late marker arrives between A and B",
)
PARTITION_TITLES: Final = (
    "The partition of A arrives after A: a transaction that no client began",
    "Control: the request of A never arrives",
    "The cure: a new producer with the same transactional id after A",
)
SEQUENCE_TITLES: Final = (
    "A is aborted while its record has no answer: the record of B is lost",
    "The cure: flush before the abort",
    "The cure: a new producer with the same transactional id after the abort",
    "kafka-python: the same fault",
    "Without the wire tap: the link of the leader loses its answers",
)
WENT_BACK: Final = Outcome("NONE", position=FIRST, damage=("position_went_back",))
LOST: Final = Outcome(found=("lost",), damage=("empty_commit",))
FENCED: Final = Outcome("NONE", "_FENCED", damage=("ghost_transaction",))


def _offset_steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race, steps = LateRequests(stage), WalkthroughStep.numbered(OFFSET_TITLES)
    with race.membership():
        yield race.show(
            steps[0],
            ("in-b", "a late position of A is accepted in B, and replaces that of B"),
            lambda a: race.positions(a, release_in_second=True),
            WENT_BACK,
        )
        yield race.show(
            steps[1],
            ("after-b", "without an open transaction, a late position is refused"),
            lambda a: race.positions(a, release_in_second=False),
            Outcome("INVALID_TXN_STATE", position=SECOND),
        )
        yield race.show(
            steps[2],
            ("re-init", "a late position with an earlier epoch is refused"),
            lambda a: race.positions(a, release_in_second=True, reinit=True),
            Outcome(EPOCH_REFUSED, position=SECOND),
        )
        yield race.show(
            steps[3],
            (PROXIES, "a late position of A is accepted in B, and replaces that of B"),
            race.by_proxies,
            Outcome(position=FIRST, damage=("position_went_back",)),
        )


def _marker_steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race, steps = LateRequests(stage), WalkthroughStep.numbered(MARKER_TITLES)
    with race.membership():
        for step, variant, position, damage in (
            (steps[0], "aC", 0, DAMAGE["aC"]),
            (steps[1], "cA", SECOND, DAMAGE["cA"]),
        ):
            yield race.show(
                step,
                (variant, f"the late marker ends B for the group: its position is {position}"),
                lambda a, v=variant: race.markers(a, v, release_in_second=True),  # type: ignore[misc]
                Outcome("NONE", position=position, damage=tuple(damage)),
            )
        yield race.show(
            steps[2],
            ("between", "before B has written its position, the late marker has no effect"),
            lambda a: race.markers(a, "aC", release_in_second=False),
            Outcome("NONE", position=SECOND),
        )


def _partition_steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race, steps = LateRequests(stage), WalkthroughStep.numbered(PARTITION_TITLES)
    yield race.show(
        steps[0],
        ("late", "a late request opens a transaction; its time-out fences the client, which gets an error"),
        lambda a: race.partitions(a, released=True),
        FENCED,
        timeout_ms=GHOST_TIMEOUT_MS,
    )
    yield race.show(
        steps[1],
        ("never", "without the late request, the next transaction is whole"),
        lambda a: race.partitions(a, released=False),
        Outcome(),
        timeout_ms=GHOST_TIMEOUT_MS,
    )
    yield race.show(
        steps[2],
        ("re-init", "a late request with an earlier epoch is refused"),
        lambda a: race.partitions(a, released=True, reinit=True),
        Outcome(EPOCH_REFUSED),
        timeout_ms=GHOST_TIMEOUT_MS,
    )


def _sequence_steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race, steps = LateRequests(stage), WalkthroughStep.numbered(SEQUENCE_TITLES)
    race.avoided = stage.cluster.leader_of(stage.topic, 0)
    lost = "the record of B is taken for a duplicate of A's: acknowledged, committed and lost"
    readable = "the record of B can be read"
    yield race.show(steps[0], ("abort", lost), race.sequences, LOST)
    yield race.show(steps[1], ("flush", readable), lambda a: race.sequences(a, flush=True), Outcome())
    yield race.show(steps[2], ("re-init", readable), lambda a: race.sequences(a, reinit=True), Outcome())
    yield race.show(
        steps[3],
        ("kafka-python", f"the library waits for A's record before it aborts: {readable}"),
        lambda a: race.sequences(a, times=1),
        Outcome(),
        library="kafka-python",
    )
    yield race.show(steps[4], (LINK, lost), race.by_link, LOST)


def _walkthrough(
    titles: Sequence[str], drawn: str, steps: Callable[[Stage], Iterator[WalkthroughStep]]
) -> Walkthrough:
    return Walkthrough(titles=titles, placement=_PLACEMENT, drawn=(drawn,), steps=steps)


LATE_OFFSET_COMMIT: Final = _walkthrough(OFFSET_TITLES, "in-b-1", _offset_steps)
LATE_PARTITION: Final = _walkthrough(PARTITION_TITLES, "late-1", _partition_steps)
LATE_POSITION_MARKER: Final = _walkthrough(MARKER_TITLES, "aC-1", _marker_steps)
REUSED_SEQUENCE: Final = _walkthrough(SEQUENCE_TITLES, "abort-1", _sequence_steps)
