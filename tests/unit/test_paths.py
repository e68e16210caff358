"""Paths of the cache, the state directories and the package data."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from harness.provision import paths
from harness.provision.paths import cache_dir, cache_lock, checkout_dir, resource, scratch_dir, state_dir


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_dir() == tmp_path / "eos-harness"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir() == tmp_path / "home" / ".cache" / "eos-harness"
    assert cache_dir().is_dir()


def test_scratch_folders_are_removed_even_those_of_killed_commands() -> None:
    left = cache_dir() / "ivy-left"
    (left / "deep").mkdir(parents=True)
    other = cache_dir() / "go-other"
    other.mkdir()

    def fails() -> None:
        with cache_lock(), scratch_dir("ivy") as scratch:
            assert not left.exists()
            (scratch / "half").touch()
            raise KeyError

    with pytest.raises(KeyError):
        fails()

    assert sorted(path.name for path in cache_dir().iterdir()) == ["go-other", "lock"]


def test_a_second_command_waits_for_the_lock() -> None:
    order: list[str] = []
    waiting, entered = threading.Event(), threading.Event()

    def second() -> None:
        waiting.set()
        with cache_lock():
            order.append("second")
        entered.set()

    with cache_lock():
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        assert not entered.wait(0.1)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_locks_with_different_names_are_independent() -> None:
    with cache_lock(), cache_lock("images.lock"):
        assert {path.name for path in cache_dir().iterdir()} == {"lock", "images.lock"}


def test_the_state_directory_is_in_the_checkout() -> None:
    checkout = checkout_dir()
    assert checkout is not None
    assert (checkout / "pyproject.toml").is_file()
    assert state_dir("eos-demo") == checkout / ".eos-demo"


def test_the_state_directory_outside_a_checkout_belongs_to_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "checkout_dir", lambda: None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_dir("eos") == tmp_path / "eos-harness" / "eos"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_dir("eos") == tmp_path / ".local" / "state" / "eos-harness" / "eos"


def test_resources_of_a_checkout_are_the_files_at_its_top_level() -> None:
    assert resource("docker-compose.yml") == (checkout_dir() or Path()) / "docker-compose.yml"
    assert resource("toxiproxy/proxies.json") == (checkout_dir() or Path()) / "toxiproxy" / "proxies.json"
    with pytest.raises(FileNotFoundError, match=r"nothing\.yml is missing"):
        resource("nothing.yml")
