"""The faults of these cases: quiet before, biting while they last, gone after, and healed by `eos heal`."""

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
from harness.tap.coordinator_entries import TRANSACTION_TOPIC

pytestmark = pytest.mark.cluster


def placement(cluster: Cluster) -> Placement:
    """The first partition of the transaction log, on its leader alone."""
    now = cluster.partition(TRANSACTION_TOPIC, 0)
    return Placement(topic=TRANSACTION_TOPIC, partition=0, on=(now.leader,), back=now.replicas)


def made(cluster: Cluster, name: str) -> Fault:
    if name == "placement":
        return placement(cluster)
    faults: dict[str, Fault] = {
        "two_proxies": TwoProxies(),
        "feature_level": FeatureLevel(level=1),
        "slow_some": SlowShare(latency_ms=300),
    }
    return faults[name]


def standing(cluster: Cluster) -> tuple[object, ...]:
    """What these faults change."""
    proxies = {p.name: (p.upstream, len(p.toxics)) for p in cluster.toxiproxy.proxies()}
    levels = [features.levels(cluster.admin, b).get(features.TRANSACTION_VERSION) for b in BROKER_IDS]
    return proxies, levels, set(cluster.partition(TRANSACTION_TOPIC, 0).isr)


NAMES = ["two_proxies", "feature_level", "placement", "slow_some"]


@pytest.mark.parametrize("name", NAMES)
def test_it_bites_and_is_gone_after(cluster: Cluster, name: str) -> None:
    before = standing(cluster)
    with inject(cluster, made(cluster, name), "all") as injection:
        assert standing(cluster) != before
        assert injection.bite
    assert standing(cluster) == before
    assert injection.health


@pytest.mark.parametrize("name", NAMES)
def test_it_is_healed_when_nobody_did(cluster: Cluster, name: str) -> None:
    before = standing(cluster)
    inject(cluster, made(cluster, name), "all").start()  # a harness that is killed now heals nothing
    assert [intent.fault for intent in unhealed(cluster.state)] == [name]
    assert heal(cluster, print) >= 1
    assert standing(cluster) == before
    assert unhealed(cluster.state) == []


@pytest.mark.parametrize("name", NAMES)
def test_without_the_deed_it_is_an_error(
    cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = made(cluster, name)
    before = standing(cluster)
    monkeypatch.setattr(type(fault), "apply", lambda *_: None)
    with pytest.raises(NoBiteError), inject(cluster, fault, "all"):
        pytest.fail("an injection without effect must not reach the block")
    assert standing(cluster) == before


def test_the_second_proxies_stay_when_the_first_are_led_past_them(cluster: Cluster) -> None:
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


def test_a_feature_that_is_there_already_is_refused(cluster: Cluster) -> None:
    with pytest.raises(NoBiteError, match=r"transaction\.version is at 2"):
        inject(cluster, FeatureLevel(level=2), "all").start()
