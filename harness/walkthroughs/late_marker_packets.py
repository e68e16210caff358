"""Walkthrough of a late marker without any proxy: the packets of one connection between two brokers are lost.

A coordinator has one connection to each leader for its markers. The walkthrough drops the packets of this
connection, in the direction to the leader, before transaction A ends, as a firewall does that has forgotten
the connection. After `request.timeout.ms` (30 s by default) the coordinator closes the connection and sends
the marker again on a new one, which works. A is complete, and B begins. The kernel still has the packets of
the closed connection, and sends them again and again. When packets pass again, the first marker arrives.

Every client uses the listener DIRECT, and the brokers reach each other without a tap. It needs root and
iptables.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from harness.base.waits import wait_until
from harness.clients.scripted.client_libraries import RefusedCallError
from harness.clients.scripted.library_producer import End
from harness.cluster import broker_flows, packet_filter
from harness.cluster.layout import BROKER_IDS
from harness.cluster.packet_filter import Flow
from harness.evidence.step_report import WalkthroughStep
from harness.faults.flow_faults import API_KEYS, LoseFlow
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from harness.walkthroughs.delayed_endtxn import SLOTS, DelayedEnds
from harness.walkthroughs.endtxn_race import EARLY, ENDS, LANES, STATES, Attempt, Case, Cure, Variant
from harness.walkthroughs.late_marker import MarkerAttempt, MarkerRace
from harness.walkthroughs.late_request import CONFLUENT, SUFFIXES
from harness.walkthroughs.stage import Stage, Walkthrough

TITLES: Final = (
    "The packets of one connection are lost: the marker of A arrives in B",
    "The cure: a new producer with the same transactional id before every transaction",
    "The cure: abort B if its first send is slow, and continue with a new producer",
)
HAZARDS: Final = [Case(CONFLUENT, variant) for variant in ("aC", "cA", "cC")]
CURES: Final[tuple[Cure, ...]] = ("re-init", "slow-send")
CURED: Final[tuple[Variant, ...]] = ("aC", "cA")
OUTAGE_S: Final = 40.0
"""How long packets are lost. It is longer than the brokers' request.timeout.ms, 30 s by default."""
SLOW_S: Final = 20.0
"""A first send that takes longer is slow. A broker sends a marker again after 30 s."""
_SEND_LIMIT_S: Final = 90.0
_ARRIVAL_LIMIT_S: Final = 120.0
"""Time limit for the late marker. The kernel doubles its time between two tries up to two minutes."""
_MARKER_LIMIT_S: Final = 5.0
_COUNT: Final = len(BROKER_IDS)
PLACEMENT: Final[Sequence[Sequence[int]]] = [
    [BROKER_IDS[(slot + lane - EARLY + k) % _COUNT] for k in range(_COUNT)]
    for slot in range(SLOTS)
    for lane in range(LANES)
]
"""Two slots differ in their coordinator or in the leader of lane EARLY, so in the connection for markers."""


@dataclass
class PacketAttempt(MarkerAttempt):
    """One attempt at the late marker by lost packets, with its times in seconds since the end of A."""

    slot: int = 0
    flow: Flow | None = None
    lost_packets: int = 0
    first_send_s: float = 0.0
    healed_s: float = 0.0
    arrived_s: float = 0.0

    @property
    def consistent(self) -> bool:
        """Whether the transactions ended as the client reported, and no search finds any damage."""
        first, second = (STATES[end] for end in ENDS[self.case.variant])
        given_up = STATES["abort"] if self.case.cure == "slow-send" else []
        wanted = [*first, *given_up, *second]
        return not (self.error or self.anomalies or self.damage) and self.decided == wanted


class PacketRace(MarkerRace):
    """Runner of attempts. The attempts of one round use different connections between brokers."""

    attempt_type = PacketAttempt
    timeout_ms = 120_000

    def by_packets(self, cases: Sequence[Case]) -> list[Attempt]:
        """Run one attempt per case, all in parallel."""
        attempts = [self._new(case, slot, "DIRECT") for slot, case in enumerate(cases)]
        for slot, attempt in enumerate(attempts):
            assert isinstance(attempt, PacketAttempt)
            attempt.slot = slot
        with self._closing(attempts), ThreadPoolExecutor(len(attempts)) as pool:
            list(pool.map(self._attempt_by_packets, attempts))
        return attempts

    def evidence(self, attempts: Sequence[Attempt]) -> dict[str, Any]:
        """Return the lost packets and the times of each attempt."""
        return {
            "packets": [
                {
                    "name": attempt.name,
                    "coordinator": _coordinator(attempt.slot),
                    "leader": _leader(attempt.slot),
                    "ports": attempt.flow and attempt.flow[:2],
                    "lost_packets": attempt.lost_packets,
                    "first_send_s": attempt.first_send_s,
                    "healed_s": attempt.healed_s,
                    "arrived_s": attempt.arrived_s,
                }
                for attempt in attempts
                if isinstance(attempt, PacketAttempt)
            ]
        }

    def _transactional_id(self, name: str, slot: int) -> str:
        """Return an id with the coordinator of this slot."""
        ids = [f"{name}{suffix}.{self._stage.run}" for suffix in ("", *SUFFIXES)]
        return next(i for i in ids if self._stage.cluster.txn_coordinator(i) == _coordinator(slot))

    def _attempt_by_packets(self, attempt: Attempt) -> None:
        assert isinstance(attempt, PacketAttempt)
        producer = attempt.producers[0]
        first, second = ENDS[attempt.case.variant]
        attempt.flow = flow = self._find_flow(attempt)
        fault = LoseFlow(source=flow.source, destination=flow.destination, address=flow.address)
        try:
            self._begin_first(attempt)
            with ThreadPoolExecutor(1) as pool:
                with self._stage.arm_injection(fault, f"kafka-{_leader(attempt.slot)}") as lost:
                    started = time.monotonic()
                    producer.end(first)
                    begun = pool.submit(self._begin_with_cure, attempt, second, started)
                    wait_until(
                        lambda: time.monotonic() > started + OUTAGE_S,
                        OUTAGE_S + 1,
                        "the end of the outage",
                        every=0.1,
                    )
                    attempt.lost_packets = lost.measure()["lost_packets"]
                attempt.healed_s = round(time.monotonic() - started, 1)
                begun.result()
            end = self._end(attempt)
            wait_until(
                lambda: not packet_filter.is_pending(flow),
                _ARRIVAL_LIMIT_S,
                "the lost packets to arrive",
                every=0.1,
            )
            attempt.arrived_s = round(time.monotonic() - started, 1)
            if attempt.case.cure:
                # The leader handles this request after the late one.
                producer.send(EARLY, second)
            else:
                self._wait_marker(attempt, end)
            self._finish(attempt)
        except RefusedCallError as refused:
            attempt.error = str(refused)

    def _begin_with_cure(self, attempt: PacketAttempt, outcome: End, started: float) -> None:
        """Begin transaction B, and send its first records. The send waits until A is complete."""
        producer, cure = attempt.producers[0], attempt.case.cure
        if cure == "re-init":
            # A call of init_transactions would fail after 30 s.
            self._wait_ended(producer.transactional_id)
            producer.init()
        begun = time.monotonic()
        self._begin_slowly(attempt, outcome)
        attempt.first_send_s = round(time.monotonic() - started, 1)
        if cure == "slow-send" and time.monotonic() - begun > SLOW_S:
            producer.end("abort")
            producer.init()
            self._begin_slowly(attempt, outcome)

    def _find_flow(self, attempt: PacketAttempt) -> Flow:
        """Return the connection on which the attempt's coordinator sends its markers to the leader.

        Another producer makes transactions, until a marker was seen on a connection.
        """
        cluster, producer = self._stage.cluster, attempt.producers[0]
        name = f"{attempt.name}-before"
        before = self._stage.clients.library(
            name,
            CONFLUENT,
            self._stage.topic,
            producer.partitions,
            bootstrap=cluster.bootstrap("DIRECT"),
            transactional_id=self._transactional_id(name, attempt.slot),
        )
        before.init()
        # The coordinator opens the connection with its first marker.
        before.whole("commit", EARLY)
        self._wait_ended(before.transactional_id)
        flows = broker_flows.open_flows(cluster, _coordinator(attempt.slot), _leader(attempt.slot))
        with ThreadPoolExecutor(1) as pool:
            seen = pool.submit(packet_filter.flow_with, API_KEYS["WriteTxnMarkers"], _SEND_LIMIT_S, flows)
            while not seen.done():
                before.whole("commit", EARLY)
        flow = seen.result()
        assert flow is not None, f"no marker passed on a connection to broker {_leader(attempt.slot)}"
        # The connection carries one request at a time. Wait until the last one has been answered.
        self._wait_ended(before.transactional_id)
        before.close()
        return flow

    def _wait_ended(self, ident: str) -> None:
        """Wait until the last transaction of a transactional id is complete."""
        wait_until(
            lambda: self._states(ident)[-1].startswith("Complete"),
            _SEND_LIMIT_S,
            f"the last transaction of {ident} to be complete",
            every=0.2,
        )

    def _end(self, attempt: PacketAttempt) -> int:
        ends = self._stage.cluster.end_offsets(self._stage.topic)
        return ends[attempt.producers[0].partitions[EARLY]].high_watermark

    def _wait_marker(self, attempt: PacketAttempt, end: int) -> None:
        """Wait until a marker follows the records of B. The wait also ends at a time limit."""
        limit = time.monotonic() + _MARKER_LIMIT_S
        wait_until(
            lambda: self._end(attempt) > end or time.monotonic() > limit,
            _MARKER_LIMIT_S + 1,
            "the late marker to be written",
            every=0.1,
        )

    @staticmethod
    def _begin_slowly(attempt: Attempt, outcome: End) -> None:
        producer = attempt.producers[0]
        producer.begin()
        producer.submit(EARLY, outcome)
        producer.flush(_SEND_LIMIT_S)


def _coordinator(slot: int) -> int:
    return BROKER_IDS[slot // _COUNT]


def _leader(slot: int) -> int:
    return BROKER_IDS[slot % _COUNT]


class PacketSteps(DelayedEnds):
    """Runner of the steps. The attempts of all steps run in parallel, because one takes a minute."""

    def __init__(self, stage: Stage) -> None:
        self._race = PacketRace(stage)
        super().__init__(stage, (), self._race)

    def make_attempts(self) -> list[Attempt]:
        """Make as many attempts of every case as the scenario requires."""
        self.stage.cluster.restore_leaders(TRANSACTION_TOPIC)  # every broker must be a coordinator
        cures = [Case(CONFLUENT, variant, cure) for cure in CURES for variant in CURED]
        return self._attempt(self._race.by_packets, [*HAZARDS, *cures])

    def show_cured(self, step: WalkthroughStep, attempts: list[Attempt], claim: str) -> WalkthroughStep:
        """Add the results of the attempts with a cure to the step."""
        consistent = sum(a.consistent for a in attempts)
        step.prove(claim, f"{consistent} of {len(attempts)}", consistent == len(attempts))
        self.show(step, attempts)
        return step


def _steps(stage: Stage) -> Iterator[WalkthroughStep]:
    race, steps = PacketSteps(stage), WalkthroughStep.numbered(TITLES)
    attempts = race.make_attempts()
    of = {cure: [a for a in attempts if a.case.cure == cure] for cure in ("", *CURES)}
    yield race.show_hazard(steps[0], of[""])
    claim = "both transactions end as their client reports"
    for step, cure in zip(steps[1:], CURES, strict=True):
        yield race.show_cured(step, of[cure], claim)


WALKTHROUGH: Final = Walkthrough(
    titles=TITLES, placement=PLACEMENT, drawn=(), steps=_steps, drops_packets=True
)
