"""Packages and programs of other languages: what lock files pin, and clear errors without the tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.app.launch_template import arguments
from harness.base.errors import MachineError
from harness.provision.client_programs import (
    go_program,
    java_classes,
    pinned_packages,
    python_packages,
    required_modules,
)
from harness.provision.paths import resource
from harness.run.environment import app_packages
from harness.scenario import load

APPS = Path(__file__).parents[2] / "apps"


def test_a_lock_file_of_pip_lists_its_packages() -> None:
    names = [
        package.partition("==")[0] for package in pinned_packages(APPS / "aiokafka" / "requirements.txt")
    ]
    assert names == ["aiokafka", "async-timeout", "packaging", "typing-extensions"]


def test_a_go_module_lists_what_it_requires_directly() -> None:
    names = [module.split()[0] for module in required_modules(resource("clients/go"))]
    assert names == [
        "github.com/IBM/sarama",
        "github.com/confluentinc/confluent-kafka-go/v2",
        "github.com/twmb/franz-go",
    ]


@pytest.mark.parametrize(
    ("scenario", "name"), [("aiokafka/aiokafka.toml", "aiokafka=="), ("franz-go/zombie.toml", "franz-go v")]
)
def test_a_run_records_the_packages_of_an_application(scenario: str, name: str) -> None:
    app = load(APPS / scenario).app
    assert app is not None
    assert name in app_packages(app)[0]


def test_arguments_of_a_placeholder_are_listed_once() -> None:
    assert arguments(["{go:b} {go:a}", "{go:a}{pip:c}", "{{go:d}}"], "go") == ["a", "b"]


def test_a_missing_tool_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="no go was found on PATH") as raised:
        go_program(APPS / "franz-go" / "app", print)
    assert raised.value.hint == "install Go 1.26 or newer"


@pytest.mark.jdk
def test_a_java_program_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = tmp_path / "Hello.java"
    program.write_text("public class Hello {}")
    reports: list[str] = []
    for _ in range(2):
        assert (java_classes(program, "4.4.0", "", reports.append) / "Hello.class").exists()
    assert len(reports) == 1
    program.write_text("public class Hello { wrong }")
    with pytest.raises(MachineError, match=r"Hello\.java:1: error"):
        java_classes(program, "4.4.0", "", reports.append)


@pytest.mark.soak  # pip asks the package index
def test_a_package_without_a_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lock = tmp_path / "requirements.txt"
    lock.write_text("aiokafka==0.14.0\n")
    with pytest.raises(MachineError, match="hashes") as raised:
        python_packages(lock, print)
    assert "nothing was installed" in raised.value.hint
