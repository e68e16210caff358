"""Faults that the walkthroughs of hazards use: each fault takes effect, and its heal ends the effect."""

from __future__ import annotations

import pytest

from harness.base.errors import NoBiteError
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS
from harness.faults import Fault, FeatureLevel, Placement, ProxyChain, SlowShare, TwoProxies, inject
from harness.faults.heal import heal
from harness.faults.intents import unhealed
from harness.faults.proxy_chain import inner_name
from harness.kafka import features
from harness.kafka.connection import RawConnection
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC

pytestmark = pytest.mark.cluster


def placement(cluster: Cluster) -> Placement:
    """Return a fault that leaves the first partition of the transaction log with one replica, its leader."""
    now = cluster.partition(TRANSACTION_TOPIC, 0)
    return Placement(topic=TRANSACTION_TOPIC, partition=0, on=(now.leader,), back=now.replicas)


def make_fault(cluster: Cluster, name: str) -> Fault:
    if name == "placement":
        return placement(cluster)
    faults: dict[str, Fault] = {
        "two_proxies": TwoProxies(),
        "feature_level": FeatureLevel(level=1),
        "slow_some": SlowShare(latency_ms=300),
    }
    return faults[name]


def affected_state(cluster: Cluster) -> tuple[object, ...]:
    """Return the state that these faults change: proxies, transaction versions, in-sync replicas."""
    proxies = {p.name: (p.upstream, len(p.toxics)) for p in cluster.toxiproxy.proxies()}
    levels = [features.levels(cluster.admin, b).get(features.TRANSACTION_VERSION) for b in BROKER_IDS]
    return proxies, levels, set(cluster.partition(TRANSACTION_TOPIC, 0).isr)


NAMES = ["two_proxies", "feature_level", "placement", "slow_some"]


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_takes_effect_and_is_undone_afterwards(cluster: Cluster, name: str) -> None:
    before = affected_state(cluster)
    with inject(cluster, make_fault(cluster, name), "all") as injection:
        assert affected_state(cluster) != before
        assert injection.bite
    assert affected_state(cluster) == before
    assert injection.health


@pytest.mark.parametrize("name", NAMES)
def test_heal_undoes_a_fault_of_a_killed_harness(cluster: Cluster, name: str) -> None:
    before = affected_state(cluster)
    inject(cluster, make_fault(cluster, name), "all").start()  # not healed: as after a SIGKILL of the harness
    assert [intent.fault for intent in unhealed(cluster.state)] == [name]
    assert heal(cluster, print) >= 1
    assert affected_state(cluster) == before
    assert unhealed(cluster.state) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_without_effect_is_an_error(
    cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = make_fault(cluster, name)
    before = affected_state(cluster)
    monkeypatch.setattr(type(fault), "apply", lambda *_: None)
    with pytest.raises(NoBiteError), inject(cluster, fault, "all"):
        pytest.fail("an injection without effect must not reach the block")
    assert affected_state(cluster) == before


def test_the_inner_proxies_stay_when_the_outer_proxies_bypass_them(cluster: Cluster) -> None:
    with ProxyChain(cluster) as series:
        with RawConnection("127.0.0.1", cluster.ports.proxied(1), 5) as connection:
            connection.send_api_versions()
            connection.read_frame()
        assert {p.upstream for p in cluster.toxiproxy.proxies() if p.name.startswith("proxied-")} >= {
            f"127.0.0.1:{cluster.ports.inner_proxy(b)}" for b in BROKER_IDS
        }
        series.shortcut()
        names = {p.name for p in cluster.toxiproxy.proxies()}
        assert {inner_name(f"proxied-{b}") for b in BROKER_IDS} <= names
        with RawConnection("127.0.0.1", cluster.ports.proxied(1), 5) as connection:
            connection.send_api_versions()
            assert connection.read_frame()


def test_lowering_a_feature_to_its_current_level_is_refused(cluster: Cluster) -> None:
    with pytest.raises(NoBiteError, match=r"transaction\.version is at 2"):
        inject(cluster, FeatureLevel(level=2), "all").start()
