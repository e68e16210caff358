"""Attempts at the delayed EndTxn: it arrives after its retry, while the next transaction is open.

Each attempt makes transaction A and then B; the EndTxn of A is late. A variant names how A and B end:

    aC   A aborts, B commits      cA   A commits, B aborts
    cC   both commit              aA   both abort

The records of A are in the attempt's first partition. Records of B that were sent before the late EndTxn
arrived are in the second partition. The other records of B are in the third.

Two independent methods make the EndTxn late. In the first, the wire tap holds exactly that frame. In the
second, two Toxiproxy proxies are in series. The inner proxy adds latency. The outer proxy then bypasses the
inner one, so that the retry arrives first.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, Literal

import msgspec
import numpy as np

from harness.base.waits import wait_until
from harness.clients.scripted.client_libraries import NEVER_RETURNED, RefusedCallError
from harness.clients.scripted.library_producer import End, LibraryProducer
from harness.clients.scripted.scripted_clients import LIBRARY_TIMEOUT_MS
from harness.evidence.checkers.consumer_reads import observation_of, reads_of
from harness.evidence.checkers.model import Evidence, Expect
from harness.evidence.checkers.verdict import Judgement, judge
from harness.evidence.history import HistoryFile
from harness.evidence.ledger import fold
from harness.evidence.observation import Observation
from harness.faults.frame_faults import HoldFrame
from harness.faults.proxy_chain import ProxyChain
from harness.tap.coordinator_entries import decisions
from harness.walkthroughs.open_transaction_reader import OpenTransactionReader
from harness.walkthroughs.stage import Stage

Variant = Literal["aC", "cA", "cC", "aA"]
Cure = Literal["", "re-init", "standby", "slow-send"]
ENDS: Final[dict[Variant, tuple[End, End]]] = {
    "aC": ("abort", "commit"),
    "cA": ("commit", "abort"),
    "cC": ("commit", "commit"),
    "aA": ("abort", "abort"),
}
"""How transactions A and B end in each variant."""
ANOMALIES: Final[dict[Variant, set[str]]] = {
    "aC": {"lost", "torn_transaction"},
    "cA": {"aborted_read", "torn_transaction"},
    "cC": {"early_read"},
    "aA": set(),
}
"""The anomalies that the checkers must find in each variant."""
STATES: Final[dict[End, list[str]]] = {
    "abort": ["Ongoing", "PrepareAbort", "CompleteAbort"],
    "commit": ["Ongoing", "PrepareCommit", "CompleteCommit"],
}
"""The states, without Empty, that the coordinator logs for one committed or one aborted transaction."""
BEFORE, EARLY, LATE = 0, 1, 2
LANES: Final = 3
DELAY_MS: Final = 5000
"""Latency in milliseconds that the inner proxy adds. Even on a busy machine, it gives a client enough time
to time out, retry, and begin transaction B.
"""
ON_ITS_WAY_S: Final = 1.0
_ARRIVAL_LIMIT_S: Final = 5.0
_ANSWER_LIMIT_S: Final = 30.0


@dataclass(frozen=True)
class Case:
    """What an attempt tests: the client library, the variant, and the cure.

    The variant determines how transactions A and B end. The cure is what the application does when it is
    unclear how A ended; it is empty if the application does nothing.
    """

    library: str
    variant: Variant
    cure: Cure = ""
    harmless: bool = False
    """Whether the late frame arrives between transactions A and B, where it has no effect."""

    @property
    def control(self) -> bool:
        """Whether the hazard must not occur."""
        return bool(self.cure) or self.harmless


@dataclass
class Attempt:
    """One attempt at the delayed EndTxn, with its result."""

    case: Case
    name: str
    producers: list[LibraryProducer]
    reader: OpenTransactionReader | None = None
    late_answer: str = ""
    """The broker's answer to the late EndTxn, or an empty string if the answer was not observed."""
    error: str = ""
    cure_ms: float = 0.0
    decided: list[str] = field(default_factory=list)
    """The states that the coordinator logged for the transactional id of transaction A, in order. The state
    Empty is left out, and a state that is logged several times in a row is listed once.
    """
    judgement: Judgement | None = None
    seconds: float = 0.0
    damage: list[str] = field(default_factory=list)
    """The kinds of damage that a search of the logs finds for the transactional id of A (`eos audit`)."""

    @property
    def hung(self) -> bool:
        """Whether a call of the attempt's client never returned; such an attempt is repeated."""
        return self.error.startswith(NEVER_RETURNED)

    @property
    def anomalies(self) -> set[str]:
        """The names of the anomalies that the checkers found in this attempt."""
        return set(self.judgement.names()) if self.judgement else set()

    @property
    def split(self) -> bool:
        """Whether the transaction log shows three ended transactions although the client made only two."""
        first, second = (STATES[end] for end in ENDS[self.case.variant])
        return self.decided == [*first, *first, *second]

    @property
    def found(self) -> bool:
        """Whether the hazard occurred.

        It occurred if `split` is true, and the checkers found exactly the anomalies that ANOMALIES lists.
        """
        return self.split and self.anomalies == ANOMALIES[self.case.variant]

    @property
    def consistent(self) -> bool:
        """Whether both transactions ended as the client reported, and the checkers found no anomaly."""
        first, second = (STATES[end] for end in ENDS[self.case.variant])
        # A standby producer uses another transactional id for transaction B. Then `self.decided` has the
        # states of transaction A only.
        decided = first if self.case.cure == "standby" else [*first, *second]
        return not self.error and not self.anomalies and self.decided == decided


class Race:
    """Runner of attempts. Parallel attempts have different producers; each attempt has three partitions."""

    attempt_type: type[Attempt] = Attempt
    frame = "EndTxn"
    """Api of the late frame."""
    effect = "the transaction that is open"
    """What the late frame ends, if it arrives while transaction B is open."""
    first_lane = BEFORE
    """Partition of an attempt to which transaction A writes."""
    timeout_ms = LIBRARY_TIMEOUT_MS
    """Transaction time-out of the producers."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._since = time.time_ns()
        self._made = 0

    def by_tap(self, cases: Sequence[Case]) -> list[Attempt]:
        """Run one attempt per case, all in parallel.

        The wire tap recognises the EndTxn of each attempt by its transactional id, and holds it.
        """
        attempts = [self._new(case, slot, "TAPPED") for slot, case in enumerate(cases)]
        with self._closing(attempts), ThreadPoolExecutor(len(attempts)) as pool:
            list(pool.map(self._attempt_by_tap, attempts))
        return attempts

    def by_proxies(self, cases: Sequence[Case]) -> list[Attempt]:
        """Run one attempt per case, all in parallel. The inner proxy slows all of them at the same time."""
        attempts = [self._new(case, slot, "PROXIED") for slot, case in enumerate(cases)]
        with (
            self._closing(attempts),
            ProxyChain(self._stage.cluster, journal=self._stage.journal) as proxies,
            ThreadPoolExecutor(len(attempts)) as pool,
        ):
            list(pool.map(self._begin_first, attempts))
            proxies.slow(DELAY_MS)
            ends = [pool.submit(self._end_first, attempt) for attempt in attempts]
            due = time.monotonic() + DELAY_MS / 1000
            # Give the EndTxn requests time to leave the clients. If a commit or abort call has already
            # failed, its error is raised here.
            for done in wait_for(ends, ON_ITS_WAY_S).done:
                done.result()
            proxies.shortcut()
            list(pool.map(self._begin_second_after, attempts, ends))
            wait_until(
                lambda: time.monotonic() > due, DELAY_MS / 1000 + 1, "the late EndTxn to be due", every=0.2
            )
            list(pool.map(self._wait_arrival, attempts))
            list(pool.map(self._finish, attempts))
        return attempts

    def evidence(self, attempts: Sequence[Attempt]) -> dict[str, Any]:  # noqa: ARG002
        """Return more evidence of attempts, besides the frames of their clients."""
        return {}

    def _new(self, case: Case, slot: int, listener: str) -> Attempt:
        self._made += 1
        parts = [case.library, case.variant, case.cure, "harmless" if case.harmless else "", str(self._made)]
        name = "-".join(part for part in parts if part)
        lanes = range(slot * LANES, slot * LANES + LANES)
        bootstrap = self._stage.cluster.bootstrap(listener)
        names = [name, f"{name}-b"] if case.cure == "standby" else [name]
        producers = [
            self._stage.clients.library(
                n,
                case.library,
                self._stage.topic,
                lanes,
                bootstrap=bootstrap,
                transactional_id=self._transactional_id(n, slot),
                transaction_timeout_ms=self.timeout_ms,
            )
            for n in names
        ]
        attempt = self.attempt_type(case, name, producers)
        if case.variant == "cC":
            place = (self._stage.topic, lanes[EARLY])
            number = attempt.producers[0].number
            attempt.reader = OpenTransactionReader(self._stage, f"{name}-reader", place, number)
        return attempt

    def _transactional_id(self, name: str, slot: int) -> str:  # noqa: ARG002
        """Return the transactional id of a producer of the attempt in this slot."""
        return f"{name}.{self._stage.run}"

    def _attempt_by_tap(self, attempt: Attempt) -> None:
        started = time.monotonic()
        try:
            self._begin_first(attempt)
            with self._stage.arm(self._fault(attempt)) as held:
                self._end_first(attempt)
                if not attempt.case.harmless:
                    self._begin_second(attempt)
                if attempt.case.cure == "standby" or attempt.case.harmless:
                    # The standby producer has another transactional id, so it can begin transaction B before
                    # A has ended. Wait here until the retried frame has completed A. Only then release the
                    # late one.
                    states = len(STATES["commit"])
                    wait_until(lambda: len(self._decided(attempt)) == states, _ANSWER_LIMIT_S, "the end of A")
                held.release()
                held.wait("released", _ANSWER_LIMIT_S)
                attempt.late_answer = wait_until(
                    lambda: held.wait().hits[0].answer or "",
                    _ANSWER_LIMIT_S,
                    f"the broker's answer to the late {self.frame}",
                )
                if attempt.case.harmless:
                    self._begin_second(attempt)
                self._finish(attempt)
        except RefusedCallError as refused:
            attempt.error = str(refused)
        attempt.seconds = time.monotonic() - started

    def _fault(self, attempt: Attempt) -> HoldFrame:
        """Return the fault that makes a frame of the attempt late."""
        ident = attempt.producers[0].transactional_id
        return HoldFrame(api=self.frame, transactional_id=ident, drop_client=True)

    def _begin_first(self, attempt: Attempt) -> None:
        for producer in attempt.producers:
            producer.init()
        attempt.producers[0].begin()
        attempt.producers[0].send(self.first_lane, ENDS[attempt.case.variant][0])

    @staticmethod
    def _end_first(attempt: Attempt) -> None:
        attempt.producers[0].end(ENDS[attempt.case.variant][0])

    @staticmethod
    def _begin_second(attempt: Attempt) -> None:
        """Apply the cure if the case has one, begin transaction B, and send its first records."""
        started = time.monotonic()
        if attempt.case.cure == "re-init":
            attempt.producers[0].init()
        attempt.cure_ms = round((time.monotonic() - started) * 1000, 1)
        attempt.producers[-1].begin()
        attempt.producers[-1].send(EARLY, ENDS[attempt.case.variant][1])

    def _begin_second_after(self, attempt: Attempt, first: Future[None]) -> None:
        try:
            first.result()
            self._begin_second(attempt)
        except RefusedCallError as refused:
            attempt.error = str(refused)

    def _wait_arrival(self, attempt: Attempt) -> None:
        """Wait until the transaction log shows the effect of the late EndTxn.

        The wait also ends at a time limit.
        """
        if attempt.case.cure or attempt.error:
            return
        states = 2 * len(STATES[ENDS[attempt.case.variant][0]])
        limit = time.monotonic() + _ARRIVAL_LIMIT_S
        wait_until(
            lambda: len(self._decided(attempt)) >= states or time.monotonic() > limit,
            _ARRIVAL_LIMIT_S + 1,
            "the late EndTxn to arrive",
            every=0.2,
        )

    @staticmethod
    def _finish(attempt: Attempt) -> None:
        """Send the remaining records of transaction B and end B.

        If the attempt has a reader, the reader reads first, while B is open.
        """
        if attempt.error:
            return
        try:
            if attempt.reader is not None:
                attempt.reader.look()
            attempt.producers[-1].send(LATE, ENDS[attempt.case.variant][1])
            attempt.producers[-1].end(ENDS[attempt.case.variant][1])
        except RefusedCallError as refused:
            attempt.error = str(refused)

    @contextmanager
    def _closing(self, attempts: list[Attempt]) -> Iterator[None]:
        """Close the clients when the `with` block ends, even after an error.

        If the block ended without an error, then store in each attempt the states that the coordinator
        logged.
        """
        with ExitStack() as stack:
            for attempt in attempts:
                for producer in attempt.producers:
                    stack.callback(producer.close)
                if attempt.reader is not None:
                    stack.callback(attempt.reader.close)
            yield
        for attempt in attempts:
            attempt.decided = self._final_states(attempt)

    def _final_states(self, attempt: Attempt) -> list[str]:
        """Return the logged states. Wait until the last transaction is complete, or until a time limit.

        A client gets its answer before the last marker is written and the transaction is complete.
        """
        limit = time.monotonic() + _ANSWER_LIMIT_S

        def is_final() -> bool:
            states = self._decided(attempt)
            return bool(states and states[-1].startswith("Complete")) or time.monotonic() > limit

        wait_until(is_final, _ANSWER_LIMIT_S + 1, f"the last transaction of {attempt.name} to be complete")
        return self._decided(attempt)

    def _decided(self, attempt: Attempt) -> list[str]:
        return self._states(attempt.producers[0].transactional_id)

    def _states(self, ident: str) -> list[str]:
        """Return the states that the coordinator logged for a transactional id."""
        states = [s.what for s in decisions(self._stage.cluster, ident, self._since) if s.what != "Empty"]
        return [state for state, _ in groupby(states)]


def judge_part(
    histories: Iterable[HistoryFile], observations: Sequence[Observation], producers: Collection[int]
) -> Judgement:
    """Check only the records and transactions of these producers against their histories."""
    ledger = fold(histories)
    parts = [_part(observation, producers) for observation in observations]
    parts += [_part(observation_of(reads), producers) for reads in reads_of(ledger)]
    expect = Expect(hold_to="exactly_once", properties=["exactly_once", "atomicity"])
    return judge(Evidence(ledger, parts, expect))


def _part(observation: Observation, producers: Collection[int]) -> Observation:
    wanted = list(producers)
    words = observation.words[np.isin(observation.words["producer"], wanted)]
    runs = observation.runs
    runs = None if runs is None else runs[np.isin(runs["producer"], wanted)]
    meta = msgspec.structs.replace(observation.meta, records=int(words["n"].sum()))
    return Observation(meta, words, observation.origins, runs)
