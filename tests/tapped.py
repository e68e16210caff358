"""Fixtures of the suites that check single protocol steps: frames, evidence, topics, repeats in a soak."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.cluster import lifecycle
from harness.cluster.cluster import Cluster
from harness.cluster.state_directory import State
from harness.faults.heal import heal
from harness.tap import frame_lines
from harness.tap.tap_client import ensure_tap
from harness.testing.plugin import FAILED, backend, state_of_tests
from tests.frame_log_builder import logged

EVIDENCE = pytest.StashKey[Counter[Path]]()
_numbers = itertools.count(1)

Evidence = Callable[..., None]
Frames = Callable[[], list[frame_lines.Line]]

RESULTS = "soak.jsonl"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """In a soak, repeat the tests that depend on timing, to find failures as rare as one in twenty."""
    if metafunc.definition.get_closest_marker("timing") and metafunc.config.getoption("soak"):
        metafunc.fixturenames.append("repeat")
        metafunc.parametrize("repeat", range(1, metafunc.config.getoption("repeats") + 1))


@pytest.fixture(autouse=True)
def _result(request: pytest.FixtureRequest) -> Iterator[None]:
    """In a soak, append the outcome of each repeat to soak.jsonl in the cluster's state directory."""
    yield
    if request.config.getoption("soak") and request.node.get_closest_marker("timing"):
        outcome = "failed" if request.node.stash.get(FAILED, False) else "passed"
        line = {"at": time.strftime("%Y-%m-%dT%H:%M:%S"), "case": request.node.name, "outcome": outcome}
        with (state_of_tests().path / RESULTS).open("a") as file:
            file.write(json.dumps(line) + "\n")


@pytest.fixture
def evidence(request: pytest.FixtureRequest) -> Evidence:
    """Return a function that appends the findings of a test to evidence.jsonl in the state directory."""

    def note(**facts: object) -> None:
        line = json.dumps({"case": request.node.name} | facts, default=str)
        path = state_of_tests().path / "evidence.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        request.config.stash.setdefault(EVIDENCE, Counter())[path] += 1
        with path.open("a") as file:
            file.write(line + "\n")

    return note


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker of pytest-xdist, pass on how many observations it has written to which file."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        written = session.config.stash.get(EVIDENCE, Counter())
        output["evidence"] = {str(path): count for path, count in written.items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add the observations that a worker of pytest-xdist has written."""
    written = {Path(path): n for path, n in getattr(node, "workeroutput", {}).get("evidence", {}).items()}
    node.config.stash.setdefault(EVIDENCE, Counter()).update(written)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for path, count in terminalreporter.config.stash.get(EVIDENCE, Counter()).items():
        terminalreporter.line(f"observations of the cases: {path} (the last {count} lines)")


@pytest.fixture(scope="session")
def started_with_internal_tap(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Provide a second cluster, whose brokers reach each other through a wire tap."""
    shared = state_of_tests().path
    state = State(shared.with_name(f"{shared.name}-internal"))
    cluster, fresh = lifecycle.up(state, backend(request.config), "quick", print, internal_tap=True)
    if not fresh:
        heal(cluster, print)
    yield cluster
    if not request.config.getoption("keep"):
        lifecycle.down(state)


@pytest.fixture
def internal_cluster(request: pytest.FixtureRequest, started_with_internal_tap: Cluster) -> Iterator[Cluster]:
    """Provide the cluster with a tap between its brokers; it is healthy before and after the test."""
    yield started_with_internal_tap
    healed = heal(started_with_internal_tap, print)
    failed = request.node.stash.get(FAILED, False)
    assert failed or healed == 0, f"the test passed and left {healed} things that had to be healed"


@pytest.fixture
def make_topic(cluster: Cluster) -> Iterator[Callable[..., str]]:
    """Yield a function that creates topics with a given placement of replicas; delete them after the test."""
    made: list[str] = []

    def make(placement: list[list[int]] | int = 1, **settings: str) -> str:
        name = f"case{next(_numbers)}"
        given = {key.replace("_", "."): value for key, value in settings.items()}
        cluster.create_topic(name, placement, given)
        made.append(name)
        return name

    yield make
    cluster.delete_topics(made)


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """Return a topic of three partitions with three replicas; broker i + 1 leads partition i."""
    return make_topic(3)


@pytest.fixture
def frames(cluster: Cluster, tmp_path: Path) -> Iterator[Frames]:
    """Yield a function that returns the frame log lines of one test."""
    with logged(ensure_tap(cluster), tmp_path) as read:
        yield read
