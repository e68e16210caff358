"""The cache that checkouts share: one command fills it, and what a killed one left is removed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from harness.provision.paths import cache_dir, cache_lock, scratch_dir


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_cache_is_where_the_system_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_dir() == tmp_path / "eos-harness"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir() == tmp_path / "home" / ".cache" / "eos-harness"
    assert cache_dir().is_dir()


def test_scratch_is_gone_afterwards_and_so_is_what_was_left() -> None:
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


def test_a_second_command_waits_for_the_first() -> None:
    order: list[str] = []
    asked, entered = threading.Event(), threading.Event()

    def second() -> None:
        asked.set()
        with cache_lock():
            order.append("second")
        entered.set()

    with cache_lock():
        thread = threading.Thread(target=second)
        thread.start()
        assert asked.wait(10)
        assert not entered.wait(0.1)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_another_lock_is_another_lock() -> None:
    with cache_lock(), cache_lock("images.lock"):
        assert {path.name for path in cache_dir().iterdir()} == {"lock", "images.lock"}
