"""Scenario files: the shipped ones load, and each mistake is reported with its place and a remedy."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from harness.base.errors import UsageError
from harness.run.run_names import Names, rename_scenario
from harness.scenario import find, load, shipped
from harness.scenario.plan import draw

GOOD = """\
[scenario]
name = "mine"
shows = "an example"

[plan]
duration = "20s"

[[workload]]
kind = "transactional"
topic = "orders"

[[fault]]
fault = "jitter"
target = "all"
latency = "50ms"
lasts = ["2s", "5s"]
"""

# Each entry changes the valid scenario file. It contains the old text, the new text, the place that the error
# must name, and a part of the error's text.
MISTAKES = [
    pytest.param(
        'name = "mine"',
        "name = mine",
        "line 2",
        "put texts and durations in quotes",
        id="text-without-quotes",
    ),
    pytest.param("[plan]", "[plna]", "plna", "did you mean plan?", id="table-misspelt"),
    pytest.param(
        "duration =", "durration =", ":6: plan.durration", "did you mean duration?", id="key-misspelt"
    ),
    pytest.param('"20s"', '"20"', ":6: plan.duration", "'20' is not", id="duration-without-unit"),
    pytest.param('"20s"', "20", ":6: plan.duration", "20 is not", id="duration-as-number"),
    pytest.param('"20s"', '"20 parsecs"', ":6: plan.duration", '"500ms"', id="unknown-unit"),
    pytest.param(
        '"transactional"', '"transactoinal"', ":9: workload[0].kind", "transactoinal", id="kind-misspelt"
    ),
    pytest.param('topic = "orders"', "rate = 0", ":10: workload[0].rate", "one or more", id="rate-zero"),
    pytest.param('topic = "orders"', 'rate = "fast"', ":10: workload[0].rate", "int", id="rate-as-text"),
    pytest.param(
        'topic = "orders"', "abort_share = 1.5", "workload[0].abort_share", "below 1", id="share-above-1"
    ),
    pytest.param(
        'topic = "orders"', "transaction = [9, 3]", "workload[0].transaction", "fewest, most", id="range-back"
    ),
    pytest.param('topic = "orders"', 'payload = "1 cup"', "workload[0].payload", '"64kB"', id="unknown-size"),
    pytest.param(
        'topic = "orders"',
        'isolation = "read_committed"',
        "workload[0].isolation",
        "transactional clients do not use it",
        id="key-of-another-kind",
    ),
    pytest.param(
        '"transactional"', '"pipeline"', ":8: workload[0]", "needs source and group", id="pipeline-bare"
    ),
    pytest.param('"jitter"', '"jiter"', ":13: fault[0].fault", "did you mean jitter?", id="fault-misspelt"),
    pytest.param(
        "latency =", "latancy =", "fault[0].latancy", "did you mean latency?", id="parameter-misspelt"
    ),
    pytest.param(
        '"50ms"', "50", ":15: fault[0].latency", "write it with its unit", id="parameter-without-unit"
    ),
    pytest.param(
        '"all"', '"everyone"', ":14: fault[0].target", "leader_of(topic, partition)", id="unknown-target"
    ),
    pytest.param('target = "all"\n', "", "fault[0]", "target is missing", id="target-missing"),
    pytest.param('["2s", "5s"]', '["5s", "2s"]', "fault[0].lasts", "longer than the second", id="span-back"),
    pytest.param(
        "lasts =", 'throughout = true\nat = "3s"\nlasts =', "fault[0].at", "remove at", id="at-throughout"
    ),
    pytest.param(
        '"an example"',
        '"an example"\nexpect = "invalid"',
        "scenario.expect",
        "name anomalies",
        id="invalid-without-anomaly",
    ),
    pytest.param(
        '"an example"',
        '"x"\nexpect = "invalid"\nanomalies = ["abortet_read"]',
        "scenario.anomalies",
        "did you mean aborted_read?",
        id="anomaly-misspelt",
    ),
    pytest.param(
        '"jitter"\ntarget = "all"\nlatency = "50ms"',
        '"zombie"\ntarget = "all"',
        "fault[0].target",
        "client(",
        id="client-fault-on-brokers",
    ),
    pytest.param(
        'target = "all"', 'target = "client(*)"', ":14: fault[0].target", "a node", id="link-fault-on-client"
    ),
    pytest.param(
        '"jitter"\ntarget = "all"\nlatency',
        '"zombie"\ntarget = "client(*)"\npid',
        ":15: fault[0].pid",
        "zombie takes none",
        id="client-fault-with-parameter",
    ),
    pytest.param('target = "all"', "target = 5", ":14: fault[0].target", "5", id="target-as-number"),
    pytest.param(
        '"jitter"\ntarget = "all"\nlatency = "50ms"',
        '"hold_frame"\ntarget = "all"',
        "fault[0].api",
        "hold_frame needs api",
        id="frame-fault-without-api",
    ),
    pytest.param(
        '"jitter"\ntarget = "all"\nlatency = "50ms"',
        '"hold_frame"\ntarget = "all"\napi = "EndTx"',
        ":12: fault[0]",
        "EndTx",
        id="frame-fault-of-no-api",
    ),
]


@pytest.mark.parametrize(("old", "new", "where", "text"), MISTAKES)
def test_a_mistake_is_reported_with_its_place_and_a_hint(
    tmp_path: Path, old: str, new: str, where: str, text: str
) -> None:
    assert old in GOOD
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace(old, new))

    with pytest.raises(UsageError) as caught:
        load(path)

    message = str(caught.value)
    assert str(path) in message
    assert where in message
    assert text in message
    assert caught.value.hint


@pytest.mark.parametrize("table", ["fault", "workload", "scenario", "plan"])
def test_a_number_instead_of_a_table_is_a_usage_error(tmp_path: Path, table: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    with pytest.raises(UsageError, match=rf"^--set {table}: must be a (list|table), and not a whole number"):
        load(path, {table: "5"})


def test_a_file_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(GOOD.encode().replace(b"an example", "größer".encode("latin-1")))
    with pytest.raises(UsageError, match=r"mine\.toml: not UTF-8"):
        load(path)


def test_the_good_file_loads(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)

    scenario = load(find(str(path)))

    assert scenario.plan.duration == 20
    assert scenario.fault[0].parameters == {"latency_ms": 50}
    assert scenario.fault[0].lasts == (2, 5)


@pytest.mark.parametrize("path", shipped(), ids=lambda path: path.stem)
def test_a_shipped_scenario_loads_and_has_a_header_and_a_plan(path: Path) -> None:
    scenario = load(path)

    assert scenario.name == path.stem
    assert len(scenario.scenario.shows.split()) > 5
    plan = draw(scenario, 1)
    assert len(plan.steps) + len(plan.throughout) >= len(
        {f.fault for f in scenario.fault if f.at or f.throughout}
    )


@pytest.mark.parametrize("seed", range(20))
def test_drawn_faults_leave_the_times_of_fixed_ones_free(seed: int) -> None:
    changes = {
        "fault": [
            {"fault": "pause", "target": "one", "at": "4s", "lasts": "12s"},
            {"fault": "sever", "target": "one", "lasts": ["1s", "5s"]},
        ]
    }
    plan = draw(load(find("jitter"), {"plan.duration": "40s", **changes}), seed)

    assert [step.at for step in plan.steps if step.entry.fault == "pause"] == [4.0]
    assert len(plan.steps) > 2
    for first, second in itertools.pairwise(plan.steps):
        assert first.at + first.lasts <= second.at
    assert plan.delayed == ""


def test_the_same_seed_draws_the_same_plan_and_another_seed_another_plan() -> None:
    scenario = load(find("demo"), {"plan.duration": "300s", "fault": "[]"})
    changed = load(find("demo"), {"plan.duration": "300s"})

    assert draw(changed, 7) == draw(changed, 7)
    assert draw(changed, 7) != draw(changed, 8)
    assert draw(scenario, 7).steps == []


def test_set_changes_a_key_and_a_wrong_key_is_reported() -> None:
    assert load(find("demo"), {"workload.0.rate": "123"}).workload[0].rate == 123
    with pytest.raises(UsageError, match=r"--set workload\.9\.rate=1 names no key"):
        load(find("demo"), {"workload.9.rate": "1"})


def test_the_error_of_an_unknown_scenario_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean demo"):
        find("dmeo")


def test_topics_groups_and_targets_are_scoped_to_a_run() -> None:
    own = rename_scenario(load(find("demo")), Names("", "ab12cd34").scoped)

    assert {w.topic for w in own.workload} == {"clicks.ab12cd34", "orders.ab12cd34", "invoices.ab12cd34"}
    assert own.workload[2].source == "orders.ab12cd34"
    assert own.workload[2].group == "billing.ab12cd34"
    assert own.fault[1].target == "leader_of(orders.ab12cd34, 0)"


def test_the_names_of_a_run_map_back_to_those_of_the_scenario() -> None:
    names = Names("p-", "ab12cd34")
    scenario = load(find("demo"))
    assert rename_scenario(rename_scenario(scenario, names.scoped), names.unscoped) == scenario
    assert rename_scenario(scenario, names.unscoped) == scenario
    assert names.scoped("") == names.unscoped("") == ""
