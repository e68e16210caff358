"""Compose commands: a fixed set of variables, a time limit, and errors that quote the output."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from harness.base.errors import HarnessError
from harness.provision import compose
from harness.provision.compose import ComposeProject, write_env_file
from harness.provision.paths import resource


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    path = tmp_path / "compose.env"
    write_env_file(path, {"COMPOSE_PROJECT_NAME": "ours", "EOS_SUBNET": "10.1.2"})
    return path


def install_docker(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put a scripted `docker` command first on PATH."""
    command = folder / "bin" / "docker"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\ncd {folder}\n{script}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")


def test_a_start_uses_the_packaged_file_and_the_variables_of_the_env_file(
    env_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_docker(tmp_path, monkeypatch, 'env >variables; echo "$OLDPWD $*" >command')
    monkeypatch.setenv("COMPOSE_PROFILES", "others")
    monkeypatch.setenv("EOS_SUBNET", "10.9.9")
    monkeypatch.setenv("EOS_UNRELATED", "kept")

    ComposeProject(env_file).start()

    folder = resource("docker-compose.yml").parent
    command = (tmp_path / "command").read_text()
    assert command == f"{folder} compose -f docker-compose.yml --env-file {env_file} up --detach\n"
    variables = (tmp_path / "variables").read_text()
    assert "COMPOSE_" not in variables
    assert "EOS_SUBNET" not in variables
    assert "EOS_UNRELATED=kept" in variables
    assert os.environ["EOS_SUBNET"] == "10.9.9"


def test_services_of_a_profile_are_started_logged_and_removed(
    env_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_docker(tmp_path, monkeypatch, 'shift 5; echo "$*" >>commands; echo output')
    project = ComposeProject(env_file, ["spark-master"], ["spark"])

    project.start(wait=True)
    assert project.log("spark-master") == "output\n"
    project.remove()

    assert (tmp_path / "commands").read_text().splitlines() == [
        f"--env-file {env_file} up --wait spark-master",
        f"--env-file {env_file} logs spark-master",
        f"--env-file {env_file} down --volumes spark-master",
    ]


def test_a_failure_quotes_the_output(
    env_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    install_docker(tmp_path, monkeypatch, "echo port is already allocated >&2; exit 1")
    with pytest.raises(HarnessError, match="port is already allocated") as raised:
        ComposeProject(env_file).start()
    assert "eos doctor" in raised.value.hint
    assert capfd.readouterr().err == "", "testcontainers' own log lines are hidden"


def test_a_command_that_hangs_is_killed_at_the_time_limit(
    env_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_docker(tmp_path, monkeypatch, 'echo $$ >pid; exec "$0-hangs" "$@"')
    hanging = tmp_path / "bin" / "docker-hangs"
    hanging.write_text("#!/bin/sh\nwhile :; do read -r line </dev/zero; done\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(compose, "COMPOSE_LIMIT_S", 1)

    start = time.monotonic()
    with pytest.raises(HarnessError, match="start of `docker compose` did not end in 1 s"):
        ComposeProject(env_file).start()

    assert time.monotonic() - start < 30
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))
