"""The tables [app], [[input]] and [[output]]: they load, and each mistake is reported with its remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.base.errors import UsageError
from harness.cluster.targets import Target
from harness.run.run_names import Names, rename_scenario
from harness.run.verification import expectation
from harness.scenario import load
from harness.scenario.app_parts import EachRule
from harness.scenario.plan import draw

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders" / "orders.toml"
GOOD = """\
[scenario]
name = "mine"
shows = "an example"

[app]
command = ["python", "app.py", "{bootstrap}", "{topic:orders}", "{topic:invoices}", "{file:app.yml}"]
env = { GROUP = "{group}" }
files = { "app.yml" = "port: {port:admin}" }
group = "billing"
instances = 2
ready = { port = "admin" }

[[input]]
topic = "orders"
value = "{id}"
keys = 5

[[output]]
topic = "invoices"
order = "key"

[[fault]]
fault = "kill_app"
target = "app(*-2)"
"""

MISTAKES = [
    pytest.param('"{bootstrap}", ', "", "app", "write {bootstrap}", id="no-bootstrap"),
    pytest.param('"{topic:orders}", ', "", "app", "write {topic:orders}", id="no-topic"),
    pytest.param("{topic:orders}", "{topic:order}", "app", "did you mean orders?", id="unknown-topic"),
    pytest.param("{bootstrap}", "{boostrap}", "app.command", "did you mean bootstrap?", id="misspelt"),
    pytest.param("{file:app.yml}", "{file:app.yaml}", "app", "did you mean app.yml?", id="unknown-file"),
    pytest.param("{bootstrap}", "{bootstrap}{jars:all}", "app", "{jars:FILE.lock}", id="unknown-jars"),
    pytest.param("{bootstrap}", "{bootstrap}{jars:a.lock}", "app", "write lines such as", id="no-lock-file"),
    pytest.param(
        "{bootstrap}", "{bootstrap}{pip:a.txt}", "app", "write it, or correct", id="no-requirements"
    ),
    pytest.param(
        'GROUP = "{group}" }', 'GROUP = "{group}{go:app}" }\nimage = "a"', "app", "into it", id="go-in-image"
    ),
    pytest.param(
        "instances = 2", 'internal = ["log-*"]', "app.internal[0]", "connect-{run}-*", id="topics-of-all-runs"
    ),
    pytest.param(
        "instances = 2", 'internal = ["{topic}-*"]', "app.internal[0]", "{run} and {group}", id="internal"
    ),
    pytest.param("{group}", "x", "app.group", "write {group}", id="no-group-placeholder"),
    pytest.param('group = "billing"\n', "", "app", "add group", id="no-group"),
    pytest.param("{port:admin}", "1", "app.ready", "write {port:admin}", id="unused-port"),
    pytest.param('{ port = "admin" }', '{ log = "[" }', "app.ready", "correct it", id="bad-pattern"),
    pytest.param('port = "admin" }', 'port = "admin", log = "x" }', "app.ready", "choose one", id="two"),
    pytest.param('{ port = "admin" }', '{ http = "x" }', "app.ready", "http://", id="bad-address"),
    pytest.param("instances = 2", "instances = 0", "app.instances", "one or more", id="no-instance"),
    pytest.param(
        "instances = 2", 'instances = 2\ndirectory = "nowhere"', "app.directory", "relative", id="no-folder"
    ),
    pytest.param("instances = 2", 'stop = "now"', "app.stop", "", id="bad-stop-rule"),
    pytest.param("instances = 2", 'most_restarts = "3"', "app.most_restarts", "", id="bad-limit"),
    pytest.param('value = "{id}"', 'value = "x"', "input[0].value", "order number", id="no-token"),
    pytest.param('value = "{id}"', 'value = "{id}{int 9}"', "input[0].value", "1..500", id="bad-field"),
    pytest.param("keys = 5", "aborted = 1.0", "input[0].aborted", "below 1", id="all-aborted"),
    pytest.param("keys = 5", "", "output[0].order", "add keys", id="order-without-keys"),
    pytest.param("keys = 5", 'key = "{key}"', "input[0].key", "add keys", id="key-without-keys"),
    pytest.param('order = "key"', 'order = "partition"', "output[0].order", '"key"', id="order-of-keys"),
    pytest.param('order = "key"', 'each = "0..0"', "output[0].each", "", id="each-none"),
    pytest.param('topic = "invoices"', 'topic = "orders"', "output[0].topic", "its own topic", id="twice"),
    pytest.param("app(*-2)", "app(app-3)", "fault[0].target", "app-1, app-2", id="unknown-instance"),
    pytest.param("app(*-2)", "one", "fault[0].target", "app(app-1)", id="a-node"),
    pytest.param('"kill_app"', '"kill"', "fault[0].target", "leader_of", id="a-node-fault-on-an-app"),
    pytest.param("keys = 5", 'headers = { a = "{int}" }', "input[0].headers.a", "1..500", id="header"),
    pytest.param("keys = 5", 'encoder = "x"', "input[0].encoder", "codec.py:encode", id="encoder"),
    pytest.param(
        "keys = 5", 'encoder = "x.py:y"\nencoder_command = ["x"]', "input[0].encoder", "remove", id="encoders"
    ),
    pytest.param(
        "keys = 5", 'encoder = "x.py:y"\ncolumns = ["x"]', "input[0].columns", "remove", id="encoded-csv"
    ),
    pytest.param("[[input]]", "[[inputs]]", "inputs", "did you mean input?", id="table-misspelt"),
]

OUTPUT = 'topic = "invoices"\norder = "key"\n'
JSON = GOOD.replace('value = "{id}"', """value = '{"order":"{id}","amount":{int 1..5},"to":{"city":"x"}}'""")
RUNNING = """\
[scenario]
name = "mine"
shows = "an example"

[app]
running = true
group = "billing"

[[input]]
topic = "orders"
value = "{id}"

[[output]]
topic = "invoices"

[[fault]]
fault = "kill"
target = "one"
"""
MORE = 'group = "billing"'
WRONG_RUNNING = [
    pytest.param(MORE, "", "app.group", "add group", id="no-group"),
    pytest.param(MORE, f'{MORE}\ncommand = ["x"]', "app.command", "remove command", id="command"),
    pytest.param(MORE, f"{MORE}\ninstances = 2", "app.instances", "remove instances", id="instances"),
    pytest.param(MORE, f'{MORE}\nready = {{ log = "x" }}', "app.ready", "remove ready", id="ready"),
    pytest.param(MORE, f"{MORE}\nlimits = {{ cores = 1 }}", "app.limits", "limits.start", id="limits"),
    pytest.param('"kill"\ntarget = "one"', '"kill_app"\ntarget = "app(*)"', "fault[0]", "nodes", id="fault"),
    pytest.param(
        'topic = "invoices"', 'topic = "x"\nreference = ["a"]', "output[0].reference", "start", id="reference"
    ),
    pytest.param('topic = "invoices"', 'table = "t"\nhttp = true', "output[0].http", "another", id="http"),
]


@pytest.mark.parametrize(("old", "new", "key", "hint"), WRONG_RUNNING)
def test_what_an_application_that_already_runs_cannot_have(
    file: Path, old: str, new: str, key: str, hint: str
) -> None:
    file.write_text(RUNNING.replace(old, new))
    with pytest.raises(UsageError) as raised:
        load(file)
    assert f"{key}: " in raised.value.message, raised.value
    assert hint in raised.value.hint, raised.value


def test_an_application_that_already_runs_has_names_without_the_run(file: Path) -> None:
    file.write_text(
        RUNNING.replace(MORE, f'{MORE}\nlimits = {{ start = "5s" }}\nguarantee = "at least once"')
    )
    names = Names("p-", "ab12cd34", plain=True)
    scenario = rename_scenario(load(file), names.scoped)
    assert list(scenario.app_topics) == ["p-orders", "p-invoices"]
    assert scenario.app is not None
    assert scenario.app.group == "p-billing"
    assert rename_scenario(scenario, names.unscoped).app == load(file).app


WRONG_SQL = [
    pytest.param('reference = ["kafka_offset"]', "reference", "only values", "fields", id="reference-place"),
    pytest.param('reference = ["a +"]', "reference", "is no SQL", "", id="reference-sql"),
    pytest.param('reference = ["a"]\ncolumns = ["a"]', "reference", "needs JSON", "", id="reference-csv"),
    pytest.param('ids = { a = "order" }', "ids", "no table order", "orders", id="ids-table"),
    pytest.param('ids = { a = "orders" }\neach = "amount"', "each", "with ids", "each = 1", id="ids-each"),
    pytest.param('ids = { a = "orders" }\nholds = "1"', "holds", "one token", "expect", id="ids-holds"),
    pytest.param('ids = { a = "orders" }\n', "order", "one token", "remove", id="ids-order"),
    pytest.param('each = "amout > 1"', "each", "no field amout", "did you mean amount?", id="each-field"),
    pytest.param(
        'each = "amount >"',
        "each",
        "is no SQL: something is missing at its end",
        "docs/application.md",
        id="each-syntax",
    ),
    pytest.param('each = "random()"', "each", "random is no function", "functions are", id="function"),
    pytest.param("each = '\"amount\" > 1'", "each", 'contains "', "`name`", id="double-quotes"),
    pytest.param('each = "amount; drop table i"', "each", "is no SQL", "", id="two-statements"),
    pytest.param('holds = "o.total = i.total"', "holds", "no field i.total", "fields are", id="holds-input"),
    pytest.param('holds = "total = 1"', "holds", "no field total", "fields are", id="holds-without-table"),
    pytest.param('holds = "x.y = 1"', "holds", "no field x.y", "", id="holds-other-table"),
    pytest.param('is = { n = "sum(x)" }', "is", "no field x", "amount", id="aggregate"),
    pytest.param('is = { n = "x.sum" }\nseen = "every"', "is", "no field x.sum", "", id="other-table"),
    pytest.param(
        'is = { n = "count(*) + 1" }\nseen = "every"', "is", "running value", "single", id="running"
    ),
    pytest.param('is = { n = "count(*)" }\nper = "who"', "per", "no field who", "amount", id="per"),
    pytest.param('per = "amount"', "per", "needs is", "add is", id="per-alone"),
    pytest.param('expect = "select x from orders"', "expect", "no field x", "amount", id="expect-field"),
    pytest.param('expect = "select 1 as n from order1"', "expect", "no table", "orders?", id="expect-table"),
    pytest.param('expect = "select amount * 2 from orders"', "expect", "no name", "add AS", id="no-alias"),
    pytest.param('last_by = "amount"', "last_by", "needs expect", "add expect", id="last-by-alone"),
    pytest.param(
        'repeatable = "amount > 1"', "repeatable", "needs unique", "add unique", id="repeatable-alone"
    ),
    pytest.param('conserve = { outputs = "sum(a)", inputs = "sum(b)" }', "conserve", "b", "", id="conserve"),
    pytest.param('table = "a b"', "table", "not a name", "letters", id="table"),
]


@pytest.mark.parametrize(("line", "key", "problem", "hint"), WRONG_SQL)
def test_wrong_sql_is_found_when_the_scenario_is_loaded(
    file: Path, line: str, key: str, problem: str, hint: str
) -> None:
    file.write_text(JSON.replace(OUTPUT, f"{OUTPUT}{line}\n"))
    with pytest.raises(UsageError) as raised:
        load(file)
    assert f"output[0].{key}: " in raised.value.message, raised.value
    assert problem in raised.value.message, raised.value
    assert hint in raised.value.hint, raised.value


@pytest.mark.parametrize(
    ("lines", "verbs"),
    [
        ('each = "amount > 1"', []),
        ('holds = "o.total = i.amount and o.city = i.to_city"', ["holds"]),
        ('is = { n = "count(*)" }\nper = "to_city"\nseen = "every"', ["is", "is every"]),
        ('expect = "select to_city as city, sum(amount) as n from orders group by to_city"', ["expect"]),
        ('conserve = { outputs = "sum(x)", inputs = "0" }', ["conserve"]),
    ],
)
def test_a_contract_in_sql_becomes_statements(file: Path, lines: str, verbs: list[str]) -> None:
    file.write_text(JSON.replace(OUTPUT, f"{OUTPUT}{lines}\n"))
    contract = expectation(rename_scenario(load(file), Names("", "r1").scoped)).contract
    assert contract is not None
    assert [statement.verb for statement in contract.statements] == verbs
    assert [table.name for table in contract.tables] == ["orders", "invoices"]
    assert [table.topic for table in contract.tables] == ["orders.r1", "invoices.r1"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    return path


@pytest.mark.parametrize(("old", "new", "place", "hint"), MISTAKES)
def test_a_mistake_is_reported_with_its_place_and_a_remedy(
    file: Path, *, old: str, new: str, place: str, hint: str
) -> None:
    assert old in GOOD
    file.write_text(GOOD.replace(old, new))
    with pytest.raises(UsageError) as raised:
        load(file)
    assert f"{place}: " in raised.value.message, raised.value
    assert hint in raised.value.hint, raised.value


def test_an_application_needs_inputs_and_outputs(file: Path) -> None:
    for table, wanted in (("input", "order"), ("output", "invoices")):
        before, _, rest = GOOD.partition(f"[[{table}]]")
        file.write_text(before + rest.partition("\n\n")[2])
        with pytest.raises(UsageError, match=f"{table}: is missing|unknown topic|contains {{topic:{wanted}"):
            load(file)


def test_inputs_need_an_application_and_exclude_workloads(file: Path) -> None:
    file.write_text(f'{GOOD}\n[[workload]]\nkind = "idempotent"\n')
    with pytest.raises(UsageError, match="workload: does not go together"):
        load(file)
    start, end = GOOD.index("[app]"), GOOD.index("[[input]]")
    file.write_text(f'{GOOD[:start]}[[workload]]\nkind = "idempotent"\n\n{GOOD[end:]}')
    with pytest.raises(UsageError, match="belongs to an application"):
        load(file)


def test_a_run_renames_topics_and_group_and_expects_the_contract(file: Path) -> None:
    scenario = load(file)
    assert scenario.app is not None
    assert scenario.app.directory == str(file.parent.resolve())
    renamed = rename_scenario(scenario, Names("", "r1").scoped)
    contract = expectation(renamed).contract
    assert contract is not None
    assert (contract.inputs, contract.group) == (["orders.r1"], "billing.r1")
    (output,) = contract.outputs
    assert (output.topic, output.least, output.most, output.order) == ("invoices.r1", 1, 1, "key")
    assert renamed.written_topics == ["invoices.r1", "orders.r1"]


@pytest.mark.parametrize(
    ("written", "least", "most"),
    [(1, 1, 1), ("1", 1, 1), ("0..1", 0, 1), ("1..", 1, None), ("0..", 0, None), ("2..3", 2, 3)],
    ids=["number", "text", "at-most-one", "at-least-one", "any", "range"],
)
def test_each_is_a_number_or_a_range(written: object, least: int, most: int | None) -> None:
    rule = EachRule.parse(written)
    assert (rule.least, rule.most) == (least, most)


@pytest.mark.parametrize("written", ["0", "3..2", "", "1..2..3", "-1", "1001", True, 1.5], ids=repr)
def test_other_values_of_each_are_errors(written: object) -> None:
    with pytest.raises(ValueError, match="is not"):
        EachRule.parse(written)


def test_a_target_names_an_instance() -> None:
    target = Target.parse("app(orders-*)")
    assert (target.app, target.client, target.process) == ("orders-*", None, "orders-*")
    assert target.most_brokers(3) == 0


def test_the_example_loads_and_has_a_plan() -> None:
    scenario = load(EXAMPLE)
    assert {step.entry.fault for seed in range(5) for step in draw(scenario, seed).steps} == {
        "kill_app",
        "kill",
    }
    assert scenario.app is not None
    assert os.path.isabs(scenario.app.directory)  # noqa: PTH117 - a text
