"""Healing of a cluster. It uses the intents on disk, and the observed condition of the nodes and links."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from harness.base import processes
from harness.base.errors import HarnessError, HealError, WaitTimeoutError, describe_error
from harness.base.texts import count_of
from harness.base.waits import wait_until
from harness.cluster.backend import Capability
from harness.cluster.cluster import Cluster
from harness.cluster.nodes import Condition
from harness.cluster.tap_process import TAPS
from harness.cluster.toxiproxy_client import ToxiproxyWedgedError
from harness.evidence.history import FaultLine
from harness.faults.intents import open_journal, unhealed
from harness.faults.link_faults import restart_toxiproxy
from harness.faults.undo import undo
from harness.tap.tap_client import ensure_tap, find_tap, was_started

Report = Callable[[str], None]
# Time limits in seconds for the cluster to become healthy. Without faults this takes one or two session
# timeouts. A cluster whose links are cut by packet filters does not become healthy. Therefore heal first
# waits up to _SOON_S, then removes all packet filters, and then waits up to LIMIT_S. On a back end without
# packet filters, heal only waits up to LIMIT_S.
_SOON_S, LIMIT_S = 30.0, 60.0


def heal(cluster: Cluster, report: Report, *, spare_clients: bool = False) -> int:
    """Undo every unhealed intent, then repair other damage. Return the number of repairs.

    On the harness's own cluster, heal also repairs damage for which there is no intent. Examples are a toxic
    that was added by hand, or a node that the operating system killed. Afterwards the cluster is healthy, as
    after `eos up`; otherwise an error is raised. Calling heal twice is harmless.

    With `spare_clients`, heal does not end running clients. A run uses `spare_clients` when the run itself
    heals the cluster, because its clients still have to finish their work.
    """
    done = 0 if spare_clients else _end_clients(cluster, report)
    if cluster.owned:
        done += _start_toxiproxy(cluster, report)
    intents = unhealed(cluster.state)
    failures = _undo_intents(cluster, intents, report)
    done += len(intents) - len(failures)
    if cluster.owned:
        done += _start_nodes(cluster, report)
        done += _clear_links(cluster, report)
        done += _clear_tap(cluster, report)
    if failures:
        raise HealError(
            "; ".join(failures), "`eos status` shows the nodes; `eos down` removes the whole cluster"
        )
    try:
        cluster.wait_healthy(_SOON_S if Capability.PARTITION in cluster.backend.capabilities else LIMIT_S)
    except WaitTimeoutError:
        # The cluster may have packet filters whose intent was lost. The repairs above do not remove them.
        # Only back ends that can cut links between nodes have packet filters.
        if Capability.PARTITION not in cluster.backend.capabilities:
            raise
        report("not healthy yet: removing packet filters")
        for name in cluster.nodes:
            cluster.links.uncut(name)
        cluster.wait_healthy(LIMIT_S)
    return done


def _end_clients(cluster: Cluster, report: Report) -> int:
    """End the clients and the application of a run whose harness process was killed.

    Return the number of their processes.
    """
    orphans = processes.find(cluster.state.client_mark)
    if orphans:
        report(f"ending {count_of(len(orphans), 'client')} that a run left behind")
        cluster.state.end_clients()
    apps = cluster.state.end_apps()
    if apps:
        report(f"ended {apps} processes of an application under test that a run left behind")
    return len(orphans) + apps


def _start_toxiproxy(cluster: Cluster, report: Report) -> int:
    """Start or resume Toxiproxy if it does not run, because its API is needed to undo link faults.

    Return the number of repairs: 0 or 1.
    """
    node = cluster.node("toxiproxy")
    condition = node.status().condition
    if condition is Condition.RUNNING:
        return 0
    report(f"toxiproxy is {condition}: starting it")
    node.resume()
    node.start()
    wait_until(cluster.toxiproxy.proxies, 15, "Toxiproxy to answer after its start")
    return 1


def _undo_intents(cluster: Cluster, intents: list[FaultLine], report: Report) -> list[str]:
    """Undo each intent, even if an earlier undo fails. Return a description of each failure."""
    if not intents:
        return []
    failures = []
    with open_journal(cluster.state) as journal:
        for intent in intents:
            age = (time.time_ns() - intent.wall) / 1e9
            what = f"{intent.fault} on {', '.join(intent.resolved)}"
            report(f"healing {what}, injected {age:.0f} s ago")
            try:
                undo(cluster, intent.undo["steps"])
            except (HarnessError, OSError) as error:
                journal.fault_heal_failed(intent.id, describe_error(error))
                failures.append(f"{what} could not be undone: {describe_error(error)}")
            else:
                journal.fault_healed(intent.id, {"healed_by": os.getpid()})
    return failures


def _start_nodes(cluster: Cluster, report: Report) -> int:
    done = 0
    for name, node in cluster.nodes.items():
        condition = node.status().condition
        if condition is Condition.RUNNING:
            continue
        report(f"{name} is {condition}: {'resuming it' if condition is Condition.PAUSED else 'starting it'}")
        node.resume()
        node.start()
        done += 1
    return done


def _clear_tap(cluster: Cluster, report: Report) -> int:
    """Restart each wire tap that died, and disarm all rules. Return the number of repairs.

    Do nothing for a tap that was never started on this cluster.
    """
    done = 0
    for listener in TAPS:
        if not was_started(cluster, listener):
            continue
        if find_tap(cluster, listener) is None:
            report(f"the wire tap of {listener} does not answer: starting it")
            done += 1
        tap = ensure_tap(cluster, listener)
        for armed in tap.status().rules:
            report(f"disarming {armed.rule.verb} of {armed.rule.api} in the wire tap of {listener}")
            tap.disarm(armed.rule.id)
            done += 1
    return done


def _clear_links(cluster: Cluster, report: Report) -> int:
    try:
        return _clear_proxies(cluster, report)
    except ToxiproxyWedgedError as error:
        report(f"{error.message}: restarting it")
        restart_toxiproxy(cluster)
        return 1 + _clear_proxies(cluster, report)


def _clear_proxies(cluster: Cluster, report: Report) -> int:
    done = 0
    for proxy in cluster.toxiproxy.proxies():
        for toxic in proxy.toxics:
            report(f"removing {toxic.type} from {proxy.name}")
            cluster.toxiproxy.remove_toxic(proxy.name, toxic.name)
            done += 1
        if not proxy.enabled:
            report(f"opening {proxy.name}")
            cluster.toxiproxy.set_enabled(proxy.name, enabled=True)
            done += 1
    return done
