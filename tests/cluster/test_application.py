"""An application under test: the correct one is valid while it is killed, and wrong lines are found."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.base.errors import ExitCode
from harness.base.process_trees import find_tree
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.evidence.app_list import AppList
from harness.evidence.run_directory import RunDirectory
from harness.kafka.log.coordinator_log import OFFSETS_TOPIC
from harness.kafka.log.transaction_log import TRANSACTION_TOPIC
from harness.run import make_run
from harness.run.app_init import Wanted, calm_scenario, findings, run_calmly, scenario_text
from harness.run.run import Outcome, Run
from harness.scenario import load
from harness.scenario.plan import draw
from harness.testing.plugin import Ran
from tests.transactional.under_faults import lead

pytestmark = pytest.mark.cluster
EXAMPLE = Path(__file__).parents[2] / "examples" / "orders" / "orders.toml"
SHORTEST = {"plan.steady": "1s", "plan.duration": "2s", "plan.gap": "500ms"}
MISTAKES = {
    "no-rewind": "never_processed",
    "reads-uncommitted": "aborted_read",
    "output-outside": "processed_twice",
    "drops-orders": "never_processed",
}


def run_example(cluster: Cluster, folder: Path, mistake: str = "", **changes: str) -> Outcome:
    short = {"verify.witnesses": '["reader"]', "plan.duration": "8s", "app.env.MISTAKE": mistake}
    # The cluster's node tests kill brokers. Here, nearly every fault is on the application.
    scenario = load(EXAMPLE, short | {"fault.1.weight": "0.0001"} | changes)
    return make_run(cluster, scenario, draw(scenario, 3), folder).execute()


@pytest.mark.soak
def test_a_correct_application_is_valid_for_all_witnesses(cluster: Cluster, tmp_path: Path) -> None:
    outcome = run_example(
        cluster, tmp_path, **{"verify.witnesses": '["spark", "reader", "raw-log"]', "fault.1.weight": "1.0"}
    )

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    compared = {result.property: result.compared for result in outcome.judgement.results}
    assert compared["contract"] == compared["exactly_once"] > 500
    check_ends(cluster, outcome.directory)


def check_ends(cluster: Cluster, directory: Path) -> None:
    """Check how the processes of both instances ended, that none is left, and that there are their logs."""
    starts = RunDirectory.open(directory).read("app.json", AppList).starts
    # "killed": a call of the application's client library may take longer than the time to stop.
    assert {start.ended for start in starts} <= {"stopped", "killed", "by a fault", "by itself"}
    assert not find_tree(f"{cluster.state.apps}/")
    assert {file.name for file in (directory / "logs").iterdir()} >= {"app-1.log", "app-2.log"}


@pytest.mark.soak
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_line_is_found_by_name(cluster: Cluster, tmp_path: Path, mistake: str) -> None:
    outcome = run_example(cluster, tmp_path, mistake)

    assert outcome.exit_code is ExitCode.ANOMALY, outcome.judgement
    (contract,) = (result for result in outcome.judgement.results if result.anomalies)
    assert contract.property == "contract"
    assert MISTAKES[mistake] in [anomaly.name for anomaly in contract.anomalies]


def test_an_application_that_exits_at_once_is_described(cluster: Cluster, tmp_path: Path) -> None:
    changes = {"app.command.1": "no-such-file.py", "app.most_restarts": "2 in 60s", "app.backoff": "100ms"}
    outcome = run_example(cluster, tmp_path, **changes)

    assert outcome.exit_code is ExitCode.UNKNOWN, outcome.judgement
    reasons = [reason for result in outcome.judgement.results for reason in result.reasons]
    assert any("the application does not run: app-1 ended with exit code 2" in reason for reason in reasons)
    assert any("no-such-file.py" in reason for reason in reasons)


def run_faults(cluster: Cluster, folder: Path, faults: str, **changes: str) -> Outcome:
    """Run the example with these faults, written as lines of TOML, and with the plain consumer alone."""
    return faulty_run(cluster, folder, faults, **changes).execute()


def faulty_run(cluster: Cluster, folder: Path, faults: str, **changes: str) -> Run:
    """Return such a run before it begins."""
    text = EXAMPLE.read_text().partition("[plan]")[0]
    file = shutil.copytree(EXAMPLE.parent, folder / "app") / "faults.toml"
    file.write_text(f"{text}[plan]\nsteady = '1s'\nduration = '4s'\n{faults}")
    scenario = load(file, {"verify.witnesses": '["reader"]'} | changes)
    return make_run(cluster, scenario, draw(scenario, 3), folder)


def bites(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """Return what each fault of a run measured, by its name."""
    lines = (outcome.directory / "events.jsonl").read_text().splitlines()
    return {e["fault"]: e["bite"] for e in map(json.loads, lines) if e["event"] == "injected"}


def test_faults_on_an_application_bite_and_leave_it_valid(cluster: Cluster, tmp_path: Path) -> None:
    outcome = run_faults(
        cluster,
        tmp_path,
        """
        [[fault]]
        fault = "mute_client"
        target = "app(app-1)"
        at = "0s"
        lasts = "1s"
        [[fault]]
        fault = "scale_app"
        to = 3
        target = "app(*)"
        at = "1s"
        lasts = "1s"
        [[fault]]
        fault = "pause_app"
        target = "app(*)"
        pause = "300ms"
        at = "2s"
        lasts = "1s"
        """,
    )

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    measured = bites(outcome)
    assert measured["mute_client"]["session_ms"] == 6000
    assert measured["mute_client"]["muted"] == ["app-1"]
    assert measured["mute_client"]["removed_members"] == 1
    assert measured["scale_app"]["instances"] == ["app-1", "app-2", "app-3"]
    assert set(measured) == {"mute_client", "scale_app", "pause_app"}


@pytest.mark.parametrize(
    ("mistake", "anomalies"),
    [
        pytest.param("", [], id="correct"),
        pytest.param("no-rewind", ["never_processed"], marks=pytest.mark.soak),
    ],
)
def test_lost_outputs_make_an_application_abort_and_show_whether_it_goes_back(
    cluster: Cluster, tmp_path: Path, mistake: str, anomalies: list[str]
) -> None:
    """It never aborts by itself here, and no member leaves the group."""
    changes = {"verify.witnesses": '["reader"]', "plan.steady": "1s", "app.env.MISTAKE": mistake}
    scenario = load(EXAMPLE.parents[1] / "java" / "abort.toml", changes)
    outcome = make_run(cluster, scenario, draw(scenario, 1), tmp_path).execute()

    assert outcome.judgement.names() == anomalies, outcome.judgement
    assert outcome.exit_code is (ExitCode.ANOMALY if mistake else ExitCode.VALID)
    measured = bites(outcome)["lose_outputs"]
    assert measured["aborted"].startswith("billing.")
    assert measured["by"] == "the application"
    assert measured["lost_requests"] > 0
    assert measured["timeout_ms"] == 10_000
    starts = RunDirectory.open(outcome.directory).read("app.json", AppList).starts
    assert [start.number for start in starts] == [1, 1], "no instance was restarted"


@pytest.mark.soak
@pytest.mark.parametrize("past", ["session", "transaction"])
def test_an_application_is_frozen_until_a_coordinator_gives_it_up(
    cluster: Cluster, tmp_path: Path, past: str
) -> None:
    outcome = run_faults(
        cluster,
        tmp_path,
        f"""
        [[fault]]
        fault = "freeze_app"
        target = "app(*)"
        past = "{past}"
        at = "0s"
        lasts = "1s"
        [[fault]]
        fault = "jitter"
        target = "all"
        latency = "30ms"
        throughout = true
        [[fault]]
        fault = "roll_app"
        target = "app(*)"
        at = "1s"
        lasts = "1s"
        """,
    )

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    measured = bites(outcome)
    assert measured["freeze_app"]["aborted" if past == "transaction" else "removed_members"]
    assert measured["roll_app"]["restarted"] == ["app-1", "app-2"]


LEAVES = {
    "    while not stopped:\n": "    while True:\n",
    "        if messages:\n": (
        "        if stopped and messages:\n"
        "            consumer.commit(offsets=positions_after(messages), asynchronous=False)\n"
        "        if stopped:\n"
        "            break\n"
        "        if messages:\n"
    ),
}
"""A wrong way to stop: it commits the positions of orders that it has read and not processed."""


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["roll_app", "retire_app"])
@pytest.mark.parametrize(
    ("changes", "found"), [({}, []), (LEAVES, ["never_processed"])], ids=["correct", "leaves"]
)
def test_a_fault_that_stops_instances_shows_how_they_stop(
    cluster: Cluster, tmp_path: Path, changes: dict[str, str], found: list[str], fault: str
) -> None:
    text = EXAMPLE.with_name("app.py").read_text()
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    (tmp_path / "variant.py").write_text(text)
    outcome = run_faults(
        cluster,
        tmp_path,
        f"""
        [[fault]]
        fault = "{fault}"
        target = "app(*)"
        at = "1s"
        lasts = "1s"
        """,
        **{
            "app.command": json.dumps(["{python}", str(tmp_path / "variant.py")]),
            "verify.witnesses": '["reader", "raw-log"]',
        },
    )

    assert outcome.judgement.names() == found, outcome.judgement
    assert outcome.exit_code is (ExitCode.ANOMALY if found else ExitCode.VALID), outcome.judgement
    if fault == "roll_app":
        assert bites(outcome)[fault]["restarted"] == ["app-1", "app-2"]
    else:
        assert bites(outcome)[fault]["state"] == "gone"
        starts = RunDirectory.open(outcome.directory).read("app.json", AppList).starts
        ((retired, exit_code),) = [(s.instance, s.exit_code) for s in starts if s.ended == "by a fault"]
        assert exit_code == 0, "it stopped by itself, and was not killed"
        assert (retired, 2) in [(start.instance, start.number) for start in starts]


HELD_AND_KILLED = """
[[fault]]
fault = "hold_frame"
target = "all"
api = "AddOffsetsToTxn"
client_id = "app-1"
nth = 8
throughout = true
[[fault]]
fault = "kill"
target = "kafka-1"
at = "0s"
lasts = "12s"
"""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("hangs_s", "recovery"), [("20", "60s"), ("600", "20s")], ids=["watchdog", "no watchdog"]
)
def test_a_call_that_never_returns_needs_a_watchdog(
    cluster: Cluster, tmp_path: Path, hangs_s: str, recovery: str
) -> None:
    """While its request is held, the client removes the group coordinator from its brokers.

    When the client has sent the request again, it waits for this broker without a limit
    (tests/transactional/test_removed_coordinator.py). The requests before have put the broker into its cache.
    Another broker must coordinate the transactions. Otherwise the client first looks for a new one for them.
    """
    changes = {"app.env.HANGS_S": f'"{hangs_s}"', "app.instances": "1", "plan.steady": "5s"}
    changes["limits.recovery"] = recovery
    run = faulty_run(cluster, tmp_path, HELD_AND_KILLED, **changes)
    assert run.scenario.app is not None
    lead(cluster, OFFSETS_TOPIC, run.scenario.app.group, 1)
    lead(cluster, TRANSACTION_TOPIC, f"{run.scenario.app.group}-app-1", 2)
    outcome = run.execute()

    log = (outcome.directory / "logs" / "app-1.log").read_text()
    starts = RunDirectory.open(outcome.directory).read("app.json", AppList).starts
    ends = [(start.number, start.ended) for start in starts if start.instance == "app-1"]
    if hangs_s == "20":
        assert outcome.exit_code is ExitCode.VALID, outcome.judgement
        assert "Timeout (0:00:20)!" in log
        assert "in send_positions" in log
        assert ends[0] == (1, "by itself")
        assert ends[1:]
    else:
        assert outcome.judgement.names() == ["stalled"], outcome.judgement
        assert ends == [(1, "killed")]
        (stalled,) = (anomaly for result in outcome.judgement.results for anomaly in result.anomalies)
        assert any("app-1" in example.what for example in stalled.examples)


@pytest.mark.soak
def test_an_instance_starts_with_an_empty_disk_after_it_has_lost_it(cluster: Cluster, tmp_path: Path) -> None:
    script = "echo files: $(ls {state} | wc -l); date > {state}/born; exec {python} app.py"
    outcome = run_faults(
        cluster,
        tmp_path,
        """
        [[fault]]
        fault = "lose_disk"
        target = "app(app-1)"
        at = "0s"
        lasts = "1s"
        [[fault]]
        fault = "kill_app"
        target = "app(app-2)"
        at = "1s"
        lasts = "1s"
        """,
        **{"app.command": json.dumps(["sh", "-c", script])},
    )

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    assert bites(outcome)["lose_disk"]["lost_files"] == 1
    logs = [(outcome.directory / "logs" / f"app-{number}.log").read_text() for number in (1, 2)]
    assert [re.findall("^files: (.*)", log, re.MULTILINE) for log in logs] == [["0", "0"], ["0", "1"]]


def test_an_application_that_bypasses_the_proxies_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    direct = cluster.bootstrap(BrokerListener.DIRECT)
    outcome = run_example(cluster, tmp_path, **{"app.env.BOOTSTRAP": direct, "app.env.UNUSED": "{bootstrap}"})

    assert outcome.exit_code is ExitCode.REFUSED
    events = (outcome.directory / "events.jsonl").read_text()
    assert any(f"is connected to {address} " in events for address in direct.split(","))


UNDECLARED = """
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
import os
admin = AdminClient({"bootstrap.servers": os.environ["BOOTSTRAP"]})
name = os.environ["GROUP"].replace("billing", "audit")
admin.create_topics([NewTopic(name, 1, 3)])[name].result(20)
producer = Producer({"bootstrap.servers": os.environ["BOOTSTRAP"]})
producer.produce(name, b"note")
assert producer.flush(20) == 0
"""


REMEMBERED = """
LAST = {}


def remembered(order):
    LAST["order"] = order
    return order

"""


def test_bad_outputs_an_undeclared_topic_and_a_flooded_log_are_named(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Each of them makes the run unknown, with a reason of its own; the flooded log is only reported."""
    text = EXAMPLE.with_name("app.py").read_text()
    both = 'json.dumps({"last": LAST.get("order"), "invoice_for": remembered(content["order"])'
    changed = text.replace('json.dumps({"invoice_for": content["order"]', both)
    changed = changed.replace("\ndef invoice(", f"{REMEMBERED}\n\ndef invoice(")
    assert both in changed
    assert REMEMBERED in changed
    (tmp_path / "app.py").write_text(changed)
    (tmp_path / "audit.py").write_text(UNDECLARED)
    script = "{python} audit.py; yes flooding | head -c 3000000; exec {python} app.py"
    changes = {"app.directory": str(tmp_path), "app.command": json.dumps(["sh", "-c", script])}
    changes |= {"app.instances": "1", "app.limits.log": "200kB", "output.0.holds": "o.sum = i.amount"}
    outcome = run_example(cluster, tmp_path, **changes, **SHORTEST)

    assert outcome.exit_code is ExitCode.UNKNOWN, outcome.judgement
    reasons = [reason for result in outcome.judgement.results for reason in result.reasons]
    assert any("wrote 1 records to topic audit." in reason for reason in reasons)
    assert any("records of invoices" in reason and "contain different tokens" in reason for reason in reasons)
    assert any("holds 'o.sum = i.amount'" in reason and "sum" in reason for reason in reasons)
    log = outcome.directory / "logs" / "app-1.log"
    assert 100_000 < log.stat().st_size <= 200_000
    assert "bytes were dropped, because limits.log was reached" in log.read_text()
    assert "app-1 wrote more than limits.log permits" in (outcome.directory / "events.jsonl").read_text()


def test_an_application_that_is_never_ready_is_described(cluster: Cluster, tmp_path: Path) -> None:
    outcome = run_example(
        cluster,
        tmp_path,
        **{"app.command": '["sh", "-c", "echo waiting for godot; sleep 60"]', "app.limits.start": "4s"},
    )

    assert outcome.exit_code is ExitCode.UNKNOWN, outcome.judgement
    reasons = [reason for result in outcome.judgement.results for reason in result.reasons]
    never = "a partition of the inputs has no stable owner in group billing"
    assert any(never in reason and "waiting for godot" in reason for reason in reasons)


@pytest.mark.parametrize(
    "example", [pytest.param("java/invoices.toml", marks=pytest.mark.soak), "copier/copier.toml"]
)
def test_a_java_application_is_valid(cluster: Cluster, tmp_path: Path, example: str) -> None:
    changes = {"verify.witnesses": '["reader"]'} | SHORTEST
    scenario = load(EXAMPLE.parents[1] / example, changes | {"fault.0.weight": "1000.0"})
    outcome = make_run(cluster, scenario, draw(scenario, 1), tmp_path).execute()

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    assert "kill_app" in bites(outcome)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("mistake", "anomaly"), [("no-rewind", "never_processed"), ("reads-uncommitted", "aborted_read")]
)
def test_a_wrong_line_of_java_is_found_by_name(
    cluster: Cluster, tmp_path: Path, mistake: str, anomaly: str
) -> None:
    changes = {"verify.witnesses": '["reader"]', "app.env.MISTAKE": mistake}
    scenario = load(EXAMPLE.parents[1] / "java" / "invoices.toml", changes)
    outcome = make_run(cluster, scenario, draw(scenario, 2, 10.0), tmp_path).execute()

    assert outcome.exit_code is ExitCode.ANOMALY, outcome.judgement
    assert anomaly in outcome.judgement.names()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 21))
def test_the_copier_is_valid_under_every_seed(cluster: Cluster, tmp_path: Path, seed: int) -> None:
    scenario = load(EXAMPLE.parents[1] / "copier" / "copier.toml")
    outcome = make_run(cluster, scenario, draw(scenario, seed), tmp_path).execute()

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement


@pytest.mark.soak
def test_the_copier_needs_group_metadata_to_refuse_a_zombie(cluster: Cluster, tmp_path: Path) -> None:
    """Another instance has copied the records of a zombie when its positions arrive."""
    file, quick = EXAMPLE.parents[1] / "copier" / "zombie.toml", {"verify.witnesses": '["reader"]'}
    scenario = load(file, quick)
    with_metadata = make_run(cluster, scenario, draw(scenario, 1), tmp_path / "with").execute()
    assert with_metadata.exit_code is ExitCode.VALID, with_metadata.judgement
    assert bites(with_metadata)["freeze_app"]["removed_members"] == 1

    scenario = load(file, quick | {f"app.command.{len(scenario.app.command) - 1}": "--group-mode"})
    without = make_run(cluster, scenario, draw(scenario, 1), tmp_path / "without").execute()
    assert without.exit_code is ExitCode.ANOMALY, without.judgement
    assert "processed_twice" in without.judgement.names()


def test_an_application_is_watched_and_a_scenario_is_proposed(
    cluster: Cluster, tmp_path: Path, app_under_test: Callable[..., Ran]
) -> None:
    env = {name: f"{{{name.lower()}}}" for name in ("BOOTSTRAP", "GROUP", "INSTANCE")}
    env |= {"ORDERS": "{topic:orders}", "INVOICES": "{topic:invoices}"}
    wanted = Wanted(
        ["{python}", "app.py"], "orders", '{"order":"{id}","amount":{int 1..500}}', env, seconds=2
    )
    scenario = calm_scenario(wanted, EXAMPLE.parent)
    runs = [run_calmly(cluster, scenario, tmp_path, []) for _ in range(2)]

    found = {(each.about, each.text) for each in findings(runs, scenario) if not each.warning}
    assert ("reads", "orders as group app, read_committed, session time-out 6 s") in found
    assert ("writes", "invoices in transactions") in found
    assert ("tokens", "invoices: 1 for each input") in found
    assert not [each for each in findings(runs, scenario) if each.warning]

    proposed = EXAMPLE.with_name(f"proposed-{tmp_path.name}.toml")
    try:
        proposed.write_text(scenario_text(runs, scenario, "."))
        rare = {"fault.1.weight": "0.0001", "fault.2.weight": "0.0001"}
        short = {"verify.witnesses": '["reader"]'} | rare | SHORTEST
        ran = app_under_test(proposed, **{key.replace(".", "__"): value for key, value in short.items()})
    finally:
        proposed.unlink()
    assert ran.verdict == "valid", ran.judgement
    events = (ran.directory / "events.jsonl").read_text()
    assert "application: app.py " in events
    injected = [e["fault"] for e in map(json.loads, events.splitlines()) if e["event"] == "injected"]
    assert injected == ["kill_app"]
    check_ends(cluster, ran.directory)
