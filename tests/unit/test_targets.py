"""Targets are read strictly: every form that is allowed, and a message that says what is."""

from __future__ import annotations

import random
from typing import cast

import pytest

from harness.base.errors import UsageError
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS, node_name
from harness.cluster.targets import Target


class Roles:
    """Says who holds which role, as a cluster would."""

    def leader_of(self, topic: str, partition: int) -> int:
        return {("orders", 0): 2, ("my-topic.v1", 12): 3}[topic, partition]

    def txn_coordinator(self, transactional_id: str) -> int:
        return {"shop-1": 1}[transactional_id]

    def group_coordinator(self, group: str) -> int:
        return {"readers": 3}[group]

    def active_controller(self) -> int:
        return 12

    broker_ids = BROKER_IDS

    def name_of(self, node_id: int) -> str:
        return node_name(node_id)


ROLES = cast(Cluster, Roles())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("kafka-2", ["kafka-2"]),
        ("controller-11", ["controller-11"]),
        (" kafka-1 ", ["kafka-1"]),
        ("all", ["kafka-1", "kafka-2", "kafka-3"]),
        ("controllers(all)", ["controller-11", "controller-12", "controller-13"]),
        ("leader_of(orders, 0)", ["kafka-2"]),
        ("leader_of( my-topic.v1 ,12 )", ["kafka-3"]),
        ("txn_coordinator(shop-1)", ["kafka-1"]),
        ("group_coordinator(readers)", ["kafka-3"]),
        ("active_controller", ["controller-12"]),
    ],
)
def test_each_form_names_its_nodes(text: str, names: list[str]) -> None:
    assert Target.parse(text).resolve(ROLES, random.Random(1)) == names


@pytest.mark.parametrize(
    ("text", "count"),
    [("one", 1), ("minority", 1), ("majority", 2), ("controllers(one)", 1), ("controllers(majority)", 2)],
)
def test_a_share_is_drawn_by_the_plans_own_numbers(text: str, count: int) -> None:
    target = Target.parse(text)
    draws = [tuple(target.resolve(ROLES, random.Random(seed))) for seed in range(50)]

    assert {len(set(draw)) for draw in draws} == {count}
    assert len(set(draws)) == 3, "every choice comes up"
    assert draws == [tuple(target.resolve(ROLES, random.Random(seed))) for seed in range(50)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kafka-",
        "kafka-01",
        "kafka-x",
        "controller-1",
        "toxiproxy",
        "kafka-1()x",
        "everyone",
        "one(two)",
        "kafka-1(x)",
        "leader_of",
        "leader_of()",
        "leader_of(orders)",
        "leader_of(orders, x)",
        "leader_of(orders, -1)",
        "leader_of(orders, 0, 1)",
        "txn_coordinator",
        "txn_coordinator()",
        "txn_coordinator(a, b)",
        "group_coordinator()",
        "controllers",
        "controllers(some)",
        "controllers(one, all)",
        "active_controller(1)",
        "leader_of(orders, 0",
        "kafka-1 kafka-2",
    ],
)
def test_a_mistake_is_told_with_what_is_allowed(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        Target.parse(text)

    assert repr(text) in raised.value.message
    for form in ("a node name", "majority", "leader_of(topic, partition)", "active_controller"):
        assert form in raised.value.hint


def test_only_roles_can_move() -> None:
    assert Target.parse("kafka-1").role(ROLES) is None
    assert Target.parse("majority").role(ROLES) is None
    holder = Target.parse("leader_of(orders, 0)").role(ROLES)
    assert holder is not None
    assert holder() == 2


def test_which_brokers_there_are_the_cluster_says() -> None:
    assert Target.parse("kafka-0").broker == 0
    assert Target.parse("kafka-1004").broker == 1004
    assert Target.parse("controller-11").broker is None
    target = Target.parse("kafka-4")
    assert target.preview(random.Random(1)) == "kafka-4"
    with pytest.raises(UsageError, match="there is no node 'kafka-4'") as raised:
        target.resolve(ROLES, random.Random(1))
    assert raised.value.hint == "the brokers are kafka-1, kafka-2, kafka-3"
