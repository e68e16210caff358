"""`eos doctor`: each check can turn red or amber, names the problem, and gives a command to run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from harness.base.errors import ExitCode, HarnessError
from harness.cli import doctor
from harness.cli.doctor import Finding, examine
from harness.cli.main import cli
from harness.cluster import lifecycle
from harness.cluster.layout import preferred_ports
from harness.cluster.state_directory import ClusterRecord, State
from harness.faults.intents import open_journal
from harness.provision import docker_engine as wire_docker
from harness.provision import images
from harness.provision.java import Java
from harness.provision.toxiproxy_binary import ToxiproxyBinaries

UP = ClusterRecord(
    name="eos-1", backend="process", profile="quick", cluster_id="c", port_base=12_000, whole=True
)


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state")


@pytest.fixture(autouse=True)
def _a_healthy_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "archive").touch()
    monkeypatch.setattr(doctor, "find_java", lambda: Java(Path("/java"), 17, "17"))
    monkeypatch.setattr(wire_docker, "engine_problem", lambda: None)
    monkeypatch.setattr(wire_docker, "engine_version", lambda: "29.0")
    monkeypatch.setattr(wire_docker, "compose_version", lambda: "2.40")
    monkeypatch.setattr(lifecycle, "leftovers", lambda _: [])
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(doctor, "_available_memory_gb", lambda: 8.0)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=20e9))
    monkeypatch.setattr(doctor, "altered_jars", lambda _: [])
    monkeypatch.setattr(doctor, "cached_runtime", lambda: SimpleNamespace(archive=tmp_path / "archive"))
    binaries = ToxiproxyBinaries(tmp_path / "archive", tmp_path / "archive")
    monkeypatch.setattr(doctor, "toxiproxy_binaries", lambda: binaries)
    monkeypatch.setattr(images, "find_images", lambda: {"kafka": "k", "toxiproxy": "t", "nettools": "n"})
    monkeypatch.setattr(doctor, "port_taken", lambda _: False)
    monkeypatch.setattr(doctor, "choose_ports", preferred_ports)


def finding(findings: list[Finding], text: str) -> Finding:
    """Return the only finding that contains the text."""
    (match,) = (finding for finding in findings if text in finding.what)
    return match


def never(*_: object) -> object:
    raise HarnessError("it is not there", "install it")


def test_a_healthy_machine_is_green(state: State) -> None:
    found = examine(state, "auto")
    assert {f.grade for f in found} == {"green"}
    for what in (
        "Python",
        "Java 17",
        "Docker engine 29.0, compose plugin 2.40",
        "2 cores",
        "memory",
        "GB free at",
        "images",
        "clock",
    ):
        assert any(what in f.what for f in found), what
    assert any("are free" in f.what for f in found)


Change = Callable[[pytest.MonkeyPatch], None]
TURNS: dict[str, tuple[str, Change, str, str, str]] = {
    "no java": (
        "auto",
        lambda m: m.setattr(doctor, "find_java", never),
        "red",
        "it is not there",
        "install it",
    ),
    "no engine": (
        "auto",
        lambda m: m.setattr(wire_docker, "engine_problem", lambda: "no Docker engine answers"),
        "amber",
        "the process back end will be used",
        "scripts/install-docker.sh",
    ),
    "no engine for the compose back end": (
        "compose",
        lambda m: m.setattr(wire_docker, "engine_problem", lambda: "no Docker engine answers"),
        "red",
        "no Docker engine answers",
        "scripts/install-docker.sh",
    ),
    "one core": ("auto", lambda m: m.setattr(os, "cpu_count", lambda: 1), "amber", "1 core", "core"),
    "no memory": (
        "auto",
        lambda m: m.setattr(doctor, "_available_memory_gb", lambda: 2.0),
        "red",
        "2.0 GB of memory free, six nodes need 2.5",
        "end",
    ),
    "no disk": (
        "auto",
        lambda m: m.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=1e9)),
        "red",
        "1.0 GB free at",
        "df -h",
    ),
    "altered jar": (
        "auto",
        lambda m: m.setattr(doctor, "altered_jars", lambda _: [Path("/c/kafka-1.jar")]),
        "red",
        "jars with another hash than the pinned one: kafka-1.jar",
        "rm /c/kafka-1.jar",
    ),
    "no image": (
        "auto",
        lambda m: m.setattr(images, "find_images", lambda: {"kafka": None, "toxiproxy": "t"}),
        "amber",
        "will pull or build images: kafka",
        "eos up",
    ),
    "no class data": (
        "process",
        lambda m: m.setattr(doctor, "cached_runtime", lambda: SimpleNamespace(archive=Path("/nowhere"))),
        "amber",
        "will fetch and build Kafka and Toxiproxy",
        "eos up",
    ),
    "a clock that is slow": (
        "auto",
        lambda m: m.setattr(time, "time", lambda: 1e9),
        "red",
        "older than this program",
        "ntp",
    ),
    "the preferred ports are taken": (
        "auto",
        lambda m: (
            m.setattr(doctor, "port_taken", lambda port: port % 30 == 7),
            m.setattr(doctor, "describe_port_owner", lambda port: f"port {port}: process 7 (nginx)"),
        )[0],
        "amber",
        "process 7 (nginx)",
        "no action is needed",
    ),
    "no ports at all": (
        "auto",
        lambda m: m.setattr(doctor, "choose_ports", never),
        "red",
        "it is not there",
        "ss -ltnp",
    ),
}


@pytest.mark.parametrize("case", TURNS)
def test_each_finding_can_turn_amber_or_red(case: str, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    backend, change, grade, text, hint = TURNS[case]
    change(monkeypatch)

    turned = finding(examine(state, backend), text)  # type: ignore[arg-type]

    assert turned.grade == grade
    assert hint in turned.hint
    assert [f for f in examine(state, backend) if f.grade != "green"] == [turned]  # type: ignore[arg-type]


def attached(ailments: list[str]) -> Callable[[State], object]:
    return lambda _: SimpleNamespace(look=lambda: ailments)


def test_an_interrupted_start_is_amber(state: State) -> None:
    state.save(msgspec.structs.replace(UP, whole=False))
    found = finding(examine(state, "auto"), "was interrupted")
    assert (found.grade, found.hint) == ("amber", "eos down")


def test_a_cluster_whose_record_is_lost_is_red(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "leftovers", lambda _: [f"process {pid}: java" for pid in range(9)])
    found = finding(examine(state, "auto"), "without a record")
    assert (found.grade, found.what.count("java")) == ("red", 3)
    assert found.hint == f"eos down --force --state {state.path}"


def test_a_damaged_record_is_red_and_the_other_checks_still_run(state: State) -> None:
    state.save(UP)
    (state.path / "cluster.json").write_text("{")
    found = examine(state, "auto")
    damaged = finding(found, "cluster.json")
    assert damaged.grade == "red"
    assert "eos down --force" in damaged.hint
    assert any("Java" in f.what for f in found)


def test_a_running_cluster_needs_no_free_memory(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    state.save(UP)
    monkeypatch.setattr(lifecycle, "attach", attached([]))
    monkeypatch.setattr(doctor, "_available_memory_gb", lambda: 0.5)
    found = examine(state, "auto")
    assert {f.grade for f in found} == {"green"}
    assert finding(found, "a cluster runs in").grade == "green"


def test_an_unhealthy_cluster_is_red(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    state.save(UP)
    monkeypatch.setattr(lifecycle, "attach", attached([f"kafka-{i} is exited (137)" for i in (1, 2, 3, 4)]))
    found = finding(examine(state, "auto"), "not healthy")
    assert found.grade == "red"
    assert "kafka-3" in found.what
    assert "kafka-4" not in found.what
    assert "eos heal" in found.hint


def test_a_fault_that_was_not_healed_is_red(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    state.save(UP)
    monkeypatch.setattr(lifecycle, "attach", attached([]))
    with open_journal(state) as journal:
        journal.fault_intent("jitter", "one", ["kafka-2"], params={}, undo={"steps": []})
    found = finding(examine(state, "auto"), "not healed: jitter on kafka-2")
    assert (found.grade, found.hint) == ("red", "eos heal")


def test_red_means_that_a_run_cannot_start(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    run = CliRunner().invoke(cli, ["doctor", "--state", str(state.path)])
    assert run.exit_code == ExitCode.VALID
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert CliRunner().invoke(cli, ["doctor", "--state", str(state.path)]).exit_code == ExitCode.VALID

    monkeypatch.setattr(doctor, "find_java", never)
    refused = CliRunner().invoke(cli, ["doctor", "--state", str(state.path)])

    assert refused.exit_code == ExitCode.REFUSED
    assert "red    it is not there\n       hint: install it\n" in refused.output


def test_the_grade_is_readable_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    red = Finding("red", "no java", "install it")
    assert red.line(colour=False) == "red    no java\n       hint: install it"
    assert red.line(colour=True) == "\x1b[31mred  \x1b[0m  no java\n       hint: install it"
    monkeypatch.setenv("NO_COLOR", "")
    assert red.line(colour=True) == red.line(colour=False)


def test_the_process_back_end_needs_no_docker(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_docker, "engine_problem", lambda: "no Docker engine answers")
    assert finding(examine(state, "process"), "the process back end needs no Docker").grade == "green"
    assert finding(examine(state, "auto"), "the process back end will be used").grade == "amber"
