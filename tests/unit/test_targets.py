"""Targets are parsed strictly: every allowed form, and an error that lists the allowed forms."""

from __future__ import annotations

import random
from typing import cast

import pytest

from harness.base.errors import UsageError
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS, CONTROLLER_IDS, node_name
from harness.cluster.targets import Target


class Roles:
    """Stub of a cluster that resolves roles."""

    def leader_of(self, topic: str, partition: int) -> int:
        return {("orders", 0): 2, ("my-topic.v1", 12): 3}[topic, partition]

    def txn_coordinator(self, transactional_id: str) -> int:
        return {"shop-1": 1}[transactional_id]

    def group_coordinator(self, group: str) -> int:
        return {"readers": 3}[group]

    def active_controller(self) -> int:
        return 12

    broker_ids = BROKER_IDS
    controller_ids = CONTROLLER_IDS

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
def test_each_form_resolves_to_its_nodes(text: str, names: list[str]) -> None:
    assert Target.parse(text).resolve(ROLES, random.Random(1)) == names


@pytest.mark.parametrize(
    ("text", "count"),
    [("one", 1), ("minority", 1), ("majority", 2), ("controllers(one)", 1), ("controllers(majority)", 2)],
)
def test_a_share_is_drawn_from_the_seed(text: str, count: int) -> None:
    target = Target.parse(text)
    draws = [tuple(target.resolve(ROLES, random.Random(seed))) for seed in range(50)]

    assert {len(set(draw)) for draw in draws} == {count}
    assert len(set(draws)) == 3, "every choice is drawn"
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
        "leader_of(, 0)",
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
        "client()",
        "client(a b)",
        "client(a, b)",
    ],
)
def test_an_unknown_target_is_refused_with_the_allowed_forms(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        Target.parse(text)

    assert repr(text) in raised.value.message
    for form in ("a node name", "majority", "leader_of(topic, partition)", "active_controller"):
        assert form in raised.value.hint


def test_only_a_role_can_move_to_another_node() -> None:
    assert Target.parse("kafka-1").role(ROLES) is None
    assert Target.parse("majority").role(ROLES) is None
    holder = Target.parse("leader_of(orders, 0)").role(ROLES)
    assert holder is not None
    assert holder() == 2


def test_broker_ids_are_checked_against_the_cluster() -> None:
    assert Target.parse("kafka-0").broker == 0
    assert Target.parse("kafka-1004").broker == 1004
    assert Target.parse("controller-11").broker is None
    target = Target.parse("kafka-4")
    assert target.preview(1) == "kafka-4"
    with pytest.raises(UsageError, match="there is no node 'kafka-4'") as raised:
        target.resolve(ROLES, random.Random(1))
    assert raised.value.hint == "the brokers are kafka-1, kafka-2, kafka-3"


@pytest.mark.parametrize("text", [5, None, ["kafka-1"]])
def test_a_target_that_is_no_text_is_refused(text: object) -> None:
    with pytest.raises(UsageError, match="is not known"):
        Target.parse(text)


def test_a_target_is_stored_and_parsed_again_as_its_text() -> None:
    target = Target.parse(" leader_of( orders ,0 )")
    assert target == "leader_of( orders ,0 )"
    assert (target.kind, target.arguments) == ("leader_of", ("orders", "0"))
    assert Target.parse(target) is target


@pytest.mark.parametrize(
    ("text", "scoped"),
    [
        ("leader_of( orders ,2)", "leader_of(p-orders.r, 2)"),
        ("txn_coordinator(shop-1)", "txn_coordinator(p-shop-1.r)"),
        ("group_coordinator(readers)", "group_coordinator(p-readers.r)"),
        ("active_controller", "active_controller"),
        ("controllers(one)", "controllers(one)"),
        ("client(reader-orders-1)", "client(reader-orders-1)"),
        ("kafka-1", "kafka-1"),
    ],
)
def test_only_topics_groups_and_transactional_ids_are_scoped(text: str, scoped: str) -> None:
    target = Target.parse(text).scoped(lambda name: f"p-{name}.r")
    assert target == scoped
    assert Target.parse(scoped).arguments == target.arguments


@pytest.mark.parametrize(
    ("text", "client"),
    [
        ("client(*)", "*"),
        ("client(idempotent-my.topic-1~2)", "idempotent-my.topic-1~2"),
        ("kafka-1", None),
        ("all", None),
    ],
)
def test_a_client_is_named_by_name_or_pattern(text: str, client: str | None) -> None:
    assert Target.parse(text).client == client


def test_a_single_node_can_be_drawn_before_the_run() -> None:
    drawn = {Target.parse("one").drawn(seed) for seed in range(50)}
    assert drawn == {"kafka-1", "kafka-2", "kafka-3"}
    seed = 7
    (resolved,) = Target.parse("minority").resolve(ROLES, random.Random(seed))
    assert Target.parse("minority").drawn(seed) == resolved
    for text in ("majority", "all", "controllers(all)", "kafka-3", "leader_of(orders, 0)", "client(*)"):
        assert Target.parse(text).drawn(seed) == text


@pytest.mark.parametrize(
    ("text", "brokers", "controllers"),
    [
        ("one", 1, False),
        ("majority", 3, False),
        ("all", 5, False),
        ("kafka-9", 1, False),
        ("leader_of(orders, 0)", 1, False),
        ("client(*)", 0, False),
        ("controllers(one)", 1, True),
        ("controller-12", 1, True),
        ("active_controller", 1, True),
    ],
)
def test_the_most_brokers_that_may_be_hit_are_known(text: str, brokers: int, controllers: bool) -> None:
    target = Target.parse(text)
    assert target.most_brokers(5) == brokers
    assert target.hits_controllers is controllers
