"""The two examples of CONTRIBUTING.md, run as they stand there."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from harness.cluster.cluster import Cluster
from harness.faults import inject
from harness.plan import draw
from harness.provision.paths import checkout_dir
from harness.run import Run
from harness.scenario import load

pytestmark = pytest.mark.cluster


def block(language: str) -> str:
    found = re.findall(
        rf"```{language}\n(.*?)```", (checkout_dir() / "CONTRIBUTING.md").read_text(), re.DOTALL
    )
    assert len(found) == 1
    return str(found[0])


def test_the_example_of_a_scenario_runs(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "orders-under-jitter.toml"
    path.write_text(block("toml"))
    scenario = load(path, {"plan.duration": "6s", "plan.steady": "1s"})

    outcome = Run(cluster, scenario, draw(scenario, 1), tmp_path / "runs", []).execute()

    assert outcome.exit_code == 0, outcome.judgement
    assert outcome.expected


def test_the_example_of_a_fault_bites_and_heals(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "proxy_loss.py"
    path.write_text(block("python"))

    with inject(cluster, imported(path).ProxyLoss(), "all") as injection:
        assert injection.bite["toxiproxy"].startswith("exited")

    assert injection.health == {"proxies": 6}


def imported(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
