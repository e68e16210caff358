"""Scenarios that cannot work: each is an error with a hint when it is loaded, or when its plan is drawn."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from harness.base.errors import UsageError
from harness.base.strict_toml import choices_of, text_in
from harness.faults.catalogue import fault_classes
from harness.scenario import find, load, new_scenario
from harness.scenario.parameters import kind_of_parameter, parameter_value, parameters_of
from harness.scenario.plan import brokers_of_others, draw

WRONG = {
    "scenario.name": ("../../x", "/abs", "a b", "x" * 65, "a\x1b[31m", "a\nb", "", ".hidden"),
    "verify.witnesses": ("[]", '["stranger"]', "reader"),
    "workload.0.topic": ("my topic", "t\u00f6pic", "", "x" * 201, "a/b", "__consumer_offsets", ".", ".."),
    "workload.2.group": ("my group", "x" * 201, "__g"),
    "workload.2.source": ("stranger", "__consumer_offsets"),
    "workload.2.topic": ("orders",),
    "workload.0.rate": ("fast", "0", "-1", "1.5", "1000000000000000000", "true", "[]"),
    "workload.0.clients": ("0", "-1", "1000000", "many"),
    "workload.0.partitions": ("0", "1000000"),
    "workload.0.payload": ('"1GB"', "64", '"64 bananas"', '"-1B"'),
    "workload.0.burst": ("0", "1000000"),
    "workload.0.kind": ("sparc", "Idempotent", ""),
    "workload.0.settings": (
        '{"linger.msx" = 5}',
        '{acks = "lots"}',
        '{acks = "1"}',
        '{"linger.ms" = "soon"}',
        '{"bootstrap.servers" = "127.0.0.1:1"}',
        '{"client.id" = "me"}',
        '{"transactional.id" = "me"}',
        '{"linger.ms" = [5]}',
    ),
    "workload.1.settings": (
        '{acks = "0"}',
        '{"transaction.timeout.ms" = -1}',
        '{"enable.idempotence" = false}',
    ),
    "workload.2.settings": ('{"consumer.session.timeout" = 1}', '{"consumer.group.id" = "g"}'),
    "workload.1.transaction": ("[0, 5]", "[9, 5]", "[1]", "[1, 1000000]", "5"),
    "workload.1.abort_share": ("-0.1", "1.0", "nan", '"half"'),
    "workload.1.transaction_timeout": ('"16m"', '"1ms"', '"0s"', "20"),
    "workload.-1.rate": ("5",),
    "workload.first.rate": ("5",),
    "workload.9.rate": ("5",),
    "workload.99999999999999999999.rate": ("5",),
    "workload.0": ("5",),
    "plan.duration.x": ("3s",),
    "plan.": ("3s",),
    ".": ("3s",),
    "": ("", "5"),
    "plan.nothing": ("5",),
    "nothing": ("5",),
    "plan.duration": (
        "0s",
        "1us",
        "999ms",
        "99999h",
        "99999999999s",
        "9" * 400 + "s",
        "\N{ARABIC-INDIC DIGIT FIVE}s",
        "5",
        "5 parsecs",
        "-5s",
        "1e3s",
        "",
    ),
    "plan.gap": ('["5s", "2s"]', '["1s", "2s", "3s"]', "[]", "5"),
    "limits.recovery": ("0s", "never"),
    "fault.0.fault": ("jiter", "", "5"),
    "fault.0.weight": ("nan", "inf", "0", "-1", '"much"'),
    "fault.0.latency": ("5", '"5 bananas"', '"99999h"'),
    "fault.0.speed": ("5",),
    "fault.0.at": ('"3s"',),
    "fault.1.at": ('"1h"', '"30s"', '"-1s"'),
    "fault.1.target": (
        "leader_of(orders, 99)",
        "leader_of(stranger, 0)",
        "leader_of(orders)",
        "client(stranger)",
        "app(stranger)",
        "kafka",
        "everybody",
        "5",
        "",
    ),
    "fault.1.lasts": ('["5s", "2s"]', "5", '"soon"'),
    "input": ("[]x", "5"),
    "walkthrough.steps": ("nothing",),
}
WRONG_TRIES = [
    (key, value) for key in ("walkthrough.tries", "walkthrough.control_tries") for value in ("0", "1001")
]
CASES = [(key, value) for key, values in WRONG.items() for value in values]
WRONG_PARAMETERS = [
    # fault, its other parameters, the wrong parameter, the problem, the hint
    ("jitter", 'latency = "5ms"', 'stream = "up"', "'up' is not allowed", "allowed are upstream, downstream"),
    ("jitter", 'latency = "5ms"', "stream = 5", "must be a text in quotes", "upstream, downstream"),
    ("jitter", "", 'latency = "0ms"', "'0ms' is not allowed", "allowed: 1ms or more"),
    ("throttle", "", 'rate = "1B/s"', "'1B/s' is not allowed", "allowed: 1kB/s or more"),
    ("slow_some", 'latency = "5ms"', "share = 1.0", "1.0 is not allowed", "above 0 and below 1"),
    ("slow_some", 'latency = "5ms"', 'share = "half"', "must be a number", "such as 0.5"),
    ("lose_response_frame", 'api = "Produce"', 'then = "sielnce"', "'sielnce'", "did you mean silence?"),
    ("hold_frame", 'api = "Produce"', 'side = "answer"', "'answer'", "request, response"),
    ("hold_frame", 'api = "Produce"', 'listener = "DIRECT"', "'DIRECT'", "TAPPED, INTERNAL"),
    ("hold_frame", 'api = "Produce"', 'drop_client = "yes"', "must be true or false", "without quotes"),
    ("hold_frame", 'api = "Produce"', "client_id = 5", "must be a text in quotes, and not", "quotes"),
    ("hold_frame", 'api = "Produce"', 'nth = "first"', "must be a whole number", "such as 5"),
    ("partition", "", 'cut_from = "brokrs"', "'brokrs'", "did you mean brokers? allowed are brokers, contr"),
    ("partition", "", 'direction = "up"', "'up'", "in, out, both"),
    ("restart", "", 'hard = "yes"', "must be true or false, and not a text", "without quotes"),
    ("restart", "", "hard = 1", "must be true or false, and not a whole number", "without quotes"),
    ("lose_flows", "", 'carries = "Produce"', "'Produce'", "WriteTxnMarkers, Fetch"),
    ("lose_flows", "", "connections = 0", "0 is not allowed", "allowed: 1 or more"),
    ("freeze_app", "", 'past = "sesion"', "'sesion'", "did you mean session?"),
    ("scale_app", "", "to = true", "must be a whole number", "such as 5"),
    ("placement", 'topic="t"\npartition=0\nback=[1]', "on = []", "[] is not allowed", "1 or more entries"),
    ("placement", 'topic="t"\npartition=0\nback=[1]', 'on = ["1"]', "must be a whole number", "such as 5"),
]
TARGETS = {"freeze_app": "app(*)", "scale_app": "app(*)"}


@pytest.mark.parametrize(("key", "value"), CASES, ids=[f"{key}={value}"[:40] for key, value in CASES])
def test_a_wrong_value_is_an_error_with_a_hint_at_once(key: str, value: str) -> None:
    began = time.process_time()
    with pytest.raises(UsageError) as error:
        draw(load(find("jitter"), {key: value}), seed=1)
    assert time.process_time() - began < 1
    assert error.value.hint
    assert len(error.value.message) < 400
    for python in ("object", "msgspec", "`int`", "`str`", "NoneType", "Traceback", "index out of range"):
        assert python not in error.value.message


@pytest.mark.parametrize("case", WRONG_PARAMETERS, ids=[f"{case[0]}-{case[2]}" for case in WRONG_PARAMETERS])
def test_a_wrong_parameter_of_a_fault_is_an_error_with_its_line(
    tmp_path: Path, case: tuple[str, str, str, str, str]
) -> None:
    fault, others, wrong, problem, hint = case
    file = tmp_path / "mine.toml"
    entry = f'\n[[fault]]\nfault = "{fault}"\ntarget = "{TARGETS.get(fault, "one")}"\n{others}\n{wrong}\n'
    text = new_scenario.text_of("mine")
    file.write_text(text + entry)
    with pytest.raises(UsageError) as error:
        load(file)
    line = len((text + entry).splitlines())
    assert f"mine.toml:{line}: fault[3].{wrong.partition(' ')[0]}: " in error.value.message
    assert problem in error.value.message
    assert hint in error.value.hint


def test_every_parameter_with_choices_refuses_another_word() -> None:
    """Also those of a fault that is added later: the allowed words are those of its declaration."""
    refused = 0
    for fault in fault_classes():
        for field in parameters_of(fault).values():
            if choices := choices_of(kind_of_parameter(fault, field)):
                for choice in choices:
                    assert parameter_value(fault, field, choice) == choice
                with pytest.raises(UsageError) as error:
                    parameter_value(fault, field, "strange")
                assert error.value.hint.endswith(f"allowed are {', '.join(choices)}")
                refused += 1
    assert refused >= 15


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({"verify.witnesses": '["rawlog"]'}, "did you mean raw-log? allowed are reader, raw-log, spark"),
        ({"workload.2.protocol": "kip848"}, "allowed are classic, consumer"),
        ({"workload.2.positions": "outside"}, "did you mean inside? allowed are inside, apart"),
        ({"cluster.profile": "fast"}, "allowed are quick, load"),
        ({"workload.0.kind": "5"}, "allowed are idempotent, transactional, pipeline, reader"),
    ],
)
def test_a_wrong_word_is_an_error_with_the_allowed_words(changes: dict[str, str], allowed: str) -> None:
    with pytest.raises(UsageError) as error:
        load(find("jitter"), changes)
    assert error.value.hint == allowed


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"fault.1.lasts": '"0s"', "plan.gap": '"0s"'}, "fault[1].lasts"),
        ({"fault.1.lasts": '"10ms"', "plan.gap": '"20ms"'}, "fault[1].lasts"),
        ({"fault.1.fault": "crash_client", "fault.1.target": "client(stranger)"}, "fault[1].target"),
    ],
)
def test_values_that_are_wrong_together_are_an_error(changes: dict[str, str], key: str) -> None:
    with pytest.raises(UsageError) as error:
        load(find("jitter"), changes)
    assert key in error.value.message.replace("fault.1.", "fault[1].")


def test_an_error_after_set_names_the_option(tmp_path: Path) -> None:
    """The file is not wrong if --set replaced the key; another key of it may be, together with the option."""
    with pytest.raises(UsageError, match=r"^--set workload\.0\.rte: there is no such key"):
        load(find("jitter"), {"workload.0.rte": "5"})
    with pytest.raises(UsageError, match=r"jitter.toml:\d+: workload.0..rate: .*after --set workload.0.kind"):
        load(find("jitter"), {"workload.0.kind": "pipeline"})
    (tmp_path / "mine.toml").write_text(find("jitter").read_text().replace("rate", "rte"))
    with pytest.raises(UsageError, match=r"mine.toml:\d+: workload.0..rte: there is no such key"):
        load(tmp_path / "mine.toml")


def test_a_plan_without_an_end_is_refused() -> None:
    changes = {"fault.1.lasts": '"0s"', "plan.gap": '"100ms"', "plan.duration": "720h"}
    with pytest.raises(UsageError, match="more than 100000 faults"):
        draw(load(find("jitter"), changes), seed=1)


def test_two_workloads_whose_clients_would_have_the_same_names_are_refused(tmp_path: Path) -> None:
    text = find("jitter").read_text() + '\n[[workload]]\nkind = "idempotent"\ntopic = "clicks"\n'
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(UsageError, match=r"mine.toml:\d+: workload.3.: another workload has"):
        load(tmp_path / "mine.toml")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a = " + "[" * 2000 + "]" * 2000, "nested too deeply"),
        ("[scenario\n", "not TOML"),
        ("\ufeff[scenario]\nname = 'x'\nshows = 'y'\n", "workload: is missing"),
    ],
    ids=["nested", "torn", "byte order mark"],
)
def test_a_file_that_is_no_scenario_is_an_error(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=problem):
        load(tmp_path / "mine.toml")


def test_a_file_that_is_not_utf_8_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes("[scenario]\nname = 'x'".encode("utf-16"))
    with pytest.raises(UsageError, match="not UTF-8"):
        text_in(tmp_path / "mine.toml")


@pytest.mark.parametrize(
    ("name", "problem", "hint"),
    [
        ("JITTER", "there is no scenario 'JITTER'", "did you mean jitter?"),
        ("jiter", "there is no scenario 'jiter'", "did you mean jitter?"),
        ("/tmp", "/tmp is a folder", ""),
        ("none.toml", "there is no scenario file none.toml", ""),
        ("x" * 5000, "... (5000 characters)", ""),
        ("x" * 5000 + ".toml", "... (5005 characters)", ""),
    ],
    ids=lambda value: value[:20],
)
def test_a_scenario_that_is_not_there_is_an_error(name: str, problem: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        find(name)
    assert problem in error.value.message
    assert hint in error.value.hint


@pytest.mark.parametrize(("key", "value"), WRONG_TRIES)
def test_a_walkthrough_is_attempted_once_to_a_thousand_times(key: str, value: str) -> None:
    with pytest.raises(UsageError, match=rf"{key}.*{value} is not allowed") as error:
        load(find("late-partition"), {key: value})
    assert "from 1 to 1000" in (error.value.hint or "")
    assert load(find("late-partition"), {key: "1000"}).walkthrough is not None


def test_a_node_that_no_cluster_of_the_harness_has_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(new_scenario.text_of("mine").replace('target = "one"', 'target = "kafka-4"'))

    with pytest.raises(
        UsageError, match=r"mine\.toml:\d+: fault\[\d\]\.target: there is no node 'kafka-4'"
    ) as error:
        load(file)

    assert "kafka-1, kafka-2, kafka-3; an external cluster" in error.value.hint
    scenario = load(file, external=True)
    assert brokers_of_others(scenario).startswith("note: `eos run` refuses kafka-4 without --cluster")


def test_a_list_of_tables_that_is_written_as_one_table_is_explained(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[scenario]\nname = "x"\nshows = "x"\n[fault]\nfault = "kill"\ntarget = "one"\n')
    with pytest.raises(UsageError, match="fault: ") as error:
        load(file)
    assert error.value.hint == "write [[fault]], with two brackets"


@pytest.mark.parametrize(
    ("target", "problem", "meant"),
    [
        ("txn_coordinator(order-1)", "no client uses the transactional id 'order-1'", "orders-1"),
        ("txn_coordinator(clicks-1)", "no client uses the transactional id 'clicks-1'", "orders-1"),
        ("group_coordinator(biling)", "no client uses the group 'biling'", "billing"),
    ],
)
def test_a_coordinator_of_nothing_is_refused(target: str, problem: str, meant: str) -> None:
    with pytest.raises(UsageError, match=r"fault\.1\.target") as error:
        load(find("demo"), {"fault.1.target": target})
    assert problem in error.value.message
    assert meant in error.value.hint


CODECS = [("lz4", "lz4"), ("snappy", "python-snappy"), ("zstd", "zstandard")]


@pytest.mark.parametrize(("codec", "package"), CODECS)
@pytest.mark.parametrize("name", ["compression.type", "compression.codec"])
def test_a_codec_that_the_raw_log_cannot_read_here_is_refused(
    monkeypatch: pytest.MonkeyPatch, codec: str, package: str, name: str
) -> None:
    changes = {"workload.0.settings": f'{{"{name}" = "{codec}"}}'}
    monkeypatch.setattr(f"kafka.codec.has_{codec}", lambda: False)
    with pytest.raises(UsageError, match=rf"settings: the witness raw-log cannot read .* {package}") as error:
        load(find("jitter"), changes)
    assert f"install {package} into .venv" in error.value.hint
    assert load(find("jitter"), changes | {"verify.witnesses": '["reader", "spark"]'})


@pytest.mark.parametrize("codec", [*dict(CODECS), "gzip", "none"])
def test_a_codec_that_the_raw_log_can_read_is_accepted(monkeypatch: pytest.MonkeyPatch, codec: str) -> None:
    for name in dict(CODECS):
        monkeypatch.setattr(f"kafka.codec.has_{name}", lambda name=name: name == codec)
    assert load(find("jitter"), {"workload.0.settings": f'{{"compression.type" = "{codec}"}}'})
