"""Pytest hooks for this project: soak options, the order of the test folders, and the time of each folder.

Options:
    pytest --soak               also run the long repeats and properties
    pytest --soak --repeats 5   run the cases that depend on timing 5 times instead of 20

With pytest-xdist, each worker deselects tests by itself. The session that started the workers reports the
deselected tests with the reasons.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from harness.base.errors import HarnessError
from harness.cluster import packet_filter
from harness.cluster.backend import Capability, capabilities_of
from harness.provision.docker_engine import engine_problem
from harness.provision.java import find_java, jdk_problem
from harness.testing.plugin import backend
from tools.report_pictures import find_browser

PART_SECONDS = pytest.StashKey[dict[str, float]]()
DESELECTED = pytest.StashKey[dict[str, list[str]]]()
# The folders with fast tests come first, so that their failures show before a cluster is started.
ORDER = (
    "unit",
    "planted",
    "property",
    "cluster",
    "idempotent",
    "transactional",
    "hazards",
    "external",
    "spark",
)
pytest_plugins = ["tests.tapped"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("eos")
    group.addoption("--soak", action="store_true", help="also run what is marked soak")
    group.addoption(
        "--repeats",
        type=int,
        default=20,
        help="number of repetitions of each timing-dependent test in a soak (default: 20)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "engine: deselected where no Docker engine answers")
    config.addinivalue_line("markers", "browser: deselected where no Chromium is installed")
    config.addinivalue_line("markers", "java: deselected where no Java can run Kafka")
    config.addinivalue_line("markers", "jdk: deselected where Java has no compiler")
    config.addinivalue_line(
        "markers", "packets(*commands): deselected where packets of a connection cannot be dropped"
    )
    config.addinivalue_line("markers", "needs(*capabilities): deselected on a back end that lacks one")
    config.stash[PART_SECONDS] = defaultdict(float)
    config.stash[DESELECTED] = {}
    # Do not limit the duration of a Hypothesis example. Hypothesis uses the same examples in every session,
    # except in a soak.
    soak = bool(config.getoption("soak"))
    slow = [HealthCheck.too_slow]
    settings.register_profile("suite", deadline=None, derandomize=not soak, suppress_health_check=slow)
    settings.load_profile("suite")


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
        if item.get_closest_marker("browser") and find_browser() is None:
            reasons["no Chromium is installed"].append(item)
            continue
        if item.get_closest_marker("java") and (problem := java_problem()):
            reasons[problem].append(item)
            continue
        if item.get_closest_marker("jdk") and (problem := jdk_problem()):
            reasons[problem].append(item)
            continue
        if item.get_closest_marker("packets") and (problem := packets_problem(config, item)):
            reasons[problem].append(item)
            continue
        for marker in item.iter_markers("needs"):
            for capability in map(Capability, marker.args):
                if capability not in capabilities_of(backend(config)):
                    reasons[f"the {backend(config)} back end cannot {capability}"].append(item)
    deselected = {id(item) for group in reasons.values() for item in group}
    items[:] = [item for item in items if id(item) not in deselected]
    config.stash[DESELECTED] = {reason: [item.nodeid for item in group] for reason, group in reasons.items()}
    config.hook.pytest_deselected(items=[item for group in reasons.values() for item in group])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker of pytest-xdist, pass on which tests were deselected."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["deselected"] = session.config.stash[DESELECTED]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over which tests a worker of pytest-xdist has deselected; every worker deselects the same ones."""
    deselected: dict[str, list[str]] = getattr(node, "workeroutput", {}).get("deselected", {})
    if deselected and not node.config.stash[DESELECTED]:
        node.config.stash[DESELECTED] = deselected
        # The items themselves are in the worker; the terminal report only counts them.
        items = [SimpleNamespace(nodeid=name) for names in deselected.values() for name in names]
        node.config.hook.pytest_deselected(items=items)


@cache
def java_problem() -> str:
    """Return the reason why this machine cannot run Kafka, or ""."""
    try:
        find_java()
    except HarnessError as error:
        return error.message
    return ""


def packets_problem(config: pytest.Config, item: pytest.Item) -> str:
    """Return the reason why a test cannot drop the packets of a connection, or "".

    The arguments of its marker are more commands that the test needs, or the only back end that it can use.
    """
    marker = item.get_closest_marker("packets")
    needed = set(marker.args if marker else ())
    on = backend(config)
    if "process" in needed and on != "process":
        return "the settings of brokers in containers cannot be changed while they run"
    containers = item.get_closest_marker("cluster") is not None and on == "compose"
    problem = packet_filter.unavailable(containers=containers)
    missing = [command for command in sorted(needed - {"process"}) if shutil.which(command) is None]
    problem = problem or (f"{missing[0]} is not installed" if missing else "")
    return f"packets cannot be dropped: {problem}" if problem else ""


def part_of(item: pytest.Item) -> str:
    """Return the name of the folder under tests/ that contains a test."""
    return item.path.relative_to(Path(__file__).parent).parts[0]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    part = Path(report.location[0]).parts[1:2]
    _config.stash[PART_SECONDS][part[0] if part else "?"] += report.duration


def pytest_sessionstart(session: pytest.Session) -> None:
    global _config  # noqa: PLW0603  # the report hook is not given the session
    _config = session.config


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason, names in terminalreporter.config.stash[DESELECTED].items():
        terminalreporter.line(f"deselected {len(names)}: {reason}")
    terminalreporter.section("seconds per part")
    for part, seconds in terminalreporter.config.stash[PART_SECONDS].items():
        terminalreporter.line(f"{seconds:7.1f}  {part}")
