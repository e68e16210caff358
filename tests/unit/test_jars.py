"""The pinned jars: the lock file is well formed, and only jars with the pinned hash enter the cache."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from harness.base.errors import HarnessError, UsageError
from harness.provision import jars
from harness.provision.jars import (
    LOCK_FILE,
    altered_jars,
    class_path,
    ensure_app_jars,
    ensure_jars,
    kafka_lock,
    pin,
    pinned_jars,
    read_app_lock,
)
from harness.provision.kafka_versions import DEFAULT_KAFKA, NEWEST_CLIENT

LINES = [
    line
    for file in (kafka_lock(DEFAULT_KAFKA), LOCK_FILE)
    for line in file.read_text().splitlines()
    if line and not line.startswith("#")
]


@pytest.fixture
def one_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> jars.Jar:
    """Replace the lock file by one that pins a single jar, and return this jar.

    The cache is empty. Ivy is replaced by a stub that provides the jar's bytes.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    jar = jars.Jar("tools", "org.example", "thing", "1.0", hashlib.sha256(b"thing").hexdigest())
    monkeypatch.setattr(jars, "pinned_jars", lambda *_: [jar])
    fetches(monkeypatch, b"thing")
    return jar


def fetches(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Replace Ivy by a function that provides these bytes for every jar."""

    def resolve(wanted: list[jars.Jar], scratch: Path) -> Path:
        for jar in wanted:
            (scratch / jar.fetched_name).write_bytes(data)
        return scratch

    monkeypatch.setattr(jars, "_resolve", resolve)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.split()[1])
def test_every_line_of_the_lock_is_a_set_coordinates_and_a_hash(line: str) -> None:
    assert re.fullmatch(r"(kafka|client|tools|spark) [\w.-]+:[\w.-]+:[\w.-]+ [0-9a-f]{64}", line)


def test_every_jar_and_every_hash_is_pinned_once() -> None:
    pinned = pinned_jars()
    assert len(pinned) == len(LINES)
    assert len({(jar.jar_set, jar.group, jar.artifact) for jar in pinned}) == len(pinned)
    assert len({jar.sha256 for jar in pinned}) == len(pinned)
    assert len({jar.path for jar in pinned}) == len(pinned)


def test_the_class_path_of_tools_begins_with_that_of_brokers() -> None:
    brokers, tools = class_path("kafka"), class_path("kafka", "tools")
    assert tools[: len(brokers)] == brokers
    assert len(tools) > len(brokers)


def test_the_newest_client_has_a_class_path_of_its_own_with_the_pinned_logger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jars, "_ensure", lambda *_: None)
    newest = [path.name for path in jars.ensure_client(print, NEWEST_CLIENT)]
    assert f"kafka-clients-{NEWEST_CLIENT}.jar" in newest
    assert sorted(name.rpartition("-")[0] for name in newest) == [
        "kafka-clients",
        "slf4j-api",
        "slf4j-simple",
    ]
    assert jars.ensure_client(print, DEFAULT_KAFKA) == class_path("kafka")


def test_a_jar_is_fetched_once_and_verified(one_jar: jars.Jar) -> None:
    reports: list[str] = []
    assert ensure_jars(reports.append, "tools") == [one_jar.path]
    assert one_jar.path.read_bytes() == b"thing"
    assert len(reports) == 1
    assert "1 jars (tools)" in reports[0]

    assert ensure_jars(reports.append, "tools") == [one_jar.path]
    assert len(reports) == 1


def test_every_fetch_sets_the_same_mtime_because_class_data_records_it(one_jar: jars.Jar) -> None:
    ensure_jars(print, "tools")
    first = one_jar.path.stat().st_mtime
    one_jar.path.unlink()
    ensure_jars(print, "tools")
    assert one_jar.path.stat().st_mtime == first


def test_a_jar_with_other_bytes_is_refused_and_nothing_is_installed(
    one_jar: jars.Jar, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches(monkeypatch, b"thinG")

    with pytest.raises(HarnessError) as raised:
        ensure_jars(print, "tools")

    assert "org.example:thing:1.0 has SHA-256" in raised.value.message
    assert one_jar.sha256 in raised.value.message
    assert "nothing was installed" in raised.value.hint
    cache = one_jar.path.parents[1]
    assert list(cache.rglob("*.jar")) == []
    assert not list(cache.glob("ivy-*")), "the scratch folder is gone"


def test_with_one_bad_jar_no_jar_is_installed(one_jar: jars.Jar, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = jars.Jar("tools", "org.example", "other", "1.0", "0" * 64)
    monkeypatch.setattr(jars, "pinned_jars", lambda *_: [one_jar, bad])
    with pytest.raises(HarnessError, match=r"org\.example:other:1\.0 has SHA-256"):
        ensure_jars(print, "tools")
    assert not one_jar.path.exists()


def test_one_changed_byte_in_the_cache_is_detected(one_jar: jars.Jar) -> None:
    assert altered_jars(["tools"]) == []  # a jar that is not in the cache is not altered
    ensure_jars(print, "tools")
    assert altered_jars(["tools"]) == []

    one_jar.path.write_bytes(b"thinG")

    assert altered_jars(["tools"]) == [one_jar.path]
    assert altered_jars(["kafka"]) == []


def test_pinning_writes_only_missing_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lock = tmp_path / "jars.lock"
    kept = f"kafka a.b:old:1 {'0' * 64}\n"
    lock.write_text(f"# comment\n{kept}tools a.b:new:1 -\ntools a.b:new:11 -\n")
    fetches(monkeypatch, b"fetched")

    pin(lock)

    found = hashlib.sha256(b"fetched").hexdigest()
    assert lock.read_text() == f"# comment\n{kept}tools a.b:new:1 {found}\ntools a.b:new:11 {found}\n"


def test_a_failure_of_ivy_names_the_missing_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho '  :: org.example#thing;1.0: not found'\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setattr(jars, "find_java", lambda: jars_java(java))
    jar = jars.Jar("tools", "org.example", "thing", "1.0", "-")

    with pytest.raises(HarnessError, match=r"org\.example#thing;1\.0: not found") as raised:
        jars._resolve([jar], tmp_path)
    assert "network" in raised.value.hint


def jars_java(executable: Path) -> object:
    from harness.provision.java import Java

    return Java(executable, 17, "")


@pytest.fixture
def app_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the lock file of an application with one jar. Ivy is replaced, and the cache is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fetches(monkeypatch, b"thing")
    lock = tmp_path / "jars.lock"
    lock.write_text(f"# a comment\n\norg.example:thing:1.0 {hashlib.sha256(b'thing').hexdigest()}\n")
    return lock


def test_the_jars_of_an_application_are_fetched_once_and_verified_each_time(app_lock: Path) -> None:
    reports: list[str] = []
    (path,) = ensure_app_jars(reports.append, app_lock)
    assert path.read_bytes() == b"thing"
    assert path.name == "org.example--thing--1.0.jar"
    assert ensure_app_jars(reports.append, app_lock) == [path]
    assert len(reports) == 1

    path.write_bytes(b"thinG")
    with pytest.raises(HarnessError, match="does not have the SHA-256 that"):
        ensure_app_jars(reports.append, app_lock)


def test_a_jar_of_an_application_with_another_hash_is_not_installed(
    app_lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches(monkeypatch, b"thinG")
    with pytest.raises(HarnessError, match=r"org\.example:thing:1\.0 has SHA-256"):
        ensure_app_jars(print, app_lock)
    assert not read_app_lock(app_lock)[0].path.exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "No such file"),
        ("# nothing\n", "names no jar"),
        ("a:b:1\n", "is not coordinates and a SHA-256 hash"),
        ("kafka a:b:1 -\n", "is not coordinates and a SHA-256 hash"),
        (f"a:b:1 {'0' * 63}\n", "is not coordinates and a SHA-256 hash"),
        ("a:b -\n", "is not coordinates and a SHA-256 hash"),
        ("a:b:1 -\n", "pins no hash of a:b:1"),
    ],
)
def test_a_bad_lock_file_of_an_application_is_refused(app_lock: Path, text: str | None, problem: str) -> None:
    if text is None:
        app_lock.unlink()
    else:
        app_lock.write_text(text)
    with pytest.raises(UsageError) as raised:
        ensure_app_jars(print, app_lock)
    assert problem in raised.value.message
    assert raised.value.hint


def test_hashes_of_an_application_are_pinned(app_lock: Path) -> None:
    kept = app_lock.read_text()
    app_lock.write_text(f"{kept}a.b:new:1.0  -\na.b:new:1.01 -\n")

    pin(app_lock, read_app_lock)

    found = hashlib.sha256(b"thing").hexdigest()
    assert app_lock.read_text() == f"{kept}a.b:new:1.0  {found}\na.b:new:1.01 {found}\n"
