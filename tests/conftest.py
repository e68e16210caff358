"""One cluster for the whole session, reset between tests by healing and checked health, never by sleeping.

pytest --backend compose|process|auto    what runs the nodes
pytest --soak                            also the long repeats and properties
pytest --keep                            leave the cluster up at the end; the next session reuses it
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import lifecycle
from harness.cluster.backend import Capability, capabilities_of
from harness.cluster.cluster import Cluster
from harness.cluster.state import State, default_state
from harness.faults.heal import heal
from harness.wire.docker import engine_problem

BACKEND = pytest.StashKey[str]()
PART_SECONDS = pytest.StashKey[dict[str, float]]()
FAILED = pytest.StashKey[bool]()
# Fast and pure first: a broken fold is told before a cluster is started for it.
ORDER = ("unit", "planted", "property", "cluster", "spark")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("eos")
    group.addoption("--backend", choices=["auto", "compose", "process"], default="auto")
    group.addoption("--soak", action="store_true", help="also run what is marked soak")
    group.addoption("--keep", action="store_true", help="leave the cluster up")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "engine: deselected where no Docker engine answers")
    config.addinivalue_line("markers", "needs(*capabilities): deselected on a back end that lacks one")
    config.stash[PART_SECONDS] = defaultdict(float)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: ORDER.index(part_of(item)) if part_of(item) in ORDER else len(ORDER))
    reasons: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not config.getoption("soak") and item.get_closest_marker("soak"):
            reasons["long: run with --soak (make soak)"].append(item)
            continue
        if item.get_closest_marker("engine") and (problem := engine_problem()):
            reasons[problem].append(item)
            continue
        for marker in item.iter_markers("needs"):
            for capability in map(Capability, marker.args):
                if capability not in capabilities_of(backend(config)):
                    reasons[f"the {backend(config)} back end cannot {capability}"].append(item)
    deselected = {id(item) for group in reasons.values() for item in group}
    items[:] = [item for item in items if id(item) not in deselected]
    for reason, group in reasons.items():
        config.hook.pytest_deselected(items=group)
        config.get_terminal_writer().line(f"deselected {len(group)}: {reason}")


def part_of(item: pytest.Item) -> str:
    """The folder under tests/ that a test is in."""
    return item.path.relative_to(Path(__file__).parent).parts[0]


def backend(config: pytest.Config) -> str:
    """The back end of this session, looked for once."""
    if BACKEND not in config.stash:
        asked = config.getoption("backend")
        config.stash[BACKEND] = lifecycle.choose_backend(say) if asked == "auto" else asked
    return config.stash[BACKEND]


def say(line: str) -> None:
    print(line, file=sys.stderr)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    part = Path(report.location[0]).parts[1:2]
    _config.stash[PART_SECONDS][part[0] if part else "?"] += report.duration


def pytest_sessionstart(session: pytest.Session) -> None:
    global _config  # noqa: PLW0603  # the report hook is not given the session
    _config = session.config


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("seconds per part")
    for part, seconds in terminalreporter.config.stash[PART_SECONDS].items():
        terminalreporter.line(f"{seconds:7.1f}  {part}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed:  # type: ignore[attr-defined]
        item.stash[FAILED] = True
    return report


def test_state() -> State:
    """A state directory of the tests' own: a user's cluster is left alone."""
    return State(Path(os.environ.get("EOS_TEST_STATE", default_state().parent / ".eos-tests")))


test_state.__test__ = False  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The session's cluster; every test finds it healthy and must leave it healthy."""
    state = test_state()
    started, fresh = lifecycle.up(state, backend(request.config), "quick", say)  # type: ignore[arg-type]
    if not fresh:
        heal(started, say)
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
    left = heal(shared, say)
    assert failed or left == 0, f"the test passed and left {left} things that had to be healed"
