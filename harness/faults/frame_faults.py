"""Faults of one single frame, through the wire tap, for clients of the TAPPED listener.

    lose_response_frame   the broker executes the request, its answer is lost
    lose_request_frame    the broker never gets it
    hold_frame            kept back until released; delivered never, if healed before
    delay_frame           kept back for a time
    duplicate_frame       sent again on a new connection
    cut_after_frame       delivered, and the client cut off behind it

They bite when the client's frame comes by, not when they are injected. `inject` waits for that, so the
client must run beside it; `expect` does not wait, and its block raises NoBiteError at its end if no frame
was hit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Literal

import msgspec

from harness.base.errors import HealError, NoBiteError, WaitTimeoutError
from harness.base.waits import wait_until
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS, HOST, node_name
from harness.cluster.targets import Target
from harness.evidence.history import HistoryWriter
from harness.faults.injection import Fault, Injection, Measured
from harness.faults.undo import UndoStep
from harness.kafka.connection import answers
from harness.tap.rules import Armed, Hit, Rule, Verb
from harness.tap.tap_client import Tap, ensure_tap

_HINT = "does the client use the TAPPED listener, and do the selectors name what it sends?"


@dataclass(frozen=True, kw_only=True)
class _FrameFault:
    """What all frame faults share: the selectors, and a rule that is armed in the tap."""

    capability: ClassVar[Capability] = Capability.LINK
    moves_roles: ClassVar[bool] = False
    verb: ClassVar[Verb]
    bitten_when: ClassVar[tuple[str, ...]]
    api: str
    nth: int = 1
    times: int | None = 1
    client_id: str | None = None
    transactional_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    within_ms: int = 10_000

    def __post_init__(self) -> None:
        """Refuse at once what no frame can ever match."""
        self.rule((), "unarmed").check()

    def rule(self, brokers: tuple[int, ...], ident: str) -> Rule:
        """The rule that does it."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in _SELECTORS}
        return Rule(id=ident, verb=self.verb, brokers=brokers, **fields, **self.special())

    def special(self) -> dict[str, Any]:
        """What this verb has of its own."""
        return {}

    def undo_steps(self, names: list[str], ident: str) -> list[UndoStep]:  # noqa: ARG002
        """Disarm the rule; what it holds is lost."""
        return [{"do": "disarm_frame", "rule": ident}]

    def before(self, cluster: Cluster, names: list[str], memory: Measured) -> None:
        """The tap serves the brokers, and the rule is one that a frame can match."""
        brokers = tuple(broker for broker in BROKER_IDS if node_name(broker) in names)
        if not brokers:
            raise NoBiteError(f"{', '.join(names)} has no client link", "a frame fault needs a broker")
        ensure_tap(cluster)
        memory["brokers"] = brokers

    def apply(self, cluster: Cluster, names: list[str], memory: Measured, ident: str) -> None:  # noqa: ARG002
        """Arm the rule."""
        memory["rule"] = ident
        ensure_tap(cluster).arm(self.rule(memory["brokers"], ident))

    def bite(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """Wait until a frame was hit and the tap has done to it what was asked."""
        tap = ensure_tap(cluster)
        seen: list[Armed | None] = [None]

        def bitten() -> Hit | None:
            seen[0] = tap.armed(memory["rule"])
            hits = seen[0].hits if seen[0] else []
            return next((hit for hit in hits if hit.did in self.bitten_when), None)

        try:
            wait_until(bitten, self.within_ms / 1000, f"{self.verb} of {self.api}", hint=_HINT)
        except WaitTimeoutError as error:
            matched = seen[0].matched if seen[0] else 0
            raise NoBiteError(f"{error.message} ({matched} frames matched)", _HINT) from error
        assert seen[0] is not None
        hits = seen[0].hits
        told = [f"{self.api} of {hit.client_id} at broker {hit.broker} {hit.did}" for hit in hits]
        return {"told": told, "matched": seen[0].matched, "hits": [msgspec.to_builtins(hit) for hit in hits]}

    def health(self, cluster: Cluster, names: list[str], memory: Measured) -> Measured:  # noqa: ARG002
        """The tap knows the rule no more, and every broker that lives answers through it."""
        tap = ensure_tap(cluster)
        if tap.armed(memory.get("rule", "")):
            raise HealError(f"{self.verb} of {self.api} is still armed in the tap", "`eos heal` disarms it")
        through = {}
        for broker in memory.get("brokers", ()):
            if answers(HOST, cluster.ports.direct(broker)):
                start = time.monotonic()
                if not answers(HOST, cluster.ports.tapped(broker), 5.0):
                    raise HealError(f"broker {broker} does not answer through the tap", "see `eos status`")
                through[str(broker)] = round((time.monotonic() - start) * 1000, 1)
        return {"through_tap_ms": through}


_SELECTORS = ("api", "nth", "times", "client_id", "transactional_id", "topic", "partition")


@dataclass(frozen=True, kw_only=True)
class LoseResponseFrame(_FrameFault):
    """Let the broker execute a request and lose its answer, then cut the connection or carry nothing more."""

    name: ClassVar[str] = "lose_response_frame"
    verb: ClassVar[Verb] = "lose_response"
    bitten_when: ClassVar[tuple[str, ...]] = ("lost",)
    then: Literal["cut", "silence"] = "cut"

    def special(self) -> dict[str, Any]:
        """How the connection ends."""
        return {"then": self.then}


@dataclass(frozen=True, kw_only=True)
class LoseRequestFrame(_FrameFault):
    """Lose a request before the broker gets it, then cut the connection or carry nothing more."""

    name: ClassVar[str] = "lose_request_frame"
    verb: ClassVar[Verb] = "lose_request"
    bitten_when: ClassVar[tuple[str, ...]] = ("lost",)
    then: Literal["cut", "silence"] = "cut"

    def special(self) -> dict[str, Any]:
        """How the connection ends."""
        return {"then": self.then}


@dataclass(frozen=True, kw_only=True)
class HoldFrame(_FrameFault):
    """Keep one frame back until it is released: by hand, or when a later request `until` has been answered.

    With `drop_client` the client's connection is cut meanwhile: it retries on a new one, and the frame that
    is held arrives behind its own retry. Nobody released it when the fault is healed: it is lost.
    """

    name: ClassVar[str] = "hold_frame"
    verb: ClassVar[Verb] = "hold"
    bitten_when: ClassVar[tuple[str, ...]] = ("held", "released")
    side: Literal["request", "response"] = "request"
    drop_client: bool = False
    until: str | None = None

    def special(self) -> dict[str, Any]:
        """What is held, until when, and whether the client stays connected."""
        return {"side": self.side, "drop_client": self.drop_client, "until": self.until}


@dataclass(frozen=True, kw_only=True)
class DelayFrame(_FrameFault):
    """Keep matching frames back for `delay_ms`; everything behind them on their connection waits too."""

    name: ClassVar[str] = "delay_frame"
    verb: ClassVar[Verb] = "delay"
    bitten_when: ClassVar[tuple[str, ...]] = ("released",)
    delay_ms: int
    side: Literal["request", "response"] = "request"

    def special(self) -> dict[str, Any]:
        """What is delayed, and for how long."""
        return {"side": self.side, "seconds": self.delay_ms / 1000}


@dataclass(frozen=True, kw_only=True)
class DuplicateFrame(_FrameFault):
    """Send a request again on a new connection: at once, `delay_ms` later, or when `until` was answered."""

    name: ClassVar[str] = "duplicate_frame"
    verb: ClassVar[Verb] = "duplicate"
    bitten_when: ClassVar[tuple[str, ...]] = ("delivered",)
    side: Literal["request", "response"] = "response"
    delay_ms: int | None = None
    until: str | None = None

    def special(self) -> dict[str, Any]:
        """After which of the two the copy is made, and when it is sent."""
        seconds = None if self.delay_ms is None else self.delay_ms / 1000
        return {"side": self.side, "seconds": seconds, "until": self.until}


@dataclass(frozen=True, kw_only=True)
class CutAfterFrame(_FrameFault):
    """Deliver a request, or its answer, and cut the client's connection right behind it."""

    name: ClassVar[str] = "cut_after_frame"
    verb: ClassVar[Verb] = "cut_after"
    bitten_when: ClassVar[tuple[str, ...]] = ("cut",)
    side: Literal["request", "response"] = "request"

    def special(self) -> dict[str, Any]:
        """Behind which of the two."""
        return {"side": self.side}


class ArmedFrameFault(Injection):
    """A frame fault that is armed and waits for its frame; the bite is measured when the block ends."""

    def _measure(self, journal: HistoryWriter, started: float) -> None:
        """Nothing yet: the frame has still to come."""

    @property
    def tap(self) -> Tap:
        """The tap that it is armed in."""
        return ensure_tap(self.cluster)

    def wait(self, did: str | None = None, limit: float = 10.0) -> Armed:
        """Wait until a frame was hit, or until `did` has become of it."""
        return self.tap.wait_hit(self._memory["rule"], did, limit)

    def release(self) -> int:
        """Send what is held; return how many frames that were."""
        return self.tap.release(self._memory["rule"])

    def measure(self) -> Measured:
        """Measure the bite now, or raise NoBiteError; the end of the block does it if nobody did."""
        assert self._journal is not None
        if not self.bite:
            try:
                super()._measure(self._journal, time.monotonic())
            except NoBiteError as error:
                assert self._ident is not None
                self._journal.fault_no_bite(self._ident, error.message)
                raise
        return self.bite

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._ident is not None:
                self.measure()
        finally:
            self.heal()


def arm(cluster: Cluster, fault: Fault, target: str | Target = "all", **options: Any) -> ArmedFrameFault:
    """A frame fault for `with`: armed inside the block, where the client under test runs."""
    return ArmedFrameFault(cluster, fault, target, **options)
