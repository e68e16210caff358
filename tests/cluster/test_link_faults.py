"""Link faults: each has a measured effect, which ends with its heal. A fault without effect is an error."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from harness.base.errors import HealError, NoBiteError, UsageError
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.faults import Down, Fault, Jitter, LoseResponse, Sever, Slice, Stall, Throttle, inject
from harness.faults.heal import heal
from harness.faults.intents import unhealed
from harness.faults.link_faults import links
from harness.faults.link_probe import is_cut, round_trip_ms, silent_for
from harness.kafka.connection import answers

pytestmark = pytest.mark.cluster

LINK_FAULTS = [
    Jitter(latency_ms=80, jitter_ms=40),
    Stall(),
    Throttle(rate_kb_s=40),
    Slice(),
    Sever(),
    Down(),
    LoseResponse(),
]


@pytest.mark.parametrize("fault", LINK_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_bites_both_links_of_its_target_and_no_other_and_is_gone_after(
    cluster: Cluster, fault: Fault
) -> None:
    bystander = links(cluster, ["kafka-3"])[0]

    with inject(cluster, fault, "kafka-1") as injection:
        assert injection.names == ["kafka-1"]
        assert injection.bite
        assert [i.fault for i in unhealed(cluster.state)] == [fault.name]
        # Jitter delays every answer by 40 ms or more. So one quicker answer proves that the other broker has
        # no jitter; it may need several tries.
        wait_until(lambda: min(bystander.round_trips_ms(5)) < 40, 10, "a quick answer of the other broker")
        # A link fault does not affect the DIRECT listener, through which the harness observes the broker.
        assert answers("127.0.0.1", cluster.ports.direct(1), timeout=5)

    assert injection.health
    assert unhealed(cluster.state) == []
    assert cluster.lasting_ailments() == []


@pytest.mark.parametrize("fault", LINK_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_that_does_nothing_is_an_error(
    cluster: Cluster, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(fault), "apply", lambda *_: None)

    with pytest.raises(NoBiteError), inject(cluster, fault, "kafka-2"):
        pytest.fail("a fault without effect must not reach the block")

    assert unhealed(cluster.state) == []


@pytest.mark.parametrize(
    "fault", [Jitter(latency_ms=200), Down(), LoseResponse()], ids=lambda fault: fault.name
)
def test_a_fault_that_is_not_reverted_is_an_error_and_eos_heal_ends_it(
    cluster: Cluster, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("harness.faults.injection.undo", lambda *_: None)
        with pytest.raises(HealError), inject(cluster, fault, "kafka-2"):
            pass
    assert [i.fault for i in unhealed(cluster.state)] == [fault.name]

    assert heal(cluster, lambda _: None) >= 1

    assert cluster.lasting_ailments() == []


def test_a_target_by_role_is_resolved_when_it_is_injected(cluster: Cluster, topic: str) -> None:
    with inject(cluster, Sever(), f"leader_of({topic}, 1)") as injection:
        assert injection.names == [f"kafka-{cluster.leader_of(topic, 1)}"]


def test_all_links_are_hit_together(cluster: Cluster) -> None:
    with inject(cluster, Jitter(latency_ms=60), "all") as injection:
        assert len(injection.bite["slower_ms"]) == 6


def test_stall_returns_what_it_held(cluster: Cluster) -> None:
    link = links(cluster, ["kafka-1"])[0]
    with link.connect() as connection:
        round_trip_ms(connection)
        with inject(cluster, Stall(), "kafka-1"):
            connection.send_api_versions()
            assert silent_for(connection, 0.3)
        assert connection.read_frame()


def test_sever_passes_new_connections_and_down_refuses_them(cluster: Cluster) -> None:
    link = links(cluster, ["kafka-1"])[0]
    with inject(cluster, Sever(), "kafka-1"):
        assert not link.refuses()
    with inject(cluster, Down(), "kafka-1"):
        assert link.refuses()


def test_lose_response_cuts_a_connection_that_waits_for_an_answer(cluster: Cluster) -> None:
    link = links(cluster, ["kafka-1"])[0]
    with link.connect() as connection:
        round_trip_ms(connection)
        with inject(cluster, LoseResponse(), "kafka-1"):
            connection.send_api_versions()
            assert is_cut(connection, 2.0)


def test_two_faults_on_one_link_are_healed_separately(cluster: Cluster) -> None:
    link = links(cluster, ["kafka-1"])[0]
    # Both delays are far longer than the pauses of a busy machine. Such a pause can neither look like a delay
    # nor hide one.
    with inject(cluster, Jitter(latency_ms=150), "kafka-1"):
        with inject(cluster, Jitter(latency_ms=450), "kafka-1"):
            assert min(link.round_trips_ms(3)) >= 600
        wait_until(lambda: 150 <= min(link.round_trips_ms(3)) < 600, 10, "the first delay alone")


def test_a_fault_on_links_that_are_already_silent_is_an_error(cluster: Cluster) -> None:
    with inject(cluster, Stall(), "kafka-1"), pytest.raises(NoBiteError, match="no link of kafka-1 answers"):
        inject(cluster, Down(), "kafka-1").start()


def test_healing_at_once_after_a_client_left_does_not_wedge_toxiproxy(cluster: Cluster) -> None:
    process = cluster.node("toxiproxy").status().pid
    for _ in range(3):
        with (
            inject(cluster, Jitter(latency_ms=200), "kafka-1"),
            links(cluster, ["kafka-1"])[0].connect() as connection,
        ):
            for _ in range(10):
                connection.send_api_versions()
        # In each round, the delay is removed while Toxiproxy holds answers for a client that has
        # disconnected. Toxiproxy may hang then, and the harness would have to restart it.
        assert cluster.node("toxiproxy").status().pid == process, "Toxiproxy was restarted"


def test_a_link_fault_needs_a_broker(cluster: Cluster) -> None:
    with pytest.raises(NoBiteError, match="has no client link"), inject(cluster, Down(), "controller-11"):
        pytest.fail("a controller has no client link")


def test_an_unknown_target_is_refused_with_the_allowed_forms(cluster: Cluster) -> None:
    with pytest.raises(UsageError, match=r"leader_of\(topic, partition\)"):
        inject(cluster, Down(), "the-broker-on-the-left")


@dataclass(frozen=True)
class MisspeltJitter(Jitter):
    """Jitter with a misspelt toxic attribute, which Toxiproxy accepts and ignores."""

    def attributes(self) -> dict[str, int]:
        return {"latencyy": self.latency_ms}


def test_a_misspelt_attribute_is_read_back_and_refused(cluster: Cluster) -> None:
    from harness.cluster.toxiproxy_client import ToxiproxyError

    with (
        pytest.raises(ToxiproxyError, match="latencyy"),
        inject(cluster, MisspeltJitter(latency_ms=50), "kafka-1"),
    ):
        pytest.fail("the toxic is not what was asked for")
