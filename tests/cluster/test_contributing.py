"""The examples of CONTRIBUTING.md, run exactly as printed there."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from harness.cluster.cluster import Cluster
from harness.faults import inject
from harness.faults.intents import unhealed
from harness.provision.paths import checkout_dir
from harness.testing.plugin import Ran

pytestmark = pytest.mark.cluster


def blocks(language: str) -> list[str]:
    text = (checkout_dir() / "CONTRIBUTING.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_examples_of_a_scenario_and_of_its_test_run(
    run_scenario: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("orders-under-jitter.toml").write_text(blocks("toml")[0])
    example = tmp_path / "example_test.py"
    example.write_text(blocks("python")[0])

    imported(example).test_orders_stay_whole_under_jitter(run_scenario)


def test_the_example_of_a_fault_bites_and_heals(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "proxy_loss.py"
    path.write_text(blocks("python")[1])

    with inject(cluster, imported(path).ProxyLoss(), "all") as injection:
        assert injection.bite["toxiproxy"].startswith("exited")
        (intent,) = unhealed(cluster.state)
        assert intent.undo == {"steps": [{"do": "start_toxiproxy"}]}

    assert injection.health == {"proxies": 6}
    assert unhealed(cluster.state) == []


def imported(path: Path) -> ModuleType:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
