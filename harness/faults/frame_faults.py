"""Faults of single Kafka frames, made by the wire tap.

They affect clients that connect through the wire tap (listener TAPPED). With `listener = "INTERNAL"`, they
affect the frames between brokers, if the cluster was started with a tap there:

    lose_response_frame   the broker executes the request, but its answer is lost
    lose_request_frame    the broker never receives the request
    hold_frame            the frame is held until it is released; it is lost if the fault is healed first
    delay_frame           the frame is held for a time
    duplicate_frame       the request is sent again on a new connection
    cut_after_frame       the frame is delivered, then the client's connection is cut

A frame fault bites when a matching frame reaches the tap, not at the injection. `inject` waits for that
frame, so the client must run in another thread or process. In a run with an application, it waits longer by
the time that the application may spend in a rebalance: after an instance was killed, no instance of its group
processes anything until the coordinator has removed the dead member. `arm` does not wait: it returns a
context manager. At the end of the `with` block, it raises NoBiteError if no frame was hit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import msgspec

from harness.base.errors import HealError, NoBiteError, WaitTimeoutError
from harness.base.waits import wait_until
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.cluster.targets import Target
from harness.faults.app_control import GIVEN_UP_S
from harness.faults.injection import ArmedInjection, Fault, FaultContext, Measured, Positive
from harness.faults.undo import UndoStep, undo_verb
from harness.tap.rules import Armed, Hit, Rule, Verb
from harness.tap.tap_client import Tap, ensure_tap

_HINT = "does the client use the TAPPED listener, and do the selectors match what it sends?"


@undo_verb
def disarm_frame(cluster: Cluster, rule: str, listener: str = "TAPPED") -> None:
    """Disarm a rule of the wire tap of a listener.

    If the tap has died, its rules and held frames are lost. A new tap is then started.
    """
    ensure_tap(cluster, BrokerListener(listener)).disarm(rule)


@dataclass(frozen=True, kw_only=True)
class FrameFault(Fault[None]):
    """A fault that arms one rule in the wire tap.

    The fields of the fault select the frames that the rule hits.
    """

    capability: ClassVar[Capability] = Capability.LINK
    verb: ClassVar[Verb]
    bitten_when: ClassVar[tuple[str, ...]]
    api: str
    nth: int = 1
    times: int | None = 1
    client_id: str | None = None
    transactional_id: str | None = None
    producer_id: int | None = None
    topic: str | None = None
    partition: int | None = None
    within_ms: Positive = 10_000
    listener: Literal["TAPPED", "INTERNAL"] = "TAPPED"

    def tap(self, cluster: Cluster) -> Tap:
        """Return the tap that carries out the fault. Start it if it does not run."""
        return ensure_tap(cluster, BrokerListener(self.listener))

    def __post_init__(self) -> None:
        """Raise UsageError if no frame can match the fields that select frames."""
        self.rule((), "unarmed").check()

    def rule(self, brokers: tuple[int, ...], mark: str) -> Rule:
        """Return the rule that the tap is to carry out. `mark` is the id of the rule."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in _SELECTORS}
        return Rule(id=mark, verb=self.verb, brokers=brokers, **fields, **self.special())

    def special(self) -> dict[str, Any]:
        """Return the fields that this fault class adds to the rule, such as `then` or `seconds`."""
        return {}

    def undo_steps(self, context: FaultContext[None]) -> list[UndoStep]:
        return [disarm_frame.step(rule=context.mark, listener=self.listener)]

    def before(self, context: FaultContext[None]) -> None:
        """Check that the target contains a broker, and start the tap if it does not run."""
        if not context.brokers:
            nodes = ", ".join(context.nodes)
            raise NoBiteError(f"{nodes} has no client link", "a frame fault needs a broker")
        self.tap(context.cluster)

    def apply(self, context: FaultContext[None]) -> None:
        self.tap(context.cluster).arm(self.rule(tuple(context.brokers), context.mark))

    def bite(self, context: FaultContext[None]) -> Measured:
        """Wait until the rule has hit a frame and the tap has carried out the action of the rule."""
        tap = self.tap(context.cluster)
        armed: Armed | None = None

        def bitten() -> Hit | None:
            nonlocal armed
            armed = tap.armed(context.mark)
            hits = armed.hits if armed else []
            return next((hit for hit in hits if hit.did in self.bitten_when), None)

        try:
            wait_until(bitten, self._limit_s(context), f"{self.verb} of {self.api}", hint=_HINT)
        except WaitTimeoutError as error:
            matched = armed.matched if armed else 0
            raise NoBiteError(f"{error.message} ({matched} frames matched)", _HINT) from error
        assert armed is not None
        lines = [f"{self.api} of {hit.client_id} at broker {hit.broker} {hit.did}" for hit in armed.hits]
        return {
            "frames": lines,
            "matched": armed.matched,
            "hits": [msgspec.to_builtins(hit) for hit in armed.hits],
        }

    def _limit_s(self, context: FaultContext[None]) -> float:
        """Return the time limit for a matching frame, with that of a rebalance of the application."""
        session_ms = context.app.session_timeout_ms() if context.app is not None else 0
        return self.within_ms / 1000 + (session_ms / 1000 + GIVEN_UP_S if session_ms else 0)

    def health(self, context: FaultContext[None]) -> Measured:
        """Check that the rule is no longer armed, and that every running broker answers through the tap."""
        cluster = context.cluster
        if self.tap(cluster).armed(context.mark):
            raise HealError(f"{self.verb} of {self.api} is still armed in the tap", "`eos heal` disarms it")
        through = {}
        if self.listener == "INTERNAL":
            return {}  # the health of the cluster covers the copies between brokers
        for broker in context.brokers:
            if cluster.answers(broker):
                start = time.monotonic()
                if not cluster.answers(broker, 5.0, BrokerListener.TAPPED):
                    raise HealError(f"broker {broker} does not answer through the tap", "see `eos status`")
                through[str(broker)] = round((time.monotonic() - start) * 1000, 1)
        return {"through_tap_ms": through}


_SELECTORS = ("api", "nth", "times", "client_id", "transactional_id", "producer_id", "topic", "partition")


@dataclass(frozen=True, kw_only=True)
class LoseResponseFrame(FrameFault):
    """Fault that lets the broker execute a request and drops the broker's answer.

    With `then = "cut"`, the tap then cuts the connection. With `then = "silence"`, the connection stays open,
    but carries no more bytes.
    """

    name: ClassVar[str] = "lose_response_frame"
    verb: ClassVar[Verb] = "lose_response"
    bitten_when: ClassVar[tuple[str, ...]] = ("lost",)
    then: Literal["cut", "silence"] = "cut"

    def special(self) -> dict[str, Any]:
        return {"then": self.then}


@dataclass(frozen=True, kw_only=True)
class LoseRequestFrame(FrameFault):
    """Fault that drops a request before the broker receives it.

    With `then = "cut"`, the tap then cuts the connection. With `then = "silence"`, the connection stays open,
    but carries no more bytes.
    """

    name: ClassVar[str] = "lose_request_frame"
    verb: ClassVar[Verb] = "lose_request"
    bitten_when: ClassVar[tuple[str, ...]] = ("lost",)
    then: Literal["cut", "silence"] = "cut"

    def special(self) -> dict[str, Any]:
        return {"then": self.then}


@dataclass(frozen=True, kw_only=True)
class HoldFrame(FrameFault):
    """Fault that holds a frame until a later request has been answered, or until a walkthrough releases it.

    `until` is the API name of that later request. With `drop_client`, the tap cuts the client's connection
    while it holds the frame. The client then retries on a new connection, and the held frame arrives after
    the retry. If the fault is healed while a frame is held, the frame is lost.
    """

    name: ClassVar[str] = "hold_frame"
    verb: ClassVar[Verb] = "hold"
    bitten_when: ClassVar[tuple[str, ...]] = ("held", "released")
    side: Literal["request", "response"] = "request"
    drop_client: bool = False
    until: str | None = None

    def special(self) -> dict[str, Any]:
        return {"side": self.side, "drop_client": self.drop_client, "until": self.until}


@dataclass(frozen=True, kw_only=True)
class DelayFrame(FrameFault):
    """Fault that holds each matching frame for `delay_ms`.

    All later bytes of the same connection wait until the held frame has been sent.
    """

    name: ClassVar[str] = "delay_frame"
    verb: ClassVar[Verb] = "delay"
    bitten_when: ClassVar[tuple[str, ...]] = ("released",)
    delay_ms: Positive
    side: Literal["request", "response"] = "request"

    def special(self) -> dict[str, Any]:
        return {"side": self.side, "seconds": self.delay_ms / 1000}


@dataclass(frozen=True, kw_only=True)
class DuplicateFrame(FrameFault):
    """Fault that sends a request a second time, on a new connection.

    The second request is sent at once, or after `delay_ms`, or after a later request of the client was
    answered. `until` is the API name of that later request.
    """

    name: ClassVar[str] = "duplicate_frame"
    verb: ClassVar[Verb] = "duplicate"
    bitten_when: ClassVar[tuple[str, ...]] = ("delivered",)
    side: Literal["request", "response"] = "response"
    delay_ms: int | None = None
    until: str | None = None

    def special(self) -> dict[str, Any]:
        seconds = None if self.delay_ms is None else self.delay_ms / 1000
        return {"side": self.side, "seconds": seconds, "until": self.until}


@dataclass(frozen=True, kw_only=True)
class CutAfterFrame(FrameFault):
    """Fault that delivers one frame, a request or its answer, and then cuts the client's connection."""

    name: ClassVar[str] = "cut_after_frame"
    verb: ClassVar[Verb] = "cut_after"
    bitten_when: ClassVar[tuple[str, ...]] = ("cut",)
    side: Literal["request", "response"] = "request"

    def special(self) -> dict[str, Any]:
        return {"side": self.side}


class ArmedFrameFault(ArmedInjection):
    """Injection of a frame fault, as a context manager that does not wait for the bite."""

    @property
    def tap(self) -> Tap:
        assert isinstance(self.fault, FrameFault)
        return self.fault.tap(self.cluster)

    def wait(self, did: str | None = None, limit: float = 10.0) -> Armed:
        """Wait until the rule of this fault has hit a frame.

        If `did` is given, also wait until the tap reports this outcome, such as `released`, for the last
        frame that was hit.
        """
        return self.tap.wait_hit(self.context.mark, did, limit)

    def release(self) -> int:
        """Let the tap send the held frames. Return the number of these frames."""
        return self.tap.release(self.context.mark)


def arm(cluster: Cluster, fault: Fault[Any], target: str | Target = "all", **options: Any) -> ArmedFrameFault:
    """Return the injection of a frame fault as a context manager.

    The client under test runs inside the `with` block.
    """
    return ArmedFrameFault(cluster, fault, target, **options)
