"""Java is found on PATH or in JAVA_HOME; a missing or old one is an error with a hint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.base.errors import ExitCode, HarnessError, MachineError
from harness.provision.java import find_java

MakeJava = Callable[..., Path]


@pytest.fixture(autouse=True)
def _without_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    find_java.cache_clear()
    yield
    find_java.cache_clear()


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    def make(home: str, output: str) -> Path:
        java = tmp_path / home / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{output}\nEND\n")
        java.chmod(0o755)
        return java

    return make


@pytest.mark.parametrize(
    ("output", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('java version "21.0.1" 2023-10-17 LTS', 21),
        ('openjdk version "26-ea" 2026-03-17', 26),
    ],
)
def test_a_java_on_the_path_is_found(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, output: str, major: int
) -> None:
    java = make_java("path", output)
    monkeypatch.setenv("PATH", f"{java.parent}:/usr/bin:/bin")

    found = find_java()

    assert (found.executable, found.major) == (java, major)
    assert found.version == output.splitlines()[0]


def test_java_home_takes_precedence_over_the_path(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, path = make_java("home", 'openjdk version "21"'), make_java("path", 'openjdk version "17"')
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    monkeypatch.setenv("JAVA_HOME", str(home.parents[1]))
    assert find_java().executable == home


@pytest.mark.parametrize("output", ['openjdk version "11.0.2"', 'java version "1.8.0_392"', 'x version "16"'])
def test_an_old_java_is_refused_by_its_version(
    make_java: MakeJava, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    java = make_java("old", output)
    monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))
    with pytest.raises(HarnessError, match=rf"{java} is Java \d+, older than 17") as raised:
        find_java()
    assert "install a Java 17 or newer" in raised.value.hint


def test_a_missing_java_is_an_error_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="no java was found in PATH") as raised:
        find_java()
    assert "JAVA_HOME" in raised.value.hint
    assert raised.value.exit_code is ExitCode.REFUSED


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(HarnessError, match=f"no java was found in JAVA_HOME={tmp_path}"):
        find_java()


def test_unreadable_output_of_java_is_quoted(make_java: MakeJava, monkeypatch: pytest.MonkeyPatch) -> None:
    java = make_java("stub", "The operation could not be completed")
    monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))
    with pytest.raises(HarnessError, match="printed 'The operation could not be completed"):
        find_java()
