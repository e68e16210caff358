"""Runs on somebody else's cluster, reached only through its file, with TLS and a password."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from harness.errors import ExitCode
from tests.live.conftest import User
from tests.live.standin import PASSWORD, PREFIX

pytestmark = pytest.mark.cluster
CRASH = '[[fault]]\nfault = "crash_client"\ntarget = "client(*)"\nat = "1s"\nlasts = "500ms"\n'


@pytest.mark.spark
def test_a_run_under_a_client_fault_is_valid_and_touches_nothing_else(
    user: User, evidence: Callable[..., None]
) -> None:
    scenario = user.scenario(CRASH, witnesses='["spark", "reader", "raw-log"]')
    done = user.do(user.run_command(scenario, user.file()))

    assert done.returncode == ExitCode.VALID, done.stderr
    summary = json.loads((user.latest() / "summary.json").read_text())
    assert set(summary["witnesses"]) >= {"spark", "reader", "raw-log"}
    assert summary["records"] > 300
    assert summary["properties"]["pipeline"]["compared"] > 50
    audit = user.audit()
    created = [name for line in audit if line["action"] == "CreateTopics" for name in line["names"]]
    assert len(created) == 3
    assert all(name.startswith(PREFIX) for name in created)
    assert {n for line in audit if line["action"] == "DeleteTopics" for n in line["names"]} == set(created)
    assert user.cluster.ours() == []
    assert user.left() == []
    # The password is in use: were it not redacted, and written somewhere, it would be found afterwards.
    assert "env:CHAOS_PASSWORD" in (user.folder / "live.toml").read_text()
    evidence(records=summary["records"], witnesses=summary["witnesses"], created=created)


def test_link_faults_pass_a_toxiproxy_that_is_started_for_the_run(
    user: User, evidence: Callable[..., None]
) -> None:
    file = user.file(more=user.proxies(), faults__allowed='["jitter", "down"]', faults__most_targets="3")
    jitter = '[[fault]]\nfault = "jitter"\ntarget = "all"\nlatency = "60ms"\nthroughout = true\n'
    down = '[[fault]]\nfault = "down"\ntarget = "leader_of(orders, 0)"\nat = "1s"\nlasts = "1s"\n'
    done = user.do(user.run_command(user.scenario(jitter, down, duration="3s"), file))

    assert done.returncode == ExitCode.VALID, done.stderr
    events = [json.loads(line) for line in (user.latest() / "events.jsonl").read_text().splitlines()]
    bites = {event["fault"]: event["bite"] for event in events if event["event"] == "injected"}
    assert min(bites["jitter"]["slower_ms"].values()) > 25
    assert bites["down"]["refused"] == 1
    changes = [line for line in user.audit() if line["action"] == "toxiproxy"]
    assert {line["method"] for line in changes} >= {"POST", "DELETE"}
    assert user.left() == []
    evidence(bites=bites, changes=len(changes))


def test_without_an_unfaulted_path_the_verdict_is_unknown_and_says_why(user: User) -> None:
    through = user.cluster.bootstrap("listen").split(",")
    with user.own_toxiproxy() as proxies:
        file = user.file(more=proxies, faults__allowed='["sever"]', cluster__bootstrap=json.dumps(through))
        sever = '[[fault]]\nfault = "sever"\ntarget = "one"\nat = "500ms"\nlasts = "200ms"\n'
        done = user.do(user.run_command(user.scenario(sever, duration="2s"), file))

    assert done.returncode == ExitCode.UNKNOWN, done.stderr
    summary = json.loads((user.latest() / "summary.json").read_text())
    assert summary["reasons"] == [
        "coverage: the observer has no unfaulted path: cluster.bootstrap leads through the proxies that are "
        "faulted"
    ]


def test_a_broker_is_killed_by_the_users_own_command_after_a_consent_of_its_own(
    user: User, evidence: Callable[..., None]
) -> None:
    kill = '[[fault]]\nfault = "kill"\ntarget = "kafka-2"\nat = "1s"\nlasts = "2s"\n'
    scenario = user.scenario(kill, duration="3s")
    rules = {"faults__allowed": '["kill"]', "limits__foreign_under_replicated": "100"}
    file = user.file(more=user.nodes(), **rules)

    refused = user.do(user.run_command(scenario, file))
    assert refused.returncode == ExitCode.REFUSED
    assert "kafka-2: leads" in refused.stderr
    assert "--move-foreign" in refused.stderr
    assert "till-7" in refused.stderr
    assert "bookkeeping" in refused.stderr

    tight = user.file(more=user.nodes(), faults__allowed='["kill"]')
    limited = user.do(user.run_command(scenario, tight, "--move-foreign"))
    assert limited.returncode == ExitCode.REFUSED
    assert "foreign partitions would be under-replicated" in limited.stderr

    done = user.do(user.run_command(scenario, user.file(more=user.nodes(), **rules), "--move-foreign"))
    assert done.returncode == ExitCode.VALID, done.stderr
    verbs = [(line["node"], line["verb"]) for line in user.audit() if line["action"] == "node"]
    assert ("kafka-2", "kill") in verbs
    assert ("kafka-2", "start") in verbs
    evidence(verbs=verbs, lists=[line for line in refused.stderr.splitlines() if "foreign" in line])


def test_a_dry_run_tells_everything_and_does_nothing(user: User) -> None:
    file = user.file(more=f"{user.proxies()}\n{user.nodes()}", faults__allowed='["jitter", "kill"]')
    jitter = '[[fault]]\nfault = "jitter"\ntarget = "one"\nlatency = "60ms"\nat = "1s"\n'
    kill = '[[fault]]\nfault = "kill"\ntarget = "kafka-3"\nat = "2s"\n'
    done = user.do(user.run_command(user.scenario(jitter, kill), file, "--dry-run"))

    assert done.returncode == ExitCode.REFUSED
    for told in (
        f"create {PREFIX}orders.RUN: 3 partitions, 3 replicas",
        "inject    1.0 s  for 5.0 s  jitter on one latency_ms=60",
        f"kill kafka-3: sh {user.cluster.folder}/node-3/kill.sh",
        "brokers hit at once: at most 1",
        "kafka-3: leads",
        f"--resource-pattern-type prefixed --transactional-id {PREFIX}",
        "refused: its faults of nodes would move what is not ours",
    ):
        assert told in done.stdout
    assert PASSWORD not in done.stdout
    assert user.cluster.ours() == []
    assert user.left() == []
