"""A shared healthy cluster for pytest, and scenarios as tests. `pytest -p harness.testing.plugin`.

    def test_orders_survive_a_leader_kill(run_scenario):
        ran = run_scenario("orders.toml", seed=7, plan__duration="30s")
        assert ran.verdict == "valid", ran.judgement

    --backend compose|process|auto   what runs the nodes
    --keep                           leave the cluster up at the end; the next session reuses it

One cluster serves the session, in a state directory of its own (EOS_TEST_STATE): a cluster of `eos up` is
left alone. Between tests it is healed and checked, never waited for by sleeping; what a passing test leaves
injected is that test's error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from harness.cluster import lifecycle
from harness.cluster.cluster import Cluster
from harness.cluster.state_directory import State
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.history import history_files
from harness.evidence.ledger import Ledger, fold
from harness.faults.heal import heal
from harness.provision.paths import state_dir
from harness.run import Outcome, make_run
from harness.scenario import Scenario, find, load
from harness.scenario.plan import draw

_BACKEND = pytest.StashKey[str]()
FAILED = pytest.StashKey[bool]()
"""Set on an item whose test failed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which back end, and whether the cluster stays."""
    group = parser.getgroup("eos", "exactly-once harness")
    group.addoption("--backend", choices=["auto", "compose", "process"], default="auto")
    group.addoption("--keep", action="store_true", help="leave the cluster up")


def backend(config: pytest.Config) -> str:
    """The back end of this session, looked for once."""
    if _BACKEND not in config.stash:
        asked = config.getoption("backend")
        config.stash[_BACKEND] = lifecycle.choose_backend(_say) if asked == "auto" else asked
    return config.stash[_BACKEND]


def state_of_tests() -> State:
    """The state directory of the session's cluster."""
    return State(Path(os.environ.get("EOS_TEST_STATE") or state_dir("eos-tests")))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Remember which tests failed: they may leave something behind."""
    report = yield
    if report.failed:  # type: ignore[attr-defined]
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The session's cluster; every test finds it healthy and must leave it healthy."""
    state = state_of_tests()
    started, fresh = lifecycle.up(state, backend(request.config), "quick", _say)  # type: ignore[arg-type]
    if not fresh:
        heal(started, _say)
    yield started
    if not request.config.getoption("keep"):
        lifecycle.down(state)


@pytest.fixture(autouse=True)
def _left_healthy(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test leaves behind is an error of the test, and is healed for the next."""
    yield
    if "cluster" not in request.fixturenames:
        return
    shared: Cluster = request.getfixturevalue("cluster")
    failed = request.node.stash.get(FAILED, False)
    if failed:
        lifecycle.keep_logs(shared.state, shared.record, request.node.name)
    left = heal(shared, _say)
    assert failed or left == 0, f"the test passed and left {left} things that had to be healed"


@dataclass(frozen=True)
class Ran:
    """A run that is over: how it ended, the verdict, and what its histories say of every record."""

    outcome: Outcome

    @property
    def verdict(self) -> str:
        """valid, unknown or invalid."""
        return str(self.outcome.judgement.verdict)

    @property
    def judgement(self) -> Judgement:
        """The verdict with all that led to it."""
        return self.outcome.judgement

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self.outcome.directory

    @cached_property
    def ledger(self) -> Ledger:
        """The fate of every record."""
        return fold(history_files(self.directory / "history"))


@pytest.fixture
def run_scenario(cluster: Cluster, tmp_path: Path) -> Callable[..., Ran]:
    """Run a scenario on the session's cluster: an object, a file, or a shipped one by name.

    `plan__duration="30s"` is `--set plan.duration=30s`.
    """

    def run(scenario: Scenario | Path | str, seed: int = 1, **changes: str) -> Ran:
        if not isinstance(scenario, Scenario):
            overrides = {key.replace("__", "."): value for key, value in changes.items()}
            scenario = load(find(str(scenario)), overrides)
        elif changes:
            raise TypeError("changes are for scenarios that are loaded: load this one with them")
        outcome = make_run(cluster, scenario, draw(scenario, seed), tmp_path / "runs", []).execute()
        if outcome.interrupted:
            raise KeyboardInterrupt  # the run took it for itself, and the session was meant
        return Ran(outcome)

    return run


def _say(line: str) -> None:
    print(line, file=sys.stderr)
