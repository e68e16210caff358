"""Pytest plugin that runs scenarios as tests on a shared, healthy cluster.

pytest loads the plugin by its entry point. A test uses the fixture `run_scenario`:

    def test_orders_survive_a_leader_kill(run_scenario):
        ran = run_scenario("orders.toml", seed=7, plan__duration="30s")
        assert ran.as_expected

For an application under test, the fixture `app_under_test` does the same and refuses a file without [app]:

    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test_every_order_is_invoiced_once(app_under_test, seed):
        ran = app_under_test("eos/orders.toml", seed=seed)
        assert ran.as_expected

The plugin adds two options to pytest:

    --backend auto|compose|process   what runs the nodes
    --keep                           leave the cluster up at the end; the next session uses it again

A session has one cluster in its own state directory (EOS_TEST_STATE), separate from the cluster of `eos up`.
With pytest-xdist (`-n 2 --dist loadfile`) each worker has its own cluster, in a folder of that directory.
After each test the cluster is healed and checked. A test that passes but leaves a fault injected is an error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from harness.base.errors import ExitCode, UsageError
from harness.base.events import Event, VerdictEvent
from harness.cluster import lifecycle
from harness.cluster.cluster import Cluster
from harness.cluster.state_directory import BackendName, State
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.history import history_files
from harness.evidence.ledger import Ledger, fold
from harness.faults.heal import heal
from harness.provision.paths import state_dir
from harness.run import Outcome, make_run
from harness.run.factory import kafka_arguments
from harness.scenario import Scenario, find, load, shipped
from harness.scenario.plan import draw, format_replay_command

_BACKEND = pytest.StashKey[BackendName]()
FAILED = pytest.StashKey[bool]()
"""Stash key that marks the pytest items whose test failed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --backend and --keep."""
    group = parser.getgroup("eos", "exactly-once harness")
    group.addoption(
        "--backend", choices=["auto", "compose", "process"], default="auto", help="what runs the nodes"
    )
    group.addoption("--kafka", default="", metavar="VERSION", help="version of Kafka (default: 4.3.1)")
    group.addoption("--keep", action="store_true", help="leave the cluster up at the end")


def backend(config: pytest.Config) -> BackendName:
    """Return the back end of this session. For `auto`, choose it in the first call only."""
    if _BACKEND not in config.stash:
        name = config.getoption("backend")
        config.stash[_BACKEND] = lifecycle.choose_backend(_log) if name == "auto" else name
    return config.stash[_BACKEND]


def state_of_tests() -> State:
    """Return the state directory of the session's cluster, or of this worker of pytest-xdist."""
    directory = Path(os.environ.get("EOS_TEST_STATE") or state_dir("eos-tests"))
    return State(directory / os.environ.get("PYTEST_XDIST_WORKER", ""))


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the clusters of workers of pytest-xdist that ended before they could remove them."""
    if not config.getoption("numprocesses", None) or config.getoption("keep"):
        return
    for record in state_of_tests().path.glob("gw*/cluster.json"):
        lifecycle.down(State(record.parent))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Mark the tests that failed. They are allowed to leave a fault injected."""
    report = yield
    if report.failed:  # type: ignore[attr-defined]
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Provide the session's cluster, which is healthy before and after every test."""
    state = state_of_tests()
    started, fresh = lifecycle.up(
        state, backend(request.config), "quick", _log, kafka=request.config.getoption("kafka")
    )
    if not fresh:
        heal(started, _log)
    yield started
    if not request.config.getoption("keep"):
        lifecycle.down(state)


@pytest.fixture(autouse=True)
def _left_healthy(request: pytest.FixtureRequest) -> Iterator[None]:
    """Heal the cluster after a test, and fail a test that passed although something had to be healed."""
    yield
    if "cluster" not in request.fixturenames:
        return
    shared: Cluster = request.getfixturevalue("cluster")
    failed = request.node.stash.get(FAILED, False)
    if failed:
        lifecycle.keep_logs(shared.state, shared.record, request.node.name)
    healed = heal(shared, _log)
    assert failed or healed == 0, f"the test passed and left {healed} things that had to be healed"


@dataclass(frozen=True, repr=False)
class Ran:
    """A run that has ended: its verdict, its directory, and the fate of every record."""

    outcome: Outcome

    def __repr__(self) -> str:
        """Return a short text, which pytest prints if `assert ran.as_expected` fails."""
        return f"<{self.outcome.scenario}: {self.verdict}, exit code {self.exit_code}, {self.directory}>"

    @property
    def as_expected(self) -> bool:
        """Whether `eos run --expected` exits with 0.

        The verdict and the anomalies must be those that the scenario expects, and every limit must be held.
        """
        return self.outcome.exit_code_as_expected is ExitCode.VALID

    @property
    def exit_code(self) -> int:
        """The exit code of `eos run`: 0 valid, 1 invalid, 2 unknown, 3 valid but with a breached limit."""
        return int(self.outcome.exit_code)

    @property
    def verdict(self) -> str:
        """The verdict of the run as text: valid, unknown or invalid."""
        return str(self.outcome.judgement.verdict)

    @property
    def judgement(self) -> Judgement:
        """The verdict of the run, with the results of all properties and limits."""
        return self.outcome.judgement

    @property
    def directory(self) -> Path:
        """The run directory, which contains report.html and events.jsonl."""
        return self.outcome.directory

    @cached_property
    def ledger(self) -> Ledger:
        """The fate of every record of the run, computed from the histories."""
        return fold(history_files(self.directory / "history"))


@pytest.fixture
def run_scenario(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Callable[..., Ran]:
    """Return a function that runs a scenario on the cluster of the session.

    The scenario is a Scenario object, a file, or the name of a scenario that the harness contains. The path
    of a file is relative to the working directory, to the folder of the test, or to the root of the tests.
    pytest prints the verdict, the report's path and the replay command if the test fails.

    The argument `plan__duration="30s"` means `--set plan.duration=30s`.
    """

    def show(event: Event) -> None:
        if isinstance(event, VerdictEvent):
            text = f"{event.text.rstrip()}\nreport: {event.directory}/report.html\nreplay: {event.replay}"
            request.node.add_report_section("call", "run", text)

    def run(scenario: Scenario | Path | str, seed: int = 1, **changes: str) -> Ran:
        command = ""
        if not isinstance(scenario, Scenario):
            overrides = {key.replace("__", "."): value for key, value in changes.items()}
            file = find_file(request, scenario)
            scenario = load(file, overrides)
            more = kafka_arguments(cluster, scenario)
            name = file.stem if file in shipped() else shown(file)
            command = format_replay_command(name, seed, overrides, more=more)
        elif changes:
            raise TypeError("changes need a scenario by name or file: pass them to `load` instead")
        plan = draw(scenario, seed)
        made = make_run(cluster, scenario, plan, tmp_path / "runs", [show], replay_command=command)
        outcome = made.execute()
        if outcome.interrupted:
            raise KeyboardInterrupt  # the run has handled Ctrl-C, but the user also wants the session to end
        return Ran(outcome)

    return run


@pytest.fixture
def app_under_test(request: pytest.FixtureRequest, run_scenario: Callable[..., Ran]) -> Callable[..., Ran]:
    """Return a function that runs the scenario file of an application on the cluster of the session.

    Arguments are those of `run_scenario`. Raise UsageError if the file has no application.
    """

    def run(file: Path | str, seed: int = 1, **changes: str) -> Ran:
        if load(find_file(request, file)).app is None:
            raise UsageError(f"{file} has no application", "add [app], or use the fixture run_scenario")
        return run_scenario(file, seed, **changes)

    return run


def find_file(request: pytest.FixtureRequest, name: Path | str) -> Path:
    """Return the path of a scenario file that a test names, from wherever pytest was started."""
    folders = (request.path.parent, request.config.rootpath)
    candidates = [path for folder in folders if (path := folder / name).is_file()]
    written_as_path = str(name).endswith(".toml") or "/" in str(name)
    if written_as_path and candidates and not Path(name).exists():
        return candidates[0]
    return find(str(name))


def shown(file: Path) -> str:
    """Return a path relative to the working directory, where the replay command runs, if it is below it."""
    path = file.resolve()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _log(line: str) -> None:
    print(line, file=sys.stderr)
