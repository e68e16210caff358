"""The counters of runs in Prometheus' text format."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from harness.base.errors import HarnessError
from harness.base.events import Event, Injected, NoBite, ProgressEvent
from harness.cli.main import cli
from harness.report.prometheus import FAMILIES, export
from tests.finished_runs import invalid_run, valid_run

SAMPLE = re.compile(r'([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+)\} (-?[0-9.e+-]+)')
PROGRESS = ProgressEvent(
    at=1.0,
    phase="faults",
    acknowledged=40,
    rate=1.0,
    committed=3,
    aborted=2,
    unknown=1,
    in_flight=0,
    active=[],
    lso_lag=0,
)


def add_events(run: Path, *events: Event) -> None:
    """Append events to the stream of a run."""
    with (run / "events.jsonl").open("ab") as stream:
        stream.writelines(msgspec.json.encode(event) + b"\n" for event in events)


def samples(text: str) -> dict[tuple[str, str], str]:
    """Return the value of each sample, by its metric and its labels. Every other line must be a comment."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("# "):
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert (match[1], match[2]) not in found, line
            found[match[1], match[2]] = match[3]
    return found


def test_two_runs_are_in_one_family_each(tmp_path: Path) -> None:
    text = export([valid_run(tmp_path / "a"), invalid_run(tmp_path / "b")])
    for name, family in FAMILIES.items():
        assert text.count(f"# TYPE {name} {family.kind}\n") <= 1
    order = [line.split("{")[0] for line in text.splitlines() if not line.startswith("#")]
    assert order == sorted(order, key=list(FAMILIES).index)

    found = samples(text)
    verdicts = {key[1]: value for key, value in found.items() if key[0] == "eos_run_verdict"}
    assert sorted(verdicts.values()) == ["0"] * 4 + ["1"] * 2
    (anomaly,) = [(key[1], value) for key, value in found.items() if key[0] == "eos_run_anomalies_total"]
    assert 'name="duplicate"' in anomaly[0]
    assert anomaly[1] == "5"


def test_counters_are_those_of_the_last_progress_and_of_the_faults(tmp_path: Path) -> None:
    run = valid_run(tmp_path)
    later = msgspec.structs.replace(PROGRESS, acknowledged=90, committed=8)
    bit = Injected(at=2.0, fault="kill", names=["kafka-1"], bite={}, took_s=0.1)
    add_events(run, PROGRESS, bit, NoBite(at=3.0, fault="kill", reason="none"), later)

    found = {
        (name, re.sub(r'scenario="[^"]*",run="[^"]*",?', "", labels)): value
        for (name, labels), value in samples(export([run])).items()
    }
    assert found["eos_run_acknowledged_total", ""] == "90"
    assert found["eos_run_transactions_total", 'end="committed"'] == "8"
    assert found["eos_run_transactions_total", 'end="unknown"'] == "1"
    assert found["eos_run_faults_total", 'fault="kill",bit="true"'] == "1"
    assert found["eos_run_faults_total", 'fault="kill",bit="false"'] == "1"
    assert found["eos_run_limit_measured", 'limit="recovery",unit="s"'] == "3"
    assert found["eos_run_limit_held", 'limit="recovery"'] == "1"
    assert found["eos_run_property_valid", 'property="exactly_once"'] == "1"


def test_labels_are_escaped(tmp_path: Path) -> None:
    run = valid_run(tmp_path)
    add_events(run, NoBite(at=3.0, fault='a "b"\\\n', reason="none"))
    assert r'fault="a \"b\"\\\n",bit="false"} 1' in export([run])


def test_the_command_replaces_a_file(tmp_path: Path) -> None:
    run, file = valid_run(tmp_path / "runs"), tmp_path / "eos.prom"
    file.write_text("old")
    done = CliRunner().invoke(cli, ["metrics", str(run), str(run), "--output", str(file)])
    assert done.exit_code == 0, done.output
    assert file.read_text() == export([run])


def test_a_run_that_did_not_finish_is_refused(tmp_path: Path) -> None:
    run = valid_run(tmp_path)
    (run / "summary.json").unlink()
    with pytest.raises(HarnessError):
        export([run])


def test_of_several_runs_one_that_did_not_finish_is_left_out_with_a_warning(tmp_path: Path) -> None:
    whole, killed = valid_run(tmp_path / "a"), valid_run(tmp_path / "b")
    (killed / "summary.json").unlink()
    done = CliRunner().invoke(cli, ["metrics", str(killed), str(whole)])
    assert done.exit_code == 0, done.output
    assert done.stdout == export([whole])
    assert f"{killed} has no counters and is left out: " in done.stderr
    with pytest.raises(HarnessError):
        export([killed, killed])
    with pytest.raises(HarnessError):
        export([whole, tmp_path])  # a folder that is no run
