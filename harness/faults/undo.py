"""What undoes a fault, as data: written before the injection, carried out by whoever heals it.

A step is one verb with its arguments. Every step may be carried out twice, or after only a part of the
injection was made, or not made at all.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from typing import Any

from harness.base import processes
from harness.base.errors import UsageError
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BROKER_IDS
from harness.cluster.toxiproxy_client import ToxiproxyWedgedError
from harness.kafka import features
from harness.tap.tap_client import ensure_tap

UndoStep = Mapping[str, Any]


def undo(cluster: Cluster, steps: list[UndoStep]) -> None:
    """Carry out the steps in order."""
    for step in steps:
        arguments = dict(step)
        verb = arguments.pop("do")
        action = _VERBS.get(verb)
        if action is None:
            raise UsageError(
                f"an intent asks for {verb!r}, which this version cannot undo",
                "heal with the version that injected it, or remove the cluster with `eos down`",
            )
        action(cluster, **arguments)


def cure_toxiproxy(cluster: Cluster) -> None:
    """Restart a Toxiproxy that no longer answers: it comes back with every proxy open and no toxic."""
    node = cluster.node("toxiproxy")
    node.kill()
    node.start()
    wait_until(cluster.toxiproxy.proxies, 15, "Toxiproxy to answer after its restart")


def _remove_toxic(cluster: Cluster, node: str, toxic: str) -> None:
    try:
        for link in cluster.client_links([node]):
            cluster.toxiproxy.remove_toxic(link.proxy, toxic)
    except ToxiproxyWedgedError:
        cure_toxiproxy(cluster)


def _open_proxies(cluster: Cluster, node: str) -> None:
    try:
        for link in cluster.client_links([node]):
            cluster.toxiproxy.set_enabled(link.proxy, enabled=True)
    except ToxiproxyWedgedError:
        cure_toxiproxy(cluster)


def inner_name(proxy: str) -> str:
    """The name of the second proxy behind a proxy."""
    return f"{proxy}-inner"


def _straighten(cluster: Cluster, proxy: str) -> None:
    """Where a second proxy leads to is where the first has to lead to: nothing else must be remembered."""
    inner = next((p for p in cluster.toxiproxy.proxies() if p.name == inner_name(proxy)), None)
    if inner is None:
        return
    try:
        for toxic in inner.toxics:
            cluster.toxiproxy.remove_toxic(inner.name, toxic.name)
        if cluster.toxiproxy.proxy(proxy).upstream != inner.upstream:
            cluster.toxiproxy.set_upstream(proxy, inner.upstream)
        cluster.toxiproxy.remove_proxy(inner.name)
    except ToxiproxyWedgedError:
        cure_toxiproxy(cluster)


def _start_node(cluster: Cluster, node: str) -> None:
    cluster.node(node).resume()
    cluster.node(node).start()


def _resume_node(cluster: Cluster, node: str) -> None:
    cluster.node(node).resume()


def _uncut(cluster: Cluster, node: str) -> None:
    cluster.links.uncut(node)


def _resume_process(cluster: Cluster, pid: int, mark: str) -> None:  # noqa: ARG001  # every verb is called alike
    processes.send(pid, mark, signal.SIGCONT)


def _disarm_frame(cluster: Cluster, rule: str) -> None:
    # A tap that died has lost its rules and what it held; a new one serves the clients again.
    ensure_tap(cluster).disarm(rule)


def _set_feature(cluster: Cluster, feature: str, level: int) -> None:
    now = features.levels(cluster.admin, BROKER_IDS[0]).get(feature, 0)
    if now != level:
        features.change(cluster.admin, feature, now=now, level=level)


def _place(cluster: Cluster, topic: str, partition: int, replicas: list[int]) -> None:
    cluster.reassign(topic, {partition: replicas})


_VERBS: dict[str, Callable[..., None]] = {
    "remove_toxic": _remove_toxic,
    "open_proxies": _open_proxies,
    "straighten": _straighten,
    "start_node": _start_node,
    "resume_node": _resume_node,
    "uncut": _uncut,
    "resume_process": _resume_process,
    "disarm_frame": _disarm_frame,
    "set_feature": _set_feature,
    "place": _place,
}
