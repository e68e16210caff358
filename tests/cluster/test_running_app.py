"""An application that already runs: the harness writes inputs and checks outputs, but starts nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.base.errors import ExitCode
from harness.cluster.cluster import Cluster
from harness.cluster.layout import BrokerListener
from harness.run import make_run
from harness.run.run import Outcome
from harness.scenario import load
from harness.scenario.plan import draw
from harness.tap.tap_client import ensure_tap

pytestmark = [pytest.mark.cluster, pytest.mark.soak]
APP = Path(__file__).parents[2] / "examples" / "orders" / "app.py"
SCENARIO = """\
[scenario]
name = "running"
shows = "an application that already runs stays exactly-once while links are slow"

[app]
running = true
limits = { start = "15s" }
group = "shop.billing"

[[input]]
topic = "shop.orders"
keys = 20
rate = 200
value = '{"order":"{id}","customer":{key},"amount":{int 1..500}}'

[[output]]
topic = "shop.invoices"
each = 1
order = "key"

[plan]
steady = "1s"
duration = "3s"

[verify]
witnesses = ["reader", "raw-log"]

[[fault]]
fault = "sever"
target = "one"
lasts = "1s"
at = "500ms"
"""
TOPICS = {"ORDERS": "shop.orders", "INVOICES": "shop.invoices"}


@contextmanager
def running_app(cluster: Cluster, listener: BrokerListener) -> Iterator[None]:
    """Run the example without the harness, with the names that it would have in production."""
    names = {"BOOTSTRAP": cluster.bootstrap(listener), "GROUP": "shop.billing", "INSTANCE": "billing-1"}
    process = subprocess.Popen([sys.executable, str(APP)], env={**os.environ, **names, **TOPICS})
    try:
        yield
    finally:
        process.kill()
        process.wait()


def run_once(cluster: Cluster, folder: Path) -> Outcome:
    folder.mkdir()
    path = folder / "running.toml"
    path.write_text(SCENARIO)
    scenario = load(path)
    return make_run(cluster, scenario, draw(scenario, 1), folder / "runs").execute()


def test_an_application_that_already_runs(cluster: Cluster, tmp_path: Path) -> None:
    ensure_tap(cluster)
    for topic in TOPICS.values():
        cluster.create_topic(topic, 3)

    with running_app(cluster, BrokerListener.DIRECT):
        past_the_proxies = run_once(cluster, tmp_path / "direct")
    assert past_the_proxies.exit_code is ExitCode.REFUSED, past_the_proxies.judgement

    with running_app(cluster, BrokerListener.TAPPED):
        outcome = run_once(cluster, tmp_path / "tapped")
        assert outcome.exit_code is ExitCode.VALID, outcome.judgement
        (contract,) = (r for r in outcome.judgement.results if r.property == "contract")
        assert contract.compared > 200
        again = run_once(cluster, tmp_path / "again")
    assert again.exit_code is ExitCode.REFUSED, again.judgement
