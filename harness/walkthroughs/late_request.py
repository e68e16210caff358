"""Shared toolkit of the walkthroughs of late requests of a client.

Each attempt makes transaction A and then transaction B of the same producer, and differs from its controls in
one step. Without transaction version 2, both transactions have the same producer id and epoch. The modules
`late_offset_commit`, `late_position_marker`, `late_partition`, `late_init` and `reused_sequence` define the
attempts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from itertools import groupby
from threading import Lock
from typing import Any, Final

from harness.base.errors import WaitTimeoutError
from harness.base.waits import wait_until
from harness.clients.scripted.client_libraries import RefusedCallError
from harness.clients.scripted.library_producer import LibraryProducer
from harness.clients.scripted.scripted_clients import LIBRARY_TIMEOUT_MS
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.log_audit import audit
from harness.evidence.step_report import WalkthroughStep
from harness.faults import ArmedFrameFault, HoldFrame
from harness.faults.proxy_chain import ProxyChain
from harness.kafka.log.audit_tables import read_tables
from harness.tap.coordinator_entries import decisions
from harness.tap.frame_lines import Frame
from harness.walkthroughs.endtxn_race import ON_ITS_WAY_S, judge_part
from harness.walkthroughs.stage import Stage, Walkthrough
from harness.witness.plain_consumer import observe_topics

CONFLUENT: Final = "confluent-kafka"
KAFKA_PYTHON: Final = "kafka-python"
LIMIT_S: Final = 30.0
LEAD_S: Final = 3.0
"""Least time between the second request of a call, which is not delayed, and the first one."""
SUFFIXES: Final = tuple("abcdefghijklmnopqrst")
COMMITTED: Final = ["Ongoing", "PrepareCommit", "CompleteCommit"]
ABORTED: Final = ["Ongoing", "PrepareAbort", "CompleteAbort"]
EPOCH_REFUSED: Final = "INVALID_PRODUCER_EPOCH"
_ONE_PARTITION: Final = ((1, 2, 3),)


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
    """Runner of the attempts of one walkthrough."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._since = time.time_ns()
        self._made = 0
        self._creation = Lock()

    def show(
        self,
        step: WalkthroughStep,
        case: tuple[str, str],
        make: Callable[[Attempt], None],
        expected: Outcome,
        *,
        library: str = CONFLUENT,
        listener: str = "TAPPED",
        timeout_ms: int = LIBRARY_TIMEOUT_MS,
        at_once: int = 1,
    ) -> WalkthroughStep:
        """Make as many attempts of a case as the scenario requires, and compare each with `expected`.

        `case` is the name of the case, and the claim that each attempt must prove. With another listener than
        TAPPED, the clients do not use the wire tap. Up to `at_once` attempts run in parallel.
        """
        name, claim = case
        # The first step shows the hazard itself.
        tries = self.stage.tries if step.number == 1 else self.stage.control_tries
        spec = {"transaction_timeout_ms": timeout_ms, "bootstrap": self.stage.cluster.bootstrap(listener)}
        with ThreadPoolExecutor(at_once) as pool:
            attempts = list(pool.map(lambda _: self._attempt(name, make, library, spec), range(tries)))
        self._judge(attempts)
        as_expected = sum(expected.matches(attempt) for attempt in attempts)
        step.prove(
            claim,
            f"{library}: {as_expected} of {len(attempts)}; {_describe(attempts[0])}",
            as_expected == len(attempts),
        )
        step.show(tries=[attempt.facts() for attempt in attempts], frames=self._frames(attempts[0]))
        return step

    def avoided(self) -> int:
        """Return a broker that must not be the coordinator of an attempt; 0 if there is none."""
        return 0

    def _attempt(
        self, case: str, make: Callable[[Attempt], None], library: str, spec: dict[str, object]
    ) -> Attempt:
        attempt = self._new(case, library, spec)
        producer = attempt.producer
        try:
            self.initialise(attempt)
            make(attempt)
        except WaitTimeoutError as late:
            attempt.error = f"{type(late).__name__}: {late.message}"
        except RefusedCallError as refused:
            attempt.error = str(refused)
        finally:
            producer.close()
        self.wait_complete(attempt)
        return attempt

    def initialise(self, attempt: Attempt) -> None:
        """Initialise the producer of an attempt."""
        attempt.producer.init()

    def _new(self, case: str, library: str, spec: dict[str, object]) -> Attempt:
        with self._creation:
            self._made += 1
            name = f"{case}-{self._made}"
            spec = spec | {"transactional_id": self._transactional_id(name)}
            producer = self.stage.clients.library(name, library, self.stage.topic, [0], **spec)
            if self._made == 1:
                self.stage.transactional_ids.append(producer.transactional_id)
        return Attempt(case, producer)

    def _transactional_id(self, name: str) -> str:
        avoided = self.avoided()
        ids = [f"{name}{suffix}.{self.stage.run}" for suffix in ("", *SUFFIXES)]
        return next(i for i in ids if self.stage.cluster.txn_coordinator(i) != avoided)

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
            attempt.decided = self.decided(attempt)

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
            lambda: (self.decided(attempt) or ["Complete"])[-1].startswith("Complete"),
            LIMIT_S,
            f"the last transaction of {attempt.producer.name} to be complete",
        )

    def decided(self, attempt: Attempt) -> list[str]:
        """Return the states that the coordinator logged, without Empty and without repetitions."""
        ident = attempt.producer.transactional_id
        states = [s.what for s in decisions(self.stage.cluster, ident, self._since) if s.what != "Empty"]
        return [state for state, _ in groupby(states)]


def overtake(
    proxies: ProxyChain, broker: int, warm_up: Callable[[], None], call: Callable[[], None]
) -> float:
    """Let two proxies delay the request of a call to a broker. Return the delay in seconds.

    The call itself succeeds, because the client repeats the request on a new connection. `warm_up` connects
    to the broker through both proxies, so that nothing but the request waits in the inner one. It does at
    least as much as `call`, so its duration shows how long everything takes on this machine.
    """
    started = time.monotonic()
    warm_up()
    usual_s = time.monotonic() - started
    on_its_way_s = max(ON_ITS_WAY_S, 3 * usual_s)
    delay_s = on_its_way_s + LEAD_S + 5 * usual_s
    proxies.slow(round(delay_s * 1000), brokers=[broker])
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(call)
        # Give the request time to reach the inner proxy. An error of the call is raised here.
        for done in wait_for([made], on_its_way_s).done:
            done.result()
        proxies.shortcut()
        made.result()
    return delay_s


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


def define_walkthrough(
    titles: Sequence[str], drawn: str, steps: Callable[[Stage], Iterator[WalkthroughStep]]
) -> Walkthrough:
    """Return a walkthrough with a topic of one partition; `drawn` is the client in its sequence diagram."""
    return Walkthrough(titles=titles, placement=_ONE_PARTITION, drawn=(drawn,), steps=steps)
