"""Runs on an external cluster, reached only through its file, with TLS and a password."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from harness.base.errors import ExitCode
from harness.evidence.record import HEADER, LaneEncoder
from tests.external.conftest import EOS, User
from tests.external.secured_cluster import PASSWORD, PREFIX

pytestmark = pytest.mark.cluster
CRASH = '[[fault]]\nfault = "crash_client"\ntarget = "client(*)"\nat = "1s"\nlasts = "500ms"\n'


def events_of(user: User) -> list[dict[str, Any]]:
    """Return the events of the user's latest run."""
    return [json.loads(line) for line in (user.latest() / "events.jsonl").read_text().splitlines()]


@pytest.mark.spark
@pytest.mark.parametrize("user", ["certificate"], indirect=True)
def test_a_run_under_a_client_fault_is_valid_and_touches_nothing_else(
    user: User, evidence: Callable[..., None]
) -> None:
    scenario = user.scenario(CRASH, duration="3s", witnesses='["spark", "reader", "raw-log"]', all_kinds=True)
    done = user.do(user.run_command(scenario, user.file(more=user.logs())))

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
    # The guard, which enforces the limits of the cluster file, counted the stored bytes. Every record is
    # stored at least three times, and the write rate is below the permitted rate.
    (counted,) = [line for line in audit if line["action"] == "counted"]
    assert counted["stored"] > summary["records"] * 3 * 100
    assert 10_000 < counted["bytes_per_second"] < 1_000_000
    assert counted["looks"] > 5
    assert user.cluster.ours() == []
    assert user.left() == []
    # The run used the password. If the harness had written it anywhere unredacted, the `user` fixture would
    # find it.
    assert "env:CHAOS_KEY_PASSWORD" in (user.folder / "cluster.toml").read_text()
    evidence(
        records=summary["records"], witnesses=summary["witnesses"], created=created, logs=captured_logs(user)
    )


def captured_logs(user: User) -> list[str]:
    """Check that the captured logs have entries of this run only; return the logs that the report shows."""
    run = user.latest()
    noted = [
        json.loads(line) for line in (run / "logs" / "__transaction_state.jsonl").read_text().splitlines()
    ]
    assert {line["transactional_id"].split("-")[2] for line in noted} == {"orders", "invoices"}
    assert all(line["transactional_id"].startswith(PREFIX) for line in noted)
    states = Counter(line["state"] for line in noted)
    assert states["PrepareCommit"] == states["CompleteCommit"] > 10
    committed = [event["committed"] for event in events_of(user) if event["event"] == "progress"][-1]
    assert states["PrepareCommit"] >= committed > 10
    lines = [
        json.loads(line) for line in (run / "logs" / "__consumer_offsets.jsonl").read_text().splitlines()
    ]
    kept = [line for line in lines if line["transaction"] == "committed"]
    assert {line["transaction"] for line in lines} <= {"committed", "aborted"}  # no transaction stayed open
    positions = {(line["topic"], line["of"], line["position"]) for line in kept}
    positions_read = json.loads((run / "observations" / "consumed" / "meta.json").read_text())["positions"]
    assert positions_read != []
    assert {tuple(place) for place in positions_read} <= positions
    for number in user.cluster.ports:
        assert len((run / "logs" / f"kafka-{number}.log").read_text().splitlines()) == 50
    read = [line for line in user.audit() if line["action"] == "read"]
    assert [line["log"] for line in read] == ["__transaction_state", "__consumer_offsets"]
    assert [line["verb"] for line in user.audit() if line["action"] == "node"] == ["log"] * 3
    found: dict[str, list[str]] = json.loads((run / "logs.json").read_text())
    assert len(found["shown"]) == 3
    assert found["not_shown"] == []
    assert "Logs of the brokers" in (run / "report.html").read_text()
    return found["shown"]


def through_toxiproxy(user: User, **witnesses: str) -> dict[str, Any]:
    """Make a valid run through Toxiproxy with clients of all kinds; return the bites of its link faults."""
    file = user.file(more=user.proxies(), faults__allowed='["jitter", "down"]', faults__most_targets="3")
    jitter = '[[fault]]\nfault = "jitter"\ntarget = "all"\nlatency = "60ms"\nthroughout = true\n'
    down = '[[fault]]\nfault = "down"\ntarget = "leader_of(orders, 0)"\nat = "1s"\nlasts = "1s"\n'
    scenario = user.scenario(jitter, down, duration="3s", all_kinds=True, **witnesses)
    done = user.do(user.run_command(scenario, file))

    assert done.returncode == ExitCode.VALID, done.stderr
    bites: dict[str, Any] = {
        event["fault"]: event["bite"] for event in events_of(user) if event["event"] == "injected"
    }
    assert min(bites["jitter"]["slower_ms"].values()) > 25
    assert bites["down"]["refused"] == 1
    assert user.left() == []
    return bites


@pytest.mark.parametrize("user", ["scram"], indirect=True)
def test_link_faults_use_a_toxiproxy_started_for_the_run(user: User, evidence: Callable[..., None]) -> None:
    bites = through_toxiproxy(user)
    changes = [line for line in user.audit() if line["action"] == "toxiproxy"]
    assert {line["method"] for line in changes} >= {"POST", "DELETE"}
    # The replay command in the verdict event repeats the options with which the user started the run.
    again = [event["replay"] for event in events_of(user) if event["event"] == "verdict"]
    scenario, file, typed = user.folder / "short.toml", user.folder / "cluster.toml", user.cluster.cluster_id
    where = f"--runs {user.folder / 'runs'} --state {user.folder / 'state'}"
    typed_again = f"--seed 1 --cluster {file} --i-understand {typed} {where}"
    assert again[0].startswith(f"eos run {scenario} {typed_again}   (")
    assert f"replay: {again[0]}" in user.output[-1]
    # The user did not consent to reading logs, so the report lists the logs that it cannot show.
    found = json.loads((user.latest() / "logs.json").read_text())
    assert found["shown"] == []
    assert [line.partition(":")[0] for line in found["not_shown"]] == [
        "coordinator entries of its transactions (__transaction_state)",
        "coordinator entries of its groups' positions (__consumer_offsets)",
        "the brokers' logs (nodes)",
    ]
    assert "evidence.logs in the cluster file does not list it" in (user.latest() / "report.html").read_text()
    assert [line for line in user.audit() if line["action"] == "read"] == []
    evidence(bites=bites, changes=len(changes), again=again[0], not_shown=found["not_shown"])


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("user", ["plain", "scram", "certificate"], indirect=True)
def test_every_login_method_works_for_clients_observer_spark_and_toxiproxy(
    user: User, evidence: Callable[..., None]
) -> None:
    bites = through_toxiproxy(user, witnesses='["spark", "reader", "raw-log"]')
    summary = json.loads((user.latest() / "summary.json").read_text())
    assert set(summary["witnesses"]) >= {"spark", "reader", "raw-log"}
    evidence(login=user.login, bites=bites, records=summary["records"])


@pytest.mark.parametrize("user", ["plain", "scram", "certificate", "token"], indirect=True)
def test_tools_for_any_cluster_log_in_with_a_properties_file_or_a_cluster_file(
    user: User, tmp_path_factory: pytest.TempPathFactory, evidence: Callable[..., None]
) -> None:
    topic = f"{PREFIX}searched"
    user.cluster.admin.create_topic(topic, [sorted(user.cluster.ports)] * 2)
    file = user.properties(tmp_path_factory.mktemp("properties"))
    for option in (("--command-config", file), ("--cluster", user.file())):
        done = user.do([str(EOS), "hanging", "--topic", topic, *map(str, option)])
        assert done.returncode == ExitCode.VALID, done.stderr
        assert done.stdout == "0 hanging in 1 topic\n"
        evidence(option=option[0], login=user.login, found=done.stdout)
    done = user.do([str(EOS), "facts", "--command-config", str(file), "--json"])
    facts = {fact["what"]: (fact["observed"], fact["comparison"]) for fact in json.loads(done.stdout)}
    assert facts["replicas of __transaction_state"] == ("3", "same"), done.stderr
    assert facts["transaction version"] == ("2", "same")
    denied = ("not read: CLUSTER_AUTHORIZATION_FAILED", "unknown")
    assert facts["longest transaction time-out"] == denied, "no right DescribeConfigs"
    assert "highest epoch" not in facts, "a probe would write to the cluster"
    assert done.returncode == ExitCode.UNKNOWN


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.parametrize("user", ["plain", "scram", "certificate", "token"], indirect=True)
@pytest.mark.parametrize(("reader", "where"), [("plain", "value"), ("plain", "header"), ("spark", "key")])
def test_records_are_verified_with_the_login_of_a_properties_file(
    user: User,
    reader: str,
    where: str,
    tmp_path_factory: pytest.TempPathFactory,
    evidence: Callable[..., None],
) -> None:
    topic = f"{PREFIX}verified"
    user.cluster.admin.create_topic(topic, [sorted(user.cluster.ports)] * 2)
    producer = Producer({"bootstrap.servers": user.cluster.servers})
    for identity in LaneEncoder("verified", 1, 0).batch(0, 200, 1, "c"):
        parts = {"value": b"x", "key": b"x", "headers": []}
        parts |= {"headers": [(HEADER, identity)]} if where == "header" else {where: identity}
        producer.produce(topic, partition=0, **parts)
    assert producer.flush(60) == 0
    file = user.properties(tmp_path_factory.mktemp("properties"))
    options = ["--topic", topic, "--reader", reader, "--where", where]
    done = user.do([str(EOS), "verify", "--command-config", str(file), *options])
    assert done.returncode == ExitCode.VALID, done.stdout + done.stderr
    assert "200 records in 1 lanes" in done.stdout
    evidence(login=user.login, reader=reader, where=where, found=done.stdout)


def test_without_an_unfaulted_path_the_verdict_is_unknown_with_the_reason(user: User) -> None:
    through = user.cluster.bootstrap("listen").split(",")
    with user.own_toxiproxy() as proxies:
        file = user.file(more=proxies, faults__allowed='["sever"]', cluster__bootstrap=json.dumps(through))
        sever = '[[fault]]\nfault = "sever"\ntarget = "one"\nat = "500ms"\nlasts = "200ms"\n'
        done = user.do(user.run_command(user.scenario(sever, duration="2s"), file))

    assert done.returncode == ExitCode.UNKNOWN, done.stderr
    summary = json.loads((user.latest() / "summary.json").read_text())
    assert summary["reasons"] == [
        "coverage: the observer has no unfaulted path: cluster.bootstrap leads through the faulted proxies"
    ]


NODE_FAULTS = {"kill": ("kafka-2", "start"), "pause": ("kafka-3", "resume"), "stop": ("kafka-2", "start")}
"""For each fault: the target node, and the verb of the [nodes] command that undoes the fault."""


@pytest.mark.parametrize(
    "kinds", [("kill", "pause"), pytest.param(("stop",), marks=pytest.mark.soak)], ids=["kill-pause", "stop"]
)
def test_the_users_commands_fault_brokers_only_with_separate_consent(
    user: User, kinds: tuple[str, ...], evidence: Callable[..., None]
) -> None:
    faults = [
        f'[[fault]]\nfault = "{kind}"\ntarget = "{NODE_FAULTS[kind][0]}"\nat = "{at}s"\nlasts = "1s"\n'
        for at, kind in enumerate(kinds, 1)
    ]
    scenario = user.scenario(*faults, duration="3s")
    allowed = {"faults__allowed": '["kill", "pause", "stop"]'}

    refused = user.do(user.run_command(scenario, user.file(more=user.nodes(), **allowed)))
    assert refused.returncode == ExitCode.REFUSED
    assert "kafka-2: leads" in refused.stderr
    assert "--move-foreign" in refused.stderr
    assert "till-7" in refused.stderr
    assert "bookkeeping" in refused.stderr
    assert "foreign partitions would be under-replicated" in refused.stderr

    file = user.file(more=user.nodes(), limits__foreign_under_replicated="100", **allowed)
    done = user.do(user.run_command(scenario, file, "--move-foreign"))
    assert done.returncode == ExitCode.VALID, done.stderr
    verbs = [(line["node"], line["verb"]) for line in user.audit() if line["action"] == "node"]
    # The audit log lists all foreign partitions, groups and transactional ids that the faults may move. The
    # console lists only a few of them.
    moved = {line["broker"]: line for line in user.audit() if line["action"] == "may move"}
    assert set(moved) == {"kafka-1", "kafka-2", "kafka-3"}
    assert {name for one in moved.values() for name in one["leaders"]} >= {"payments-0", "shipments-1"}
    assert [one["groups"] for one in moved.values()].count(["bookkeeping"]) == 1
    assert [one["transactional_ids"] for one in moved.values()].count(["till-7"]) == 1
    bites = {event["fault"]: event["bite"] for event in events_of(user) if event["event"] == "injected"}
    healed = {event["fault"]: event["took_s"] for event in events_of(user) if event["event"] == "healed"}
    assert set(bites) == set(healed) == set(kinds)
    for kind in kinds:
        node, undo = NODE_FAULTS[kind]
        # The node is external, so the harness can check only over the network whether the node is frozen or
        # gone.
        assert bites[kind] == (
            {"state": {node: "paused"}} if kind == "pause" else {"exit_code": {node: "does not answer"}}
        )
        assert {(node, kind), (node, undo)} <= set(verbs)
    assert all(user.cluster.serves(number) for number in user.cluster.ports)
    assert f"--move-foreign --runs {user.folder / 'runs'}" in done.stdout + done.stderr
    evidence(
        verbs=verbs,
        healed=healed,
        bites=bites,
        lists=[line for line in refused.stderr.splitlines() if "foreign" in line],
    )


def test_a_dry_run_reports_every_action_and_does_nothing(user: User) -> None:
    file = user.file(more=f"{user.proxies()}\n{user.nodes()}", faults__allowed='["jitter", "kill"]')
    jitter = '[[fault]]\nfault = "jitter"\ntarget = "one"\nlatency = "60ms"\nat = "1s"\n'
    kill = '[[fault]]\nfault = "kill"\ntarget = "kafka-3"\nat = "2s"\n'
    done = user.do(user.run_command(user.scenario(jitter, kill, all_kinds=True), file, "--dry-run"))

    assert done.returncode == ExitCode.REFUSED
    for output in (
        f"create {PREFIX}orders.RUN: 3 partitions, 3 replicas",
        "inject    1.0 s  for 5.0 s  jitter on one latency_ms=60",
        f"kill kafka-3: sh {user.cluster.folder}/node-3/kill.sh",
        "brokers hit at once: at most 1",
        "kafka-3: leads",
        f"--resource-pattern-type prefixed --transactional-id {PREFIX}",
        "refused: its node faults would move foreign resources",
    ):
        assert output in done.stdout
    assert PASSWORD not in done.stdout
    assert user.cluster.ours() == []
    assert user.left() == []
