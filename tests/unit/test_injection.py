"""An injection writes its intent first, raises an error if it has no effect, and always heals."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from harness.base.errors import CapabilityError, HealError, NoBiteError, UsageError
from harness.base.events import Event, Healed, Injected, NoBite
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.cluster.state_directory import State
from harness.evidence.history import FaultLine, history_files
from harness.faults.client_faults import CrashClient
from harness.faults.injection import ArmedInjection, Fault, FaultContext, Measured, inject
from harness.faults.intents import unhealed
from harness.faults.node_faults import Kill
from harness.faults.undo import UndoStep, undo_verb
from tests.unit.external_stand_in import Observed


@undo_verb
def turn_light_on(cluster: Cluster, node: str) -> None:
    cluster.dark.discard(node)  # type: ignore[attr-defined]


@dataclass
class LightsBefore:
    on: list[str]


@dataclass(frozen=True)
class Darkness(Fault[LightsBefore]):
    """A fault that turns off the light of each node; `breaks` names the method of the fault that fails."""

    name: ClassVar[str] = "darkness"
    capability: ClassVar[Capability] = Capability.PAUSE
    breaks: str = ""

    def before(self, context: FaultContext[LightsBefore]) -> LightsBefore:
        if self.breaks == "before":
            raise NoBiteError("it is dark already", "turn the light on")
        return LightsBefore([node for node in context.nodes if node not in dark(context)])

    def undo_steps(self, context: FaultContext[LightsBefore]) -> list[UndoStep]:
        return [turn_light_on.step(node=node) for node in context.state.on if self.breaks != "undo"]

    def apply(self, context: FaultContext[LightsBefore]) -> None:
        assert unhealed(context.cluster.state), "the intent is on disk before the fault is injected"
        if self.breaks != "apply":
            dark(context).update(context.nodes)
        if self.breaks == "halfway":
            raise KeyError("a bug")
        if self.breaks == "refused":
            raise UsageError("the switch refuses it", "look at the switch")

    def bite(self, context: FaultContext[LightsBefore]) -> Measured:
        if self.breaks == "unreachable":
            raise ConnectionRefusedError("no answer")
        if not dark(context).issuperset(context.nodes):
            raise NoBiteError("the light is still on", "look at the switch")
        return {"dark": sorted(dark(context))}

    def health(self, context: FaultContext[LightsBefore]) -> Measured:
        if left := dark(context):
            raise HealError(f"{sorted(left)} is still dark", "look at the switch")
        return {"lit": context.state.on}


def dark(context: FaultContext[Any]) -> set[str]:
    found: set[str] = context.cluster.dark  # type: ignore[attr-defined]
    return found


@pytest.fixture
def stand_in(tmp_path: Path) -> Any:
    return SimpleNamespace(
        state=State(tmp_path),
        dark=set(),
        broker_ids=(1, 2, 3),
        name_of="kafka-{}".format,
        require=lambda _: None,
    )


def stages(stand_in: Any) -> list[str]:
    lines = [line for file in history_files(stand_in.state.intents) for _, line in file.read()]
    return [line.stage for line in lines if isinstance(line, FaultLine)]


def test_a_fault_is_injected_measured_and_healed(stand_in: Any) -> None:
    with inject(stand_in, Darkness(), "kafka-2") as injection:
        assert injection.bite == {"dark": ["kafka-2"]}
        assert injection.context.brokers == [2]
        (intent,) = unhealed(stand_in.state)
        assert intent.undo == {"steps": [{"do": "turn_light_on", "node": "kafka-2"}]}
    assert injection.health == {"lit": ["kafka-2"]}
    assert stages(stand_in) == ["intent", "bite", "healed"]
    injection.heal()
    assert stages(stand_in) == ["intent", "bite", "healed"]


@pytest.mark.parametrize(
    ("breaks", "error", "written"),
    [
        ("apply", "the light is still on", ["intent", "no_bite", "healed"]),
        ("unreachable", "the bite of darkness on kafka-1", ["intent", "no_bite", "healed"]),
    ],
)
def test_a_fault_without_a_measured_bite_is_an_error_and_healed(
    stand_in: Any, breaks: str, error: str, written: list[str]
) -> None:
    with pytest.raises(NoBiteError, match=error), inject(stand_in, Darkness(breaks), "kafka-1"):
        pytest.fail("a fault without effect must not reach the block")
    assert stages(stand_in) == written
    assert stand_in.dark == set()


def test_an_injection_emits_its_bite_and_its_healing(stand_in: Any) -> None:
    events: list[Event] = []
    with inject(stand_in, Darkness(), "kafka-2", emit=events.append) as injection:
        (injected,) = events
    assert isinstance(injected, Injected)
    assert (injected.fault, injected.names, injected.bite) == ("darkness", ["kafka-2"], injection.bite)
    _, healed = events
    assert isinstance(healed, Healed)
    assert (healed.fault, healed.names, healed.health) == ("darkness", ["kafka-2"], injection.health)


def test_an_injection_without_a_bite_emits_no_bite_alone(stand_in: Any) -> None:
    events: list[Event] = []
    with pytest.raises(NoBiteError):
        inject(stand_in, Darkness("apply"), "kafka-2", emit=events.append).start()
    assert events == [NoBite(fault="darkness", reason="the light is still on")]


def test_an_armed_injection_emits_when_it_is_measured(stand_in: Any) -> None:
    events: list[Event] = []
    with ArmedInjection(stand_in, Darkness(), "kafka-2", emit=events.append):
        assert events == []
    assert [type(event) for event in events] == [Injected, Healed]
    with (
        pytest.raises(NoBiteError),
        ArmedInjection(stand_in, Darkness("apply"), "kafka-1", emit=events.append),
    ):
        pass
    assert [type(event) for event in events[2:]] == [NoBite]


def test_a_bug_in_a_fault_leaves_nothing_injected(stand_in: Any) -> None:
    with pytest.raises(KeyError):
        inject(stand_in, Darkness("halfway"), "all").start()
    assert stand_in.dark == set()
    assert stages(stand_in) == ["intent", "healed"]


def test_the_reason_of_a_fault_that_cannot_be_applied_is_recorded(stand_in: Any) -> None:
    with pytest.raises(UsageError, match="the switch refuses it"):
        inject(stand_in, Darkness("refused"), "kafka-1").start()
    lines = [line for file in history_files(stand_in.state.intents) for _, line in file.read()]
    assert [line.detail for line in lines if isinstance(line, FaultLine) and line.stage == "no_bite"] == [
        "the switch refuses it"
    ]
    assert stages(stand_in) == ["intent", "no_bite", "healed"]
    assert stand_in.dark == set()


def test_a_fault_on_a_broken_node_writes_no_intent(stand_in: Any) -> None:
    with pytest.raises(NoBiteError, match="dark already"):
        inject(stand_in, Darkness("before"), "one").start()
    assert stages(stand_in) == []


def test_an_effect_that_persists_is_an_error_and_stays_unhealed(stand_in: Any) -> None:
    injection = inject(stand_in, Darkness("undo"), "kafka-1").start()
    with pytest.raises(HealError, match=r"reverted, but its effect persists: .*still dark"):
        injection.heal()
    assert stages(stand_in) == ["intent", "bite", "heal_failed"]
    assert [intent.fault for intent in unhealed(stand_in.state)] == ["darkness"]
    stand_in.dark.clear()
    injection.heal()
    assert unhealed(stand_in.state) == []


def test_two_injections_have_different_marks(stand_in: Any) -> None:
    with inject(stand_in, Darkness(), "kafka-1") as one:
        other = inject(stand_in, Darkness("before"), "kafka-2")
        with pytest.raises(NoBiteError):
            other.start()
        assert one.context.mark != other.context.mark


def test_a_target_of_the_wrong_kind_is_refused(stand_in: Any) -> None:
    with pytest.raises(UsageError, match="does not name nodes, which kill needs"):
        inject(stand_in, Kill(), "client(*)").start()
    with pytest.raises(UsageError, match="does not name a client, which crash_client needs"):
        inject(stand_in, CrashClient(), "all").start()
    with pytest.raises(UsageError, match="needs the process") as raised:
        inject(stand_in, CrashClient(), "client(a)").start()
    assert raised.value.hint == "pass process=client"
    assert stages(stand_in) == []


def test_faults_ask_an_external_cluster_for_its_addresses(tmp_path: Path) -> None:
    external = Observed(tmp_path)
    assert external.address_of(0) == ("127.0.0.1", 1)
    assert external.address_of(0, BrokerListener.PROXIED) == ("127.0.0.1", 2)
    assert external.address_of(7, BrokerListener.PROXIED) == ("127.0.0.1", 3), "no proxy is before it"
    with pytest.raises(CapabilityError, match="no wire tap"):
        external.address_of(0, BrokerListener.TAPPED)
