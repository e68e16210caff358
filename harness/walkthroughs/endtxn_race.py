"""One try of the delayed EndTxn: it is late, its client has asked again, and arrives in the next transaction.

    aC   A aborts, B commits      cA   A commits, B aborts      cC, aA   both end alike

A's records go to the first partition of the try. B's go to the second before the late EndTxn arrives, and
to the third after it. Two ways make it late, and share nothing: the wire tap holds exactly that frame; or two
Toxiproxy proxies stand in series, the inner one slow, and the outer one is put past it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, Literal

from harness.base.waits import wait_until
from harness.clients.scripted.client_libraries import NEVER_RETURNED, RefusedCallError
from harness.clients.scripted.scripted_client import End, Scripted
from harness.evidence.checkers.verdict import Judgement
from harness.faults.frame_faults import HoldFrame
from harness.faults.proxy_chain import ProxyChain
from harness.tap.coordinator_entries import decisions
from harness.walkthroughs.open_transaction_reader import OpenTransactionReader
from harness.walkthroughs.stage import Stage

Variant = Literal["aC", "cA", "cC", "aA"]
Cure = Literal["", "re-init", "standby"]
ENDS: Final[dict[Variant, tuple[End, End]]] = {
    "aC": ("abort", "commit"),
    "cA": ("commit", "abort"),
    "cC": ("commit", "commit"),
    "aA": ("abort", "abort"),
}
NAMED: Final[dict[Variant, set[str]]] = {
    "aC": {"lost", "torn_transaction"},
    "cA": {"aborted_read", "torn_transaction"},
    "cC": {"early_read"},
    "aA": set(),
}
"""What the checkers call each of them."""
BEFORE, EARLY, LATE = 0, 1, 2
LANES: Final = 3
DELAY_MS: Final = 5000
"""For the clients to come back, to ask again and to begin B meanwhile, on a busy machine too."""
ON_ITS_WAY_S: Final = 1.0
_ARRIVES_S: Final = 5.0


@dataclass(frozen=True)
class Case:
    """Which client, which ends, and what is done after the unclear end of A."""

    library: str
    variant: Variant
    cure: Cure = ""


@dataclass
class Try:
    """What came of one try."""

    case: Case
    name: str
    number: int
    actors: list[Scripted]
    reader: OpenTransactionReader | None = None
    late_answer: str = ""
    """The broker's answer to the late EndTxn; empty where nobody has seen it."""
    error: str = ""
    cure_ms: float = 0.0
    decided: list[str] = field(default_factory=list)
    judged: Judgement | None = None
    seconds: float = 0.0

    @property
    def hung(self) -> bool:
        """Whether its client never came back from a call: then nothing was tried."""
        return self.error.startswith(NEVER_RETURNED)

    @property
    def anomalies(self) -> set[str]:
        """What the checkers found."""
        return set(self.judged.names()) if self.judged else set()

    @property
    def split(self) -> bool:
        """Whether the coordinator decided three transactions where the client had made two."""
        first, second = (_DECIDED[end] for end in ENDS[self.case.variant])
        return self.decided == [*first, *first, *second]

    @property
    def found(self) -> bool:
        """Whether the hazard is there: by the transaction log, and as the checkers are to name it."""
        return self.split and self.anomalies == NAMED[self.case.variant]

    @property
    def consistent(self) -> bool:
        """Whether both transactions ended as the client was told, with nothing said against it."""
        first, second = (_DECIDED[end] for end in ENDS[self.case.variant])
        # With a producer that stands by, B is of another transactional id.
        decided = first if self.case.cure == "standby" else [*first, *second]
        return not self.error and not self.anomalies and self.decided == decided


_DECIDED: Final[dict[str, list[str]]] = {
    "abort": ["Ongoing", "PrepareAbort", "CompleteAbort"],
    "commit": ["Ongoing", "PrepareCommit", "CompleteCommit"],
}


class Tries:
    """Makes tries on a stage: each with a producer of its own, and with three partitions to itself."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._since = time.time_ns()
        self._made = 0

    def by_tap(self, cases: Sequence[Case]) -> list[Try]:
        """Side by side: the tap tells them apart by their transactional ids."""
        tries = [self._new(case, slot, "TAPPED") for slot, case in enumerate(cases)]
        with self._closing(tries), ThreadPoolExecutor(len(tries)) as pool:
            list(pool.map(self._held, tries))
        return tries

    def by_proxies(self, cases: Sequence[Case]) -> list[Try]:
        """In one window of latency for all."""
        tries = [self._new(case, slot, "PROXIED") for slot, case in enumerate(cases)]
        with (
            self._closing(tries),
            ProxyChain(self._stage.cluster, journal=self._stage.journal) as series,
            ThreadPoolExecutor(len(tries)) as pool,
        ):
            list(pool.map(self._first, tries))
            series.slow(DELAY_MS)
            ends = [pool.submit(self._end_first, one) for one in tries]
            due = time.monotonic() + DELAY_MS / 1000
            self._still_waiting(ends)
            series.shortcut()
            list(pool.map(self._begin_second, tries, ends))
            wait_until(
                lambda: time.monotonic() > due, DELAY_MS / 1000 + 1, "the late EndTxn to be due", every=0.2
            )
            list(pool.map(self._arrived, tries))
            list(pool.map(self._finish, tries))
        return tries

    def _new(self, case: Case, slot: int, door: str) -> Try:
        self._made += 1
        name = f"{case.library}-{case.variant}{f'-{case.cure}' if case.cure else ''}-{self._made}"
        made = Try(case, name, self._made, [])
        made.actors = [self._actor(made, slot, door, name)]
        if case.cure == "standby":
            made.actors.append(self._actor(made, slot, door, f"{name}-b"))
        if case.variant == "cC":
            place = (self._stage.topic, slot * LANES + EARLY)
            made.reader = OpenTransactionReader(self._stage, f"{name}-reader", place, self._made * 2 - 1)
        return made

    def _actor(self, one: Try, slot: int, door: str, name: str) -> Scripted:
        stage = self._stage
        partitions = range(slot * LANES, slot * LANES + LANES)
        return Scripted(
            run=stage.run,
            name=name,
            number=one.number * 2 - 1 + len(one.actors),
            library=one.case.library,
            bootstrap=stage.cluster.bootstrap(door),
            topic=stage.topic,
            partitions=partitions,
            histories=stage.directory / "history",
        )

    # The parts of a try

    def _held(self, one: Try) -> None:
        """A whole try through the tap."""
        began = time.monotonic()
        try:
            self._first(one)
            ident = one.actors[0].transactional_id
            fault = HoldFrame(api="EndTxn", transactional_id=ident, drop_client=True)
            with self._stage.expect(fault) as held:
                self._end_first(one)
                self._second(one)
                if one.case.cure == "standby":
                    # Elsewhere B waits for A by itself: the late EndTxn must find A over here, too.
                    ended = len(_DECIDED["commit"])
                    wait_until(lambda: len(self._decided(one)) == ended, 10, "A to be over")
                held.release()
                held.wait("released")
                one.late_answer = wait_until(
                    lambda: held.wait().hits[0].answer or "", 10, "the broker to answer the late EndTxn"
                )
                self._finish(one)
        except RefusedCallError as refused:
            one.error = str(refused)
        one.seconds = time.monotonic() - began

    def _first(self, one: Try) -> None:
        for actor in one.actors:
            actor.init()
        one.actors[0].begin()
        one.actors[0].send(BEFORE, ENDS[one.case.variant][0])

    def _end_first(self, one: Try) -> None:
        one.actors[0].end(ENDS[one.case.variant][0])

    def _second(self, one: Try) -> None:
        """What an application does next: begin B, and send; with a cure, after it."""
        started = time.monotonic()
        if one.case.cure == "re-init":
            one.actors[0].init()
        one.cure_ms = round((time.monotonic() - started) * 1000, 1)
        one.actors[-1].begin()
        one.actors[-1].send(EARLY, ENDS[one.case.variant][1])

    def _begin_second(self, one: Try, first: Future[None]) -> None:
        try:
            first.result()
            self._second(one)
        except RefusedCallError as refused:
            one.error = str(refused)

    def _arrived(self, one: Try) -> None:
        """The late EndTxn has been carried out; or it is not, and the transaction log stays as it is."""
        if one.case.cure or one.error:
            return
        first, _ = (_DECIDED[end] for end in ENDS[one.case.variant])
        limit = time.monotonic() + _ARRIVES_S
        wait_until(
            lambda: len(self._decided(one)) >= 2 * len(first) or time.monotonic() > limit,
            _ARRIVES_S + 1,
            "the late EndTxn to arrive",
            every=0.2,
        )

    def _finish(self, one: Try) -> None:
        """Whoever reads meanwhile; then the rest of B, and its end."""
        if one.error:
            return
        try:
            if one.reader is not None:
                one.reader.look()
            one.actors[-1].send(LATE, ENDS[one.case.variant][1])
            one.actors[-1].end(ENDS[one.case.variant][1])
        except RefusedCallError as refused:
            one.error = str(refused)

    @staticmethod
    def _still_waiting(ends: list[Future[None]]) -> None:
        """The ends are on their way, and none of them has been answered yet."""
        done, _ = wait_for(ends, ON_ITS_WAY_S)
        for one in done:
            one.result()

    @contextmanager
    def _closing(self, tries: list[Try]) -> Iterator[None]:
        """Whatever comes of them, the clients are closed; then it is known what was decided."""
        with ExitStack() as stack:
            for one in tries:
                for actor in one.actors:
                    stack.callback(actor.close)
                if one.reader is not None:
                    stack.callback(one.reader.close)
            yield
        for one in tries:
            one.decided = self._decided(one)

    def _decided(self, one: Try) -> list[str]:
        """The states that the coordinator noted, one after the other."""
        ident = one.actors[0].transactional_id
        noted = [s.what for s in decisions(self._stage.cluster, ident, self._since) if s.what != "Empty"]
        return [what for what, _ in groupby(noted)]


def rounds(cases: Sequence[Case], slots: int) -> Iterator[Sequence[Case]]:
    """So many cases at a time."""
    for first in range(0, len(cases), slots):
        yield cases[first : first + slots]
