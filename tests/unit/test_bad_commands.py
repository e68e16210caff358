"""Wrong input of the newer commands and tables: exit code, a message with a hint, and nothing left behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.base.errors import UsageError
from harness.cli.main import main
from harness.scenario import find, load

APP = """
[scenario]
name = "orders"
shows = "x"
[app]
command = ["{python}", "-c", "pass", "{bootstrap}", "{group}", "{topic:orders}", "{topic:invoices}"]
group = "billing"
[[input]]
topic = "orders"
value = '{"order":"{id}","amount":{int 1..500}}'
[[output]]
topic = "invoices"
each = 1
"""
ROWS = APP.replace(', "{topic:invoices}"', "").replace('topic = "invoices"', 'table = "rows"')
PROPERTIES = {
    "jks": "security.protocol=SSL\nssl.truststore.location=x.jks\nssl.truststore.type=JKS\n",
    "oauth": "bootstrap.servers=b:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n",
    "nouser": "bootstrap.servers=b:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n",
    "empty": "",
    "garbage": "\x00\x01\x02",
    "typo": "bootstrap.servers=b:1\nsecurity.protcol=SSL\n",
}
INIT = "init --topic orders --value {id}"
WATCHED = "-- ./app {bootstrap} {group} {topic:orders} {topic:invoices}"

COMMANDS = [
    ("init", "COMMAND is missing"),
    ("init --topic orders -- ./app", "--value is missing"),
    (f"{INIT} -- ./app {{bootstrap}} {{topic:orders}}", "must contain {topic:...} for the input and"),
    (f"init --topic orders --value none {WATCHED}", "contains no {id}"),
    (f"{INIT} {WATCHED} {{nothing}}", "{nothing} is not a placeholder"),
    (f"{INIT} --for 0s {WATCHED}", "--for 0s is too short"),
    (f"{INIT} --for 40 {WATCHED}", "--for: '40' is not"),
    (f"{INIT} --env X {WATCHED}", "--env needs NAME=TEXT"),
    (f"{INIT} --rate 0 {WATCHED}", "--rate: 0 is not between 1 and"),
    (f"{INIT} --keys -1 {WATCHED}", "--keys: -1 is not between 0 and"),
    (f"{INIT} --write app.toml {WATCHED}", "app.toml exists"),
    (f"{INIT} --write /proc/x.toml {WATCHED}", "--write /proc is not writable"),
    (f"{INIT} --write empty.properties/x.toml {WATCHED}", "is a file"),
    (f"{INIT} --backend docker {WATCHED}", "--backend: 'docker' is not one of"),
    ("watch --metrics /nonexistent/eos.prom", "is in a folder that does not exist"),
    ("metrics runs/mine/latest --output /nonexistent/eos.prom", "is in a folder that does not exist"),
    ("new /proc/mine.toml", "is not writable"),
    ("new -x.toml", "eos new has no option -x"),
    ("audit --clock-skew abc", "--clock-skew: 'abc' is not"),
    ("audit --clock-skew -5s", "--clock-skew: '-5s' is not"),
    ("audit --cluster nothing.toml", "there is no file nothing.toml"),
    ("audit --cluster app.toml", "app.toml:2: scenario: there is no such key"),
    ("heal --cluster app.toml", "app.toml:2: scenario: there is no such key"),
    ("run jitter --kafka 4", "'4' is not a version of Kafka"),
    ("run jitter --kafka 4.3.1.1", "'4.3.1.1' is not a version of Kafka"),
    ("run jitter --kafka ../../etc", "'../../etc' is not a version of Kafka"),
    ("run jitter --kafka 3.6.0", "Kafka 3.6.0 is not among the versions"),
    ("run jitter --kafka 4.3.1 --cluster app.toml", "--kafka and --cluster exclude each other"),
    ("run jitter --kafka-image x --backend process --state fresh", "--kafka-image needs containers"),
    ("up --kafka-image x --backend process --state fresh", "--kafka-image needs containers"),
    ("up --kafka latest", "'latest' is not a version of Kafka"),
    ("demo --seed -1", "--seed: -1 is not between 0 and"),
    ("demo --runs app.toml", "is a file"),
    ("verify --topic x --command-config nothing", "nothing cannot be read"),
    ("verify --topic x --command-config folder", "folder cannot be read"),
    ("verify --topic x --command-config jks.properties", "JKS is not supported, only PEM is"),
    ("verify --topic x --command-config oauth.properties", "client.credentials.client.id: is missing"),
    ("hanging --command-config oauth.properties", "client.credentials.client.id: is missing"),
    ("verify --topic x --command-config nouser.properties", "has no username and password"),
    ("verify --topic x --command-config empty.properties", "--bootstrap is missing"),
    ("verify --topic x --command-config garbage.properties", "garbage.properties:1: not a property"),
    ("verify --topic x --command-config typo.properties", "security.protcol: is not supported"),
    ("verify --topic x --bootstrap b:1 --reader flink", "--reader: 'flink' is not one of"),
    ("facts --bootstrap b:1 --state fresh", "--state is for a cluster of `eos up`"),
    ("facts --command-config empty.properties", "--bootstrap is missing"),
    ("facts --cluster app.toml", "app.toml:2: scenario: there is no such key"),
    ("facts --bootstrap b", "'b' is not"),
    ("results garbage.properties", "has no line that can be read"),
    ("results folder", "folder cannot be read"),
    ("results folder --runs folder", "FILE and --runs are both given"),
    ("results --runs folder", "folder/results.jsonl"),
    ("index folder --runs folder", "RUNS and --runs are both given"),
    ("index --runs folder", "folder holds no run"),
    ("run app.tml", "there is no file 'app.tml'"),
    ("completion tcsh", "SHELL: 'tcsh' is not one of"),
    ("plan app.toml --set app.instances=two", "--set app.instances: must be a whole number"),
    ("plan app.toml --set app.env=5", "--set app.env: must be a table"),
    ("plan app.toml --set app.env.SHARE=5", "--set app.env.SHARE: must be a text in quotes"),
    ("plan app.toml --duration 1000h", "--duration: '1000h' is longer than 30 days"),
]

SCENARIOS = [
    (ROWS + "http = 'yes'\n", "output[0].http: must be true or false"),
    (ROWS + "http = true\ncommand = ['x']\n", "output[0]: has command and http"),
    (ROWS + "jdbc = 'jdbc:sqlite:x'\ndriver = 'a:b:1'\n", "output[0].query: is missing"),
    (ROWS + "jdbc = 'postgres://x'\nquery = 'select 1'\n", "is not the address of a database"),
    (ROWS + "jdbc = 'jdbc:x:y'\nquery = 'select 1'\ndriver = 'x.jar'\n", "'x.jar' names no jar"),
    (ROWS + "jdbc = 'jdbc:x:y'\nquery = 'select 1'\ndriver = 'a:b:1'\npassword = 'p'\n", "no"),
    (ROWS + "command = []\n", "output[0]: has no source"),
    (ROWS + "command = 'psql'\n", "output[0].command: must be a list"),
    (ROWS, "output[0]: has no source"),
    (ROWS + "command = ['x']\nquery = 'select 1'\n", "output[0].query: needs jdbc"),
    (APP.replace("each = 1", "each = -1"), "output[0].each: -1 is not"),
    (APP.replace("each = 1", "each = 'i.amount >'"), "output[0].each: is no SQL"),
    (APP + "expect = 'drop table orders'\n", "output[0].expect: is no SQL"),
    (APP + "holds = 'o.total = i.amout'\n", "there is no field i.amout"),
    (APP + "holds = '(amount > 1'\n", 'is no SQL: a ")" is missing at its end'),
    (APP + 'holds = "name = \'x"\n', "is no SQL: 'x is not closed"),
    (APP + "holds = 'amount >'\n", "is no SQL: something is missing at its end"),
    (APP + "ids = {a = 'nowhere'}\n", "there is no table nowhere"),
    (APP.replace("1..500", "500..1"), "{int 500..1} is not a range"),
    (APP.replace("value =", "keys = -3\nvalue ="), "input[0].keys: -3 is not allowed"),
    (APP.replace("value =", "encoder = 'nofile'\nvalue ="), "'nofile' names no function"),
    (APP.replace("value =", "aborted = 2.5\nvalue ="), "input[0].aborted: 2.5 is not allowed"),
    (APP.replace("[[input]]", "running = true\n[[input]]"), "is only for an application that the harness"),
    (APP.replace("[[input]]", "instances = 0\n[[input]]"), "app.instances: 0 is not allowed"),
    (APP.replace("[[input]]", "stop = 'SIGNOPE'\n[[input]]"), "the signals are SIGTERM"),
    (APP.replace("[[input]]", "directory = '/nope/x'\n[[input]]"), "is not a folder"),
    (APP.replace("[[input]]", "guarantee = 'at-most-twice'\n[[input]]"), "app.guarantee"),
    (APP + "[app.limits]\nmemory = '1XB'\n", "1XB"),
    (APP + "[app.ready]\nlog = '('\n", "is not a regular expression"),
    (APP + "[[fault]]\nfault = 'kill_app'\ntarget = 'app(other)'\n", "fault[0].target"),
    (APP + "[[fault]]\nfault = 'freeze_app'\ntarget = 'app(*)'\npast = 'sesion'\n", "past"),
    (APP + "[[fault]]\nfault = 'scale_app'\ntarget = 'app(*)'\nto = -1\n", "to"),
    (APP.replace("each = 1", "aggregates = {}"), "output[0].aggregates: there is no such key"),
    (APP.replace("[[input]]", "[input]"), "input: must be a list"),
    (APP + "[cluster]\nkafka = 'four'\n", "'four' is not a version of Kafka"),
]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the current folder, with a scenario, property files and a folder."""
    (tmp_path / "app.toml").write_text(APP)
    (tmp_path / "folder").mkdir()
    for name, text in PROPERTIES.items():
        (tmp_path / f"{name}.properties").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EOS_STATE", str(tmp_path / "state"))
    return tmp_path


def refused(
    line: str, desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """Run a command that must end with a usage error and leave no file; return its message."""
    before = sorted(desk.rglob("*"))
    monkeypatch.setattr(sys, "argv", ["eos", *line.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    output = capsys.readouterr()
    assert ended.value.code == 4, output.err
    message, hint = output.err.split("\n\nhint: ")
    assert hint.strip()
    assert output.out == ""
    assert sorted(desk.rglob("*")) == before
    return message


@pytest.mark.parametrize(("line", "message"), COMMANDS, ids=[line for line, _ in COMMANDS])
def test_a_wrong_command_is_refused(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    assert message in refused(line, desk, monkeypatch, capsys)


@pytest.mark.parametrize(
    ("text", "message"),
    SCENARIOS,
    ids=[f"{number} {message}" for number, (_, message) in enumerate(SCENARIOS)],
)
def test_a_wrong_table_of_an_application_is_refused(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (desk / "wrong.toml").write_text(text)
    assert message in refused("plan wrong.toml", desk, monkeypatch, capsys)


def allowed_keys(scenario: Path, table: str) -> list[str]:
    """Return the keys that the hint about a wrong key of a table offers."""
    with pytest.raises(UsageError, match="there is no such key") as error:
        load(scenario, {f"{table}.zzz": "1"})
    return error.value.hint.split(" are " if " are " in error.value.hint else " use ")[1].split(", ")


TABLES = [
    *("scenario", "cluster", "plan", "limits", "verify", "app", "app.limits", "app.ready"),
    *("input.0", "output.0", "output.0.window", "output.0.conserve", "workload.0", "walkthrough"),
]


@pytest.mark.parametrize("table", TABLES)
def test_a_hint_offers_only_keys_that_the_loader_reads(table: str, desk: Path) -> None:
    shipped = {"workload.0": "jitter", "walkthrough": "late-partition"}
    scenario = find(shipped[table]) if table in shipped else desk / "app.toml"
    keys = allowed_keys(scenario, table)
    for key in keys:
        with pytest.raises(UsageError) as error:
            load(scenario, {f"{table}.{key}": "1979-05-27"})  # a date is no value of any key
        assert "there is no such key" not in error.value.message, key
    assert len(keys) == len(set(keys)) > 0


@pytest.mark.parametrize(
    ("table", "key", "other"),
    [
        ("output.0", "is", "aggregates"),
        ("output.0", "conserve", "outputs"),
        ("output.0.conserve", "outputs", "conserve"),
        ("app", "command", "cores"),
        ("app.limits", "cores", "command"),
        ("app.ready", "fetch", "command_line"),
    ],
)
def test_a_hint_names_the_keys_of_the_table_as_they_are_written(
    table: str, key: str, other: str, desk: Path
) -> None:
    keys = allowed_keys(desk / "app.toml", table)
    assert (key in keys, other in keys) == (True, False)


def test_a_hint_names_the_keys_of_the_kind_of_client() -> None:
    workload = load(find("jitter")).workload
    number = [client.kind for client in workload].index("transactional")
    with pytest.raises(UsageError) as error:
        load(find("jitter"), {f"workload.{number}.client": "4"})
    assert "did you mean clients? transactional clients use " in error.value.hint
    assert "end_discipline" in error.value.hint
    assert not {"group", "source", "isolation"} & set(error.value.hint.replace(",", "").split())


def test_the_scenario_of_these_tests_is_a_good_one(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (desk / "app.toml").exists()
    monkeypatch.setattr(sys, "argv", ["eos", "plan", "app.toml"])
    main()
    assert "orders, seed" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["show", "plan"])
def test_a_scenario_for_the_brokers_of_an_external_cluster_can_be_read(
    command: str, desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (desk / "theirs.toml").write_text(APP + "[[fault]]\nfault = 'kill'\ntarget = 'kafka-7'\n")
    monkeypatch.setattr(sys, "argv", ["eos", command, "theirs.toml"])
    main()
    assert "kafka-7" in capsys.readouterr().out
