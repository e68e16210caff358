"""Effects outside of topics: rows of a database, by two readers, and calls of an HTTP service."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import msgspec
import pytest

from harness.base.errors import ExitCode, HarnessError
from harness.cluster.cluster import Cluster
from harness.evidence import manifest
from harness.evidence.row_output import RowSource, rows_of
from harness.evidence.run_directory import RunDirectory, Summary
from harness.provision.jdbc_rows import ensure_driver, write_rows
from harness.run import make_run
from harness.run.run import Outcome
from harness.scenario import load
from harness.scenario.plan import draw

pytestmark = pytest.mark.cluster
EFFECTS = Path(__file__).parents[1] / "effects" / "effects.toml"


def run_effects(cluster: Cluster, folder: Path, **changes: str) -> Outcome:
    scenario = load(EFFECTS, changes)
    return make_run(cluster, scenario, draw(scenario, 1), folder).execute()


@pytest.mark.soak
def test_rows_and_calls_of_a_killed_application_are_valid_for_all_witnesses(
    cluster: Cluster, tmp_path: Path
) -> None:
    outcome = run_effects(cluster, tmp_path, **{"verify.witnesses": '["spark", "reader"]'})

    assert outcome.exit_code is ExitCode.VALID, outcome.judgement
    (contract,) = (r for r in outcome.judgement.results if r.property == "contract")
    assert contract.compared > 500
    listed = manifest.evidence_files(outcome.directory)
    assert {"rows/invoices.jsonl", "rows/stored.jsonl", "rows/calls.jsonl"} <= {*listed}
    names = {folder.name for folder in (outcome.directory / "observations").iterdir()}
    assert {"reader-output-stored", "spark-batch-output-stored", "spark-batch-output-calls"} <= names
    notes = "\n".join(RunDirectory.open(outcome.directory).read("summary.json", Summary).notes)
    assert "only the harness's HTTP sink saw the calls of calls" in notes
    assert "only the command of invoices printed its rows" in notes
    assert "stored: " not in notes


@pytest.mark.parametrize(
    "witnesses", [["reader"], pytest.param(["spark", "reader"], marks=pytest.mark.soak)], ids=" ".join
)
def test_every_wrong_effect_is_found_by_name(cluster: Cluster, tmp_path: Path, witnesses: list[str]) -> None:
    changes = {
        "app.env.MISTAKE": "no-key wrong-total drops-calls",
        "verify.witnesses": json.dumps(witnesses),
        "plan.duration": "2s",
        "plan.gap": "500ms",
    }
    outcome = run_effects(cluster, tmp_path, **changes)

    assert outcome.exit_code is ExitCode.ANOMALY, outcome.judgement
    anomalies = [anomaly for result in outcome.judgement.results for anomaly in result.anomalies]
    found = {
        (anomaly.name, name)
        for anomaly in anomalies
        for example in anomaly.examples
        for name in ("invoices", "stored", "calls")
        if name in example.what
    }
    assert found == {
        ("processed_twice", "invoices"),
        ("processed_twice", "stored"),
        ("wrong_output", "invoices"),
        ("wrong_output", "stored"),
        ("never_processed", "calls"),
    }
    seen_by = {witness for anomaly in anomalies for witness in anomaly.witnesses}
    assert {name.partition("-")[0] for name in seen_by} == {*witnesses}


def test_the_rows_of_a_query_are_json(tmp_path: Path) -> None:
    database = tmp_path / "x.sqlite"
    connection = sqlite3.connect(database)
    connection.execute("create table t (Text text, n integer, r real)")
    connection.execute("insert into t values (?, 3, 1.5), (null, null, 2)", ('a "quote"\n\x01 \\ ü',))
    connection.commit()
    connection.close()
    driver = [str(jar) for jar in ensure_driver(load(EFFECTS).output[1].driver)]
    url = f"jdbc:sqlite:{database}"
    source = RowSource(name="t", source="jdbc", file="", jdbc=url, query="select * from t", driver=driver)
    write_rows(source, tmp_path / "rows", 60)
    assert [json.loads(line) for line in rows_of(tmp_path / "rows")] == [
        {"text": 'a "quote"\n\x01 \\ ü', "n": 3, "r": 1.5},
        {"text": None, "n": None, "r": 2.0},
    ]
    with pytest.raises(HarnessError, match="no such table: u"):
        write_rows(msgspec.structs.replace(source, query="select * from u"), tmp_path / "rows", 60)
