"""A calm run as the reference: other contents than without faults are found, and clocks make it unknown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.base.errors import ExitCode
from harness.cluster.cluster import Cluster
from harness.run import make_run
from harness.run.run import Outcome
from harness.scenario import load
from harness.scenario.plan import draw

pytestmark = [pytest.mark.cluster, pytest.mark.soak]
EXAMPLE = Path(__file__).parents[2] / "examples" / "orders" / "orders.toml"


VARIANT = """
import sys
text = open({app!r}).read().replace('content["amount"] * 1.2', sys.argv[1])
exec(compile(text, "app.py", "exec"))
"""


def run_compared(cluster: Cluster, folder: Path, reference: str, total: str = "") -> Outcome:
    """Run the example with another expression for the total of an invoice.

    There is one instance, so that the instance that was killed writes the rest when it runs again.
    """
    changes = {"verify.witnesses": '["reader"]', "plan.duration": "3s", "plan.steady": "1s"}
    changes |= {"app.instances": "1"}
    changes |= {"fault.1.weight": "0.0001", "output.0.reference": reference}
    if total:
        (folder / "variant.py").write_text(VARIANT.format(app=str(EXAMPLE.with_name("app.py"))))
        changes |= {"app.command": json.dumps(["{python}", str(folder / "variant.py"), total])}
    scenario = load(EXAMPLE, changes)
    return make_run(cluster, scenario, draw(scenario, 3), folder / "runs").execute()


def test_the_correct_application_writes_what_it_writes_calmly(cluster: Cluster, tmp_path: Path) -> None:
    outcome = run_compared(cluster, tmp_path, '["total"]')

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    assert len(list((outcome.directory / "reference").glob("orders/2*"))) == 2
    assert {file.name for file in (outcome.directory / "rows").iterdir()} == {
        f"{name}.reference{end}.jsonl" for name in ("orders", "invoices") for end in ("", "-2")
    }


def test_another_content_than_calmly_is_found(cluster: Cluster, tmp_path: Path) -> None:
    total = 'content["amount"] * (1.2 if os.environ["EOS_START"] == "first" else 1.3)'
    outcome = run_compared(cluster, tmp_path, '["total"]', total)

    assert outcome.exit_code is ExitCode.ANOMALY, outcome.judgement
    assert outcome.judgement.names() == ["wrong_output"]


def test_what_changes_from_run_to_run_is_no_reference(cluster: Cluster, tmp_path: Path) -> None:
    outcome = run_compared(cluster, tmp_path, '["total"]', "__import__('time').time()")

    assert outcome.exit_code is not ExitCode.VALID, outcome.judgement
    reasons = [reason for result in outcome.judgement.results for reason in result.reasons]
    assert any("two calm runs differ in total" in reason for reason in reasons), reasons
