"""Kafka's command-line tools: their names, the arguments that the harness adds, and their class path."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.base.errors import HarnessError, RefusedError, UsageError
from harness.cli import tool_command as eos_tool
from harness.cluster import lifecycle
from harness.cluster.nodes import segments_in
from harness.cluster.state_directory import State
from harness.provision import kafka_tools
from harness.provision.java import Java
from harness.provision.kafka_tools import TOOLS, asks_cluster, decoder_of, find_tool, tool_command


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """Record each tool's name and arguments instead of running the tool. The brokers' address is host:1."""
    found: list[tuple[str, list[str]]] = []
    node = SimpleNamespace(segments=lambda partition, _: [Path(f"/d/{partition}/0.log"), Path("/d/1.log")])
    cluster = SimpleNamespace(bootstrap=lambda _: "host:1", node=lambda _: node)
    monkeypatch.setattr(lifecycle, "attach", lambda _: cluster)
    monkeypatch.setattr(eos_tool, "_run", lambda name, arguments, _: found.append((name, arguments)))
    return found


def run(*words: str) -> None:
    eos_tool.run_tool(State(Path("/nowhere")), words[0], list(words[1:]), print)


def test_a_tool_that_connects_gets_the_address_first(runs: list[tuple[str, list[str]]]) -> None:
    run("features", "describe")
    run("topics", "--list")
    assert runs == [
        ("features", ["--bootstrap-server", "host:1", "describe"]),
        ("topics", ["--bootstrap-server", "host:1", "--list"]),
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--bootstrap-server", "other:9092", "--list"],
        ["--bootstrap-server=other:9092"],
        ["--bootstrap-controller", "other:9093"],
        ["--help"],
        ["--version"],
    ],
)
def test_no_address_is_added_where_none_is_needed(
    runs: list[tuple[str, list[str]]], arguments: list[str]
) -> None:
    run("topics", *arguments)
    assert runs == [("topics", arguments)]
    assert not asks_cluster("topics", arguments)


def test_a_log_is_dumped_from_the_files_of_a_replica(runs: list[tuple[str, list[str]]]) -> None:
    run("dump-log", "kafka-1", "my-orders.v1-0", "--print-data-log")
    run("dump-log", "kafka-1", "__transaction_state-7")
    run("dump-log", "kafka-1", "__consumer_offsets-7", "--share-group-state-decoder")
    run("dump-log", "--files", "/mine/0.log")
    assert [arguments for _, arguments in runs] == [
        ["--files", "/d/my-orders.v1-0/0.log,/d/1.log", "--print-data-log"],
        ["--files", "/d/__transaction_state-7/0.log,/d/1.log", "--transaction-log-decoder"],
        ["--files", "/d/__consumer_offsets-7/0.log,/d/1.log", "--share-group-state-decoder"],
        ["--files", "/mine/0.log"],
    ]


@pytest.mark.parametrize(
    "words", [["kafka-1"], ["kafka-1", "orders"], ["kafka-1", "../orders-0"], ["kafka-1", "a/b-0"]]
)
def test_a_partition_is_a_topic_and_a_number(runs: list[tuple[str, list[str]]], words: list[str]) -> None:
    with pytest.raises(UsageError, match="needs a node and a partition") as raised:
        run("dump-log", *words)
    assert "eos tool dump-log kafka-1 orders-0" in raised.value.hint
    assert runs == []


def test_each_internal_topic_has_a_decoder() -> None:
    assert decoder_of("__transaction_state-49") == ["--transaction-log-decoder"]
    assert decoder_of("__consumer_offsets-0") == ["--offsets-decoder"]
    assert decoder_of("__cluster_metadata-0") == ["--cluster-metadata-decoder"]
    assert decoder_of("orders-0") == []


def test_an_unknown_tool_is_an_error_that_lists_the_tools() -> None:
    with pytest.raises(UsageError, match="there is no tool 'topic'") as raised:
        find_tool("topic")
    assert all(name in raised.value.hint for name in TOOLS)


def test_a_missing_cluster_is_refused_before_a_tool_runs(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no cluster is up"):
        eos_tool.run_tool(State(tmp_path), "topics", ["--list"], print)


@pytest.mark.parametrize("archive", [True, False])
def test_the_class_path_holds_the_jars_of_both_sets(
    archive: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_tools, "ensure_jars", lambda _, *sets: [Path(f"/{name}.jar") for name in sets])
    monkeypatch.setattr(kafka_tools, "find_java", lambda: Java(Path("/java"), 17, ""))
    file = tmp_path / "classes.jsa"
    monkeypatch.setattr(kafka_tools, "cached_runtime", lambda: SimpleNamespace(archive=file))
    if archive:
        file.touch()

    command = tool_command("features", ["describe"], print)

    assert command[0] == "/java"
    at = command.index("-cp")
    assert command[at + 1] == os.pathsep.join(["/kafka.jar", "/tools.jar"])
    assert command[at + 2 :] == ["org.apache.kafka.tools.FeatureCommand", "describe"]
    assert (f"-XX:SharedArchiveFile={file}" in command) is archive


def test_a_failing_tool_is_an_error_with_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eos_tool, "tool_command", lambda *_: ["sh", "-c", "exit 3"])
    with pytest.raises(HarnessError, match="Kafka's tool topics ended with exit code 3") as raised:
        eos_tool._run("topics", ["--lst"], print)
    assert "eos tool topics --help" in raised.value.hint
    eos_tool._run("topics", ["--help"], print)  # some tools print their help and then report a failure


def test_segments_are_in_the_order_of_their_offsets(tmp_path: Path) -> None:
    names = ["00000000000000000100.log", "00000000000000000000.log", "00000000000000000020.log"]
    for name in [*names, "00000000000000000000.index", "leader-epoch-checkpoint"]:
        (tmp_path / name).touch()
    assert [file.name for file in segments_in(tmp_path, "kafka-1", "t-0")] == sorted(names)
    with pytest.raises(UsageError, match="kafka-1 has no replica of t-9"):
        segments_in(tmp_path / "t-9", "kafka-1", "t-9")


def test_a_state_directory_after_the_name_is_refused_with_the_right_order(
    runs: list[tuple[str, list[str]]],
) -> None:
    with pytest.raises(UsageError, match="--state is an option of eos") as found:
        run("topics", "--list", "--state", "/tmp/x")
    assert found.value.hint.endswith("eos tool --state DIR topics")
    assert runs == []
