"""Every undo verb is harmless when it is carried out twice, or when nothing was injected."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import cast

import pytest

from harness.base import processes
from harness.base.errors import ExitCode, UsageError
from harness.base.processes import ProcessState
from harness.base.waits import wait_until
from harness.cluster.cluster import Cluster
from harness.cluster.proxy_names import ClientLink
from harness.cluster.toxiproxy_client import Toxiproxy
from harness.faults import app_faults, feature_level, frame_faults
from harness.faults.undo import UndoStep, undo, undo_verbs
from tests.unit.toxiproxy_stand_in import StandIn


class Node:
    """Stub of a node that is running, paused or exited; it acts like a node of either back end."""

    def __init__(self, condition: str) -> None:
        self.condition = condition
        self.started = 0

    def start(self) -> None:
        if self.condition == "exited":
            self.condition, self.started = "running", self.started + 1

    def resume(self) -> None:
        if self.condition == "paused":
            self.condition = "running"

    def kill(self) -> None:
        self.condition = "exited"


class Links:
    """Stub of the network links. For each node, `cuts` contains the nodes from which it is cut off."""

    def __init__(self) -> None:
        self.cuts = {"kafka-1": {"kafka-2"}}

    def uncut(self, node: str) -> None:
        self.cuts.pop(node, None)


class Tap:
    """Stub of the tap that records the armed rules."""

    def __init__(self) -> None:
        self.rules = {"late"}

    def disarm(self, rule: str) -> None:
        self.rules.discard(rule)


class Brokers:
    """Stub of the brokers: the level of a feature, and the replicas of a partition that was moved."""

    def __init__(self) -> None:
        self.level = 1
        self.placed: tuple[int, ...] = (1,)

    def levels(self, *_: object) -> dict[str, int]:
        return {"transaction.version": self.level}

    def change(self, _: object, feature: str, *, now: int, level: int) -> None:
        assert (feature, now) == ("transaction.version", self.level)
        self.level = level


class Broken:
    """Stub of a cluster on which one fault of every kind is active."""

    def __init__(self, server: StandIn) -> None:
        self.server = server
        self.toxiproxy = Toxiproxy("127.0.0.1", server.port)
        self.upstream = self.toxiproxy.proxy("tapped-1").upstream
        self.nodes = {"kafka-1": Node("exited"), "kafka-2": Node("paused"), "toxiproxy": Node("running")}
        self.links = Links()
        self.tap = Tap()
        self.admin = Brokers()
        self.broker_ids = (1,)

    def reassign(self, _: str, placement: dict[int, list[int]]) -> None:
        self.admin.placed = tuple(placement[0])

    def node(self, name: str) -> Node:
        return self.nodes[name]

    def client_links(self, names: list[str]) -> list[ClientLink]:
        assert names == ["kafka-1"]
        return [ClientLink(proxy, 1, "127.0.0.1", 1) for proxy in ("proxied-1", "tapped-1")]

    def state(self) -> object:
        """Return everything that a fault could have changed."""
        proxies = {p.name: (p.enabled, p.upstream, len(p.toxics)) for p in self.toxiproxy.proxies()}
        conditions = {name: node.condition for name, node in self.nodes.items()}
        return proxies, conditions, self.links.cuts, self.tap.rules, self.admin.level, self.admin.placed


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broken]:
    server = StandIn()
    found = Broken(server)
    for module in (frame_faults, app_faults):
        monkeypatch.setattr(module, "ensure_tap", lambda *_: found.tap)
    monkeypatch.setattr(feature_level, "features", found.admin)
    server.toxic("proxied-1", "late", latency=1000)
    server.proxies["tapped-1"]["enabled"] = False
    found.toxiproxy.add_proxy("tapped-1-inner", "127.0.0.1:1", found.toxiproxy.proxy("tapped-1").upstream)
    server.toxic("tapped-1-inner", "late", latency=3000)
    found.toxiproxy.set_upstream("tapped-1", "127.0.0.1:1")
    yield found
    server.close()


@pytest.fixture
def frozen() -> Iterator[tuple[int, str]]:
    """Yield the id of a process that SIGSTOP has stopped, and a mark: a text in its command line.

    The harness signals a process only if its command line contains the mark.
    """
    mark = "to-be-resumed"
    command = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()", mark]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: processes.state_of(process.pid, mark) is ProcessState.STOPPED, 10, "it to stop")
        yield process.pid, mark
        process.kill()


STEPS: dict[str, UndoStep] = {
    "remove_toxic": {"node": "kafka-1", "toxic": "late"},
    "open_proxies": {"node": "kafka-1"},
    "start_node": {"node": "kafka-1"},
    "resume_node": {"node": "kafka-2"},
    "uncut": {"node": "kafka-1"},
    "disarm_frame": {"rule": "late"},
    "unmute_client": {"rules": ["late"]},
    "straighten": {"proxy": "tapped-1"},
    "set_feature": {"feature": "transaction.version", "level": 2},
    "place": {"topic": "__transaction_state", "partition": 0, "replicas": [1, 2, 3]},
}


def carry_out(broken: Broken, *steps: UndoStep) -> None:
    undo(cast(Cluster, broken), list(steps))


def test_every_verb_has_a_case_here() -> None:
    shipped = {name for name, verb in undo_verbs().items() if verb.action.__module__.startswith("harness.")}
    # test_app_faults.py has the case of `resume_app`, test_packet_filter.py that of `restore_flow`, and
    # tests/cluster/test_kafka_versions.py that of `run_version`
    assert {*STEPS, "resume_process", "resume_app", "restore_flow", "run_version"} == shipped


@pytest.mark.parametrize("verb", STEPS)
def test_a_verb_undoes_its_fault_and_twice_is_harmless(broken: Broken, verb: str) -> None:
    before = str(broken.state())
    carry_out(broken, {"do": verb, **STEPS[verb]})
    once = str(broken.state())
    assert once != before

    carry_out(broken, {"do": verb, **STEPS[verb]})

    assert str(broken.state()) == once


def test_all_verbs_together_heal_everything_and_the_second_time_change_nothing(broken: Broken) -> None:
    steps = [{"do": verb, **arguments} for verb, arguments in STEPS.items()]
    for _ in range(2):
        carry_out(broken, *steps)
        assert broken.state() == (
            {"proxied-1": (True, broken.upstream, 0), "tapped-1": (True, broken.upstream, 0)},
            {"kafka-1": "running", "kafka-2": "running", "toxiproxy": "running"},
            {},
            set(),
            2,
            (1, 2, 3),
        )
    assert broken.nodes["kafka-1"].started == 1


def test_start_node_resumes_a_paused_node(broken: Broken) -> None:
    carry_out(broken, {"do": "start_node", "node": "kafka-2"})
    assert broken.nodes["kafka-2"].condition == "running"
    assert broken.nodes["kafka-2"].started == 0


def test_a_stopped_client_is_resumed_and_no_other_process_is_signalled(
    broken: Broken, frozen: tuple[int, str]
) -> None:
    pid, mark = frozen
    carry_out(broken, {"do": "resume_process", "pid": pid, "mark": "another's mark"})
    assert processes.state_of(pid, mark) is ProcessState.STOPPED

    for _ in range(2):
        carry_out(broken, {"do": "resume_process", "pid": pid, "mark": mark})
        wait_until(lambda: processes.state_of(pid, mark) is ProcessState.RUNNING, 10, "it to run")

    processes.send(pid, mark, signal.SIGKILL)
    wait_until(lambda: processes.state_of(pid, mark) is ProcessState.GONE, 10, "it to end")
    carry_out(broken, {"do": "resume_process", "pid": pid, "mark": mark})


@pytest.mark.parametrize(
    ("verb", "request_"),
    [("remove_toxic", "DELETE /proxies/proxied-1/toxics/late"), ("open_proxies", "POST /proxies/tapped-1")],
)
def test_a_wedged_toxiproxy_is_restarted(broken: Broken, verb: str, request_: str) -> None:
    broken.server.misbehave[request_] = 503

    carry_out(broken, {"do": verb, **STEPS[verb]})

    assert broken.nodes["toxiproxy"].started == 1


def test_a_verb_of_another_version_is_refused_by_name(broken: Broken) -> None:
    with pytest.raises(UsageError) as raised:
        carry_out(broken, {"do": "restore_clock", "node": "kafka-1"})
    assert raised.value.exit_code is ExitCode.USAGE
    assert "'restore_clock'" in raised.value.message
    assert "eos down" in raised.value.hint


def test_a_step_keeps_its_arguments(broken: Broken) -> None:
    step = {"do": "start_node", "node": "kafka-1"}
    carry_out(broken, step)
    assert step == {"do": "start_node", "node": "kafka-1"}
