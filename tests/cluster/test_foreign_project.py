"""A project of a user tests its application with the installed package, in an environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.testing.plugin import backend
from tests.wheel import install_wheel

pytestmark = pytest.mark.soak
EXAMPLE = Path(__file__).parents[2] / "examples" / "orders"
TEST = """\
import pytest


@pytest.mark.parametrize("seed", [1, 2])
def test_every_order_is_invoiced_once(app_under_test, seed):
    ran = app_under_test("eos/orders.toml", seed=seed, plan__duration="8s")
    assert ran.verdict == "valid", ran.judgement.names()


def test_a_wrong_line(app_under_test):
    ran = app_under_test("eos/orders.toml", seed=3, plan__duration="8s", app__env__MISTAKE="no-rewind")
    assert ran.verdict == "valid", ran.judgement.names()
"""
Ended = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment in which a user has installed the wheel."""
    return install_wheel(tmp_path_factory.mktemp("environment")) / "bin" / "python"


@pytest.fixture
def run_tests(python: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Ended]:
    """Return a function that runs the tests of a user's project in one of its folders."""
    project = tmp_path / "shop"
    for folder in ("shop", "eos", "tests"):
        (project / folder).mkdir(parents=True)
    (project / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "-ra"\n')
    (project / "tests" / "test_orders.py").write_text(TEST)
    shutil.copy(EXAMPLE / "app.py", project / "shop")
    text = (EXAMPLE / "orders.toml").read_text()
    (project / "eos" / "orders.toml").write_text(
        text.replace(
            'command = ["{python}", "app.py"]', 'command = ["{python}", "app.py"]\ndirectory = "../shop"'
        )
    )
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("EOS_", "PYTEST_"))
    }
    variables["XDG_STATE_HOME"] = str(tmp_path / "state")

    def run(folder: str, *arguments: str) -> Ended:
        command = [python, "-m", "pytest", "--backend", backend(request.config), *arguments]
        directory = project / folder
        return subprocess.run(
            command, cwd=directory, env=variables, capture_output=True, text=True, timeout=900, check=False
        )

    return run


def test_the_plugin_runs_the_scenario_of_a_project(run_tests: Callable[..., Ended]) -> None:
    correct = run_tests(".", "-k", "invoiced")

    assert correct.returncode == 0, correct.stdout + correct.stderr
    assert "2 passed, 1 deselected" in correct.stdout


def test_a_wrong_line_fails_with_its_anomaly_and_what_to_do(run_tests: Callable[..., Ended]) -> None:
    wrong = run_tests("tests", "-k", "wrong")

    assert wrong.returncode == 1, wrong.stdout + wrong.stderr
    assert "never_processed" in wrong.stdout
    (report,) = (line.split()[1] for line in wrong.stdout.splitlines() if line.startswith("report: "))
    assert Path(report).is_file()
    (replay,) = (line for line in wrong.stdout.splitlines() if line.startswith("replay: "))
    assert "orders.toml --seed 3 --set plan.duration=8s --set app.env.MISTAKE=no-rewind" in replay
    assert "application: app.py " in replay
