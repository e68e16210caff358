"""A wheel of this repository works outside a checkout, with every resource that it needs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.test_repo import ROOT
from tests.wheel import install_wheel

FIND_RESOURCES = """
from pathlib import Path
from harness.provision.paths import checkout_dir, resource, state_dir
from harness.provision.image_build import context_text
from harness.provision.jars import pinned_jars
from harness.report import page
from harness.clients.scripted.java_client import PROGRAM
from harness.witness.spark.spark_session import code_archive
from spark_jobs.jvm_class import SOURCES
assert checkout_dir() is None
names = ("docker-compose.yml", "toxiproxy/proxies.json", "docker/load.env")
names += ("jars.lock", "go.lock", "anomalies.md", "BrokerMetrics.java")
for name in names:
    assert resource(name).is_file(), name
compose = resource("docker-compose.yml")
assert (compose.parent / "toxiproxy" / "proxies.json").is_file()
for image in ("kafka", "nettools", "spark", "toxiproxy"):
    assert "FROM" in context_text(image)
assert pinned_jars() and PROGRAM.is_file() and code_archive(Path.cwd()).is_file()
assert {"FetchRanges", "FindTokens", "FoldRuns", "ReadRanges"} == {file.stem for file in SOURCES.iterdir()}
assert {"page.html", "index.html"} <= {p.name for p in (Path(page.__file__).parent / "templates").iterdir()}
print(compose)
print(state_dir("eos"))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment with the wheel; it uses the dependencies of the current environment."""
    return install_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def run(environment: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a command of the environment outside the checkout, with an empty home."""
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    if "JAVA_HOME" in os.environ:
        variables["JAVA_HOME"] = os.environ["JAVA_HOME"]

    def run(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [environment / "bin" / command, *arguments],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    return run


def test_every_resource_is_found_and_state_belongs_to_the_user(
    run: Callable[..., subprocess.CompletedProcess[str]], environment: Path, tmp_path: Path
) -> None:
    found = run("python", "-c", FIND_RESOURCES)
    assert found.returncode == 0, found.stderr
    compose, state = map(Path, found.stdout.split())
    assert compose.is_relative_to(environment.resolve())
    assert compose.read_bytes() == (ROOT / "docker-compose.yml").read_bytes()
    assert state == tmp_path / ".local" / "state" / "eos-harness" / "eos"


def test_commands_run_and_write_nothing_into_the_environment(
    run: Callable[..., subprocess.CompletedProcess[str]], environment: Path
) -> None:
    before = sorted(environment.rglob("*"))
    listed = run("eos", "list")
    assert listed.returncode == 0, listed.stderr
    assert "demo" in listed.stdout
    planned = run("eos", "plan", "demo", "--seed", "1")
    assert planned.returncode == 0, planned.stderr
    doctor = run("eos", "doctor", "--backend", "process")
    assert doctor.returncode in (0, 5), doctor.stderr  # exit code 5: this machine lacks what a run needs
    assert "Python" in doctor.stdout
    assert sorted(environment.rglob("*")) == before


def test_pytest_finds_the_plugin_by_its_entry_point(
    run: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    fixtures = run("python", "-m", "pytest", "--fixtures", "-q")
    assert "run_scenario" in fixtures.stdout, fixtures.stderr
    again = run("python", "-m", "pytest", "--fixtures", "-q", "-p", "harness.testing.plugin")
    assert "run_scenario" in again.stdout, again.stderr
