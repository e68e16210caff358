"""The manifest of a run: what it lists, what it notices, and what `eos check` shows and writes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from harness.base import secrets
from harness.base.errors import ExitCode, HarnessError, UsageError
from harness.cli.inspect_commands import check, late, verify
from harness.evidence import manifest, observation, step_report
from harness.evidence.checkers.check_run import check_run, evidence_of
from harness.evidence.checkers.model import Evidence, Expect, Verdict
from harness.evidence.checkers.promises import promises_of
from harness.evidence.checkers.verdict import Limit, judge
from harness.evidence.history import HistoryFile
from harness.evidence.ledger import scan
from harness.evidence.manifest import DamagedManifestError, MissingManifestError
from harness.evidence.observation import Meta, Observation, Window
from harness.evidence.run_directory import RunDirectory
from harness.report.outputs import write_report
from harness.run.spark_stream import SparkStream
from harness.run.verification import Verification, expectation
from harness.scenario import find, load
from harness.scenario.model import Verify
from tests.finished_runs import invalid_run, pipeline_run, valid_run, walkthrough_run
from tests.planted.tiny import Tiny


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(valid_run(tmp_path))


def seal(run: RunDirectory) -> None:
    """Write the manifest again, so that it fits files that were changed. Keep its promises."""
    manifest.write(run, "valid001", manifest.read(run).promised)


def rewrite(path: Path, **changes: Any) -> None:
    """Change fields of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_bytes()) | changes))


def reasons(run: RunDirectory) -> list[str]:
    """Check a run that must be unknown, and return the reasons of its first result."""
    code, judgement = check_run(run.path)
    assert (code, judgement.verdict) == (ExitCode.UNKNOWN, Verdict.UNKNOWN)
    assert judgement.results[0].property == "evidence"
    return judgement.results[0].reasons


def test_the_manifest_lists_every_evidence_file_and_no_output(run: RunDirectory) -> None:
    listed = manifest.read(run)

    assert {"run.json", "plan.json", "names.json", "scenario.json", "expect.json", "limits.json"} <= set(
        listed.files
    )
    assert {"clients.json", "history/producer-1.jsonl", "history/faults.jsonl"} <= set(listed.files)
    assert {f"observations/spark/{name}" for name in ("meta.json", "words.jsonl", "origins.jsonl")} <= set(
        listed.files
    )
    assert not {"verdict.json", "summary.json", "report.html", "events.jsonl"} & set(listed.files)
    assert listed.files["run.json"].size == (run.path / "run.json").stat().st_size
    assert listed.run == "valid001"
    assert (listed.promised.witnesses, listed.promised.faults) == (["spark", "reader"], 2)
    assert manifest.find_damage(run, listed) == []


def test_a_checked_run_lists_how_many_files_were_compared(run: RunDirectory) -> None:
    result = check_run(run.path)[1].results[0]

    assert (result.property, result.verdict) == ("evidence", Verdict.VALID)
    assert result.compared == len(manifest.read(run).files) > 10


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b'"run": "valid001"', b'"run": "valid002"'),
        lambda data: data.replace(b'  "format": 1,\n', b'  "format": 1,\n  "format": 1,\n'),
        lambda data: data.replace(b'"faults": 2', b'"faults": 0'),
        lambda data: data[:-1],
        lambda data: data + b"\n",
        lambda data: data[:-9] + (b"1" if data[-9:-8] == b"0" else b"0") + data[-8:],
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda _: b"{}",
        lambda _: b"",
    ],
    ids=["run", "line twice", "promise", "no newline", "newline", "digest", "line ends", "braces", "empty"],
)
def test_a_change_of_the_manifest_itself_is_noticed(run: RunDirectory, change: Any) -> None:
    path = run.path / manifest.NAME
    path.write_bytes(change(path.read_bytes()))

    with pytest.raises(DamagedManifestError):
        manifest.read(run)
    assert "manifest.json" in reasons(run)[0]


def test_a_manifest_of_another_format_is_refused(run: RunDirectory) -> None:
    listed = msgspec.structs.replace(manifest.read(run), format=9)
    (run.path / manifest.NAME).write_bytes(listed.encode())

    assert reasons(run) == ["manifest.json has format 9, but this version reads 1"]


def test_a_short_secret_does_not_change_the_manifest(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = manifest.read(run).files["run.json"].sha256
    monkeypatch.setattr(secrets, "_known", {digest[:4]})
    secrets._wary.set()
    try:
        seal(run)
    finally:
        secrets._wary.clear()

    assert manifest.find_damage(run, manifest.read(run)) == []


def test_a_run_without_a_manifest_is_unknown_and_its_findings_do_not_count(tmp_path: Path) -> None:
    run = RunDirectory(invalid_run(tmp_path))
    (run.path / manifest.NAME).unlink()

    with pytest.raises(MissingManifestError):
        manifest.read(run)
    code, judgement = check_run(run.path)
    assert code is ExitCode.UNKNOWN
    assert "the run has a verdict but no manifest.json" in judgement.results[0].reasons[0]
    assert judgement.names() == []
    assert [(a.name, a.count) for r in judgement.results for a in r.not_counted] == [("duplicate", 5)]

    for name in ("verdict.json", "summary.json"):
        (run.path / name).unlink()
    assert reasons(run)[0] == "the run did not finish, or it is still running: it has no manifest.json"


def test_a_size_that_differs_is_named_before_the_digest(run: RunDirectory) -> None:
    path = run.histories / "producer-1.jsonl"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    assert reasons(run) == [f"history/producer-1.jsonl has {size - 1} bytes, but manifest.json lists {size}"]
    path.write_bytes(b"x" * size)
    assert reasons(run) == ["history/producer-1.jsonl was changed: its SHA-256 differs from manifest.json"]


def test_every_damaged_file_is_named(run: RunDirectory) -> None:
    (run.path / "expect.json").unlink()
    (run.histories / "producer-2.jsonl").unlink()

    assert reasons(run) == ["expect.json is missing", "history/producer-2.jsonl is missing"]


@pytest.mark.parametrize("name", ["history/producer-9.jsonl", "observations/raw-log/meta.json"])
def test_a_file_that_the_run_did_not_write_is_named(run: RunDirectory, name: str) -> None:
    (run.path / name).parent.mkdir(exist_ok=True)
    (run.path / name).write_text("{}\n")

    assert reasons(run) == [f"{name} is not in manifest.json: it is not evidence of this run"]


def test_a_folder_in_place_of_a_file_is_named(run: RunDirectory) -> None:
    (run.path / "plan.json").unlink()
    (run.path / "plan.json").mkdir()

    assert reasons(run) == ["plan.json is not a regular file"]


def test_a_file_that_may_not_be_read_is_named(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(manifest, "_entry", refuse)

    assert "expect.json cannot be read: Permission denied" in reasons(run)


def test_expectations_are_required_even_if_the_manifest_does_not_list_them(run: RunDirectory) -> None:
    (run.path / "expect.json").unlink()
    seal(run)

    assert reasons(run) == ["expect.json is missing"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("history/producer-1.jsonl", "history/producer-1.jsonl belongs to run other001, but run.json names"),
        ("observations/reader/meta.json", "observations/reader belongs to run other001"),
        ("clients.json", "clients.json belongs to run other001"),
    ],
)
def test_evidence_of_another_run_is_named(run: RunDirectory, tmp_path: Path, name: str, reason: str) -> None:
    other = valid_run(tmp_path / "other", run_id="other001")
    (run.path / name).write_bytes((other / name).read_bytes())
    seal(run)

    assert any(text.startswith(reason) for text in reasons(run))


def test_a_manifest_of_another_run_is_named(run: RunDirectory) -> None:
    manifest.write(run, "other001", manifest.read(run).promised)

    assert reasons(run) == ["manifest.json belongs to run other001, but run.json names run valid001"]


def test_a_directory_that_lost_its_run_json_is_still_a_run(run: RunDirectory) -> None:
    (run.path / "run.json").unlink()

    assert "run.json is missing" in reasons(RunDirectory.open(run.path))
    with pytest.raises(UsageError, match=r"run\.json cannot be read"):
        check_run(run.path, write=True)


PROMISES: dict[str, tuple[str, dict[str, Any], str]] = {
    "a client": ("clients.json", {"clients": []}, "promises client producer-1, but clients.json and the"),
    "a witness": (
        "expect.json",
        {"witnesses": ["spark"]},
        "promises witness reader, but expect.json does not",
    ),
    "faults": ("expect.json", {"faults": 1}, "manifest.json promises 2 faults, but expect.json 1"),
    "a further witness": (
        "expect.json",
        {"witnesses": ["spark", "reader", "raw-log"]},
        "manifest.json does not promise witness raw-log, but expect.json does",
    ),
    "another id": (
        "names.json",
        {"run": "other001"},
        "names.json has the run 'other001', but run.json names",
    ),
    "another seed": ("plan.json", {"seed": 8}, "plan.json has the seed 8, but run.json names the seed 7"),
    "another scenario": (
        "scenario.json",
        {"scenario": {"name": "demo"}},
        "scenario.json has the scenario 'demo'",
    ),
    "no scenario": ("scenario.json", {"scenario": 5}, "scenario.json has the scenario None"),
}


@pytest.mark.parametrize("broken", PROMISES)
def test_a_file_that_contradicts_the_promises_is_named(run: RunDirectory, broken: str) -> None:
    name, changes, reason = PROMISES[broken]
    rewrite(run.path / name, **changes)
    seal(run)

    assert any(reason in text for text in reasons(run)), reasons(run)


def test_a_limit_that_was_removed_is_named(run: RunDirectory) -> None:
    (run.path / "limits.json").write_text("[]")
    seal(run)

    assert reasons(run) == ["manifest.json promises limit recovery, but limits.json does not"]


def test_a_client_removed_from_all_files_is_named_and_its_records_are_no_phantoms(run: RunDirectory) -> None:
    (run.histories / "producer-1.jsonl").unlink()
    clients = json.loads((run.path / "clients.json").read_bytes())["clients"]
    rewrite(run.path / "clients.json", clients=[one for one in clients if one["name"] != "producer-1"])
    seal(run)

    promised = "manifest.json promises client producer-1, but clients.json and the histories do not"
    assert reasons(run) == [promised]
    assert check_run(run.path)[1].names() == []


def test_a_client_that_left_no_history_is_not_promised(run: RunDirectory) -> None:
    clients = json.loads((run.path / "clients.json").read_bytes())["clients"]
    rewrite(run.path / "clients.json", clients=[*clients, clients[0] | {"name": "producer-9"}])

    assert promises_of(run).clients == ["producer-1", "producer-2"]
    manifest.write(run, "valid001", promises_of(run))
    _, judgement = check_run(run.path)
    assert judgement.results[0].reasons == []
    started = "client producer-9 was started, but its history is missing"
    assert started in judgement.results[-1].reasons


@pytest.mark.parametrize("name", manifest.REQUIRED)
def test_a_file_that_every_run_has_is_required(run: RunDirectory, name: str) -> None:
    (run.path / name).unlink()
    seal(run)

    assert reasons(run) == [f"{name} is missing"]


def test_a_name_with_control_characters_is_shown_on_one_line(run: RunDirectory) -> None:
    (run.histories / "x\nverdict: valid\x1b.jsonl").write_text("{}\n")
    (run.histories / os.fsdecode(b"\xff.jsonl")).write_text("{}\n")

    assert sorted(reasons(run)) == [
        r"history/\udcff.jsonl is not in manifest.json: it is not evidence of this run",
        r"history/x\nverdict: valid\x1b.jsonl is not in manifest.json: it is not evidence of this run",
    ]


def test_a_device_is_not_read(run: RunDirectory) -> None:
    for name in ("verdict.json", "manifest.json"):
        (run.path / name).unlink()
        (run.path / name).symlink_to("/dev/null")

    code, out, err = invoke(check, run.path)

    assert code == ExitCode.UNKNOWN
    assert "because manifest.json cannot be read: it is not a regular file" in out
    assert (
        "recorded verdict: unreadable, because verdict.json cannot be read: it is not a regular file" in out
    )
    assert err.startswith("hint: restore the files")


def test_a_path_that_cannot_be_a_directory_is_wrong_usage(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="cannot be read: File name too long"):
        RunDirectory.open(run.path / ("x" * 300))

    def refuse(*_: object, **_more: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(UsageError, match="cannot be read: Permission denied"):
        RunDirectory.open(run.path)


def test_a_folder_that_may_not_be_searched_is_named(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Path.stat

    def refuse(path: Path, **more: Any) -> os.stat_result:
        if "reader" in path.parts:
            raise PermissionError(13, "Permission denied")
        return stat(path, **more)

    monkeypatch.setattr(Path, "stat", refuse)

    assert "observations/reader/meta.json cannot be read: Permission denied" in reasons(run)
    (run.path / manifest.NAME).unlink()
    assert any("Permission denied" in reason for reason in reasons(run))


def test_damage_outweighs_an_anomaly() -> None:
    bad = Tiny("p1 commit ok a:0-4", {"a": "p1:0-3 ."})
    assert judge(bad.evidence()).verdict is Verdict.INVALID
    evidence = bad.evidence()
    evidence.damage = ["history/p2.jsonl is missing"]

    judgement = judge(evidence)

    assert (judgement.verdict, judgement.exit_code, judgement.names()) == (Verdict.UNKNOWN, 2, [])
    assert "lost" in {a.name for r in judgement.results for a in r.not_counted}


def test_live_reads_are_part_of_the_evidence_of_a_run(tmp_path: Path) -> None:
    evidence = evidence_of(RunDirectory(pipeline_run(tmp_path)))

    assert {view.meta.witness for view in evidence.observations} == {"reader", "consumed", "pipeline-1"}
    assert evidence.expect.pipeline is not None
    assert evidence.damage == []


def test_a_run_promises_what_its_scenario_demands() -> None:
    scenario = load(find("demo"))

    expect = expectation(scenario)

    assert (expect.hold_to, expect.clients) == ("exactly_once", True)
    assert set(scenario.verify.witnesses) <= set(expect.witnesses)
    assert {"spark", "spark-batch", "reader"} <= set(expect.witnesses)
    assert expect.pipeline is not None
    assert expect.pipeline.inputs == ["orders"]


def test_a_run_writes_its_manifest_before_its_verdict(tmp_path: Path) -> None:
    directory = RunDirectory(valid_run(tmp_path))
    for name in (manifest.NAME, "verdict.json", "summary.json"):
        (directory.path / name).unlink()
    cluster: Any = SimpleNamespace(
        bootstrap=lambda _: "b", security=None, prefix="", owned=True, admin=None, readable_logs=frozenset()
    )
    scenario = msgspec.structs.replace(load(find("demo")), verify=Verify(witnesses=[]))
    made = Verification(cluster, scenario, directory, "valid001", SparkStream(cluster, scenario, "valid001"))
    made._collect = lambda *_: None  # type: ignore[method-assign]
    limit = Limit(name="recovery", measured=1.0, limit=2.0, unit="s")

    code, judgement = made.collect_and_judge([limit], lambda _: None)

    assert (code, judgement.results[0].verdict) == (ExitCode.VALID, Verdict.VALID)
    listed = manifest.read(directory)
    assert msgspec.structs.astuple(listed.promised) == (
        ["producer-1", "producer-2"],
        ["spark", "reader"],
        2,
        ["recovery"],
    )
    assert "limits.json" in listed.files


def test_a_witness_is_stored_with_the_id_of_the_run(tmp_path: Path) -> None:
    directory = RunDirectory(valid_run(tmp_path))
    cluster: Any = SimpleNamespace(
        bootstrap=lambda _: "b", security=None, prefix="", owned=True, admin=None, readable_logs=frozenset()
    )
    scenario = load(find("jitter"))
    made = Verification(cluster, scenario, directory, "valid001", SparkStream(cluster, scenario, "valid001"))

    made._save(Observation(Meta(witness="raw-log", kind="raw")), "raw-log")

    assert observation.load(directory.observations / "raw-log").meta.run == "valid001"


def invoke(command: Any, *arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


def test_check_shows_the_recorded_verdict_and_keeps_it(tmp_path: Path) -> None:
    run = RunDirectory(invalid_run(tmp_path))
    recorded = {name: (run.path / name).read_bytes() for name in ("verdict.json", "summary.json")}
    assert invoke(check, run.path)[:2][0] == ExitCode.ANOMALY
    (run.path / "expect.json").unlink()

    code, out, err = invoke(check, run.path)

    assert code == ExitCode.UNKNOWN
    assert out.endswith("recorded verdict: invalid\nverdict: unknown\n")
    assert "because expect.json is missing" in out
    assert "cannot be confirmed" in err
    assert recorded == {name: (run.path / name).read_bytes() for name in recorded}


def test_check_write_replaces_the_recorded_verdict(run: RunDirectory) -> None:
    rewrite(run.path / "verdict.json", verdict="invalid")
    code, out, err = invoke(check, run.path)
    assert (code, "recorded verdict: invalid\nverdict: valid\n" in out) == (ExitCode.VALID, True)
    assert "the evidence is intact, but its verdict differs" in err

    invoke(check, "--write", run.path)

    code, out, err = invoke(check, run.path)
    assert out.endswith("recorded verdict: valid\nverdict: valid\n")
    assert err == ""


def test_a_recorded_verdict_with_other_anomalies_differs(tmp_path: Path) -> None:
    run = RunDirectory(invalid_run(tmp_path))
    assert invoke(check, run.path)[2] == ""
    recorded = json.loads((run.path / "verdict.json").read_bytes())
    for result in recorded["results"]:
        result["anomalies"] = []
    (run.path / "verdict.json").write_text(json.dumps(recorded))

    assert "its verdict differs from the recorded one" in invoke(check, run.path)[2]


def test_a_recorded_verdict_that_cannot_be_read_is_named(run: RunDirectory) -> None:
    (run.path / "verdict.json").write_bytes(b"\xff{")

    code, out, _ = invoke(check, run.path)

    assert code == ExitCode.VALID
    assert "recorded verdict: unreadable, because verdict.json was changed or is incomplete: " in out


def test_a_recorded_verdict_that_no_version_writes_is_not_shown_as_a_verdict(run: RunDirectory) -> None:
    rewrite(run.path / "verdict.json", verdict="invalid\nverdict: invalid")

    out = invoke(check, run.path)[1]

    assert "recorded verdict: unreadable, because verdict.json was changed" in out
    assert "\nverdict: invalid" not in out


def test_a_summary_that_contradicts_the_recorded_verdict_is_named(run: RunDirectory) -> None:
    rewrite(run.path / "summary.json", verdict="invalid")

    code, _, err = invoke(check, run.path)

    assert code == ExitCode.VALID
    assert err.startswith("summary.json records the verdict invalid, but verdict.json valid\n")


def test_check_records_nothing_for_a_run_that_has_not_finished(run: RunDirectory) -> None:
    for name in (manifest.NAME, "verdict.json", "summary.json"):
        (run.path / name).unlink()
    before = sorted(run.path.rglob("*"))

    for _ in range(2):
        code, out, err = invoke(check, run.path)

        assert code == ExitCode.UNKNOWN
        assert "the run did not finish, or it is still running: it has no manifest.json" in out
        assert "recorded verdict: none\nverdict: unknown\n" in out
        assert "run the scenario again" in err
    assert sorted(run.path.rglob("*")) == before


def test_check_records_a_verdict_where_there_is_none(run: RunDirectory) -> None:
    for name in ("verdict.json", "summary.json"):
        (run.path / name).unlink()

    assert "recorded verdict: none\nverdict: valid\n" in invoke(check, run.path)[1]
    assert "recorded verdict: valid\nverdict: valid\n" in invoke(check, run.path)[1]


def test_check_works_in_a_directory_that_cannot_be_written(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(RunDirectory, "write", refuse)
    for name in ("verdict.json", "summary.json"):
        (run.path / name).unlink()

    assert check_run(run.path)[0] is ExitCode.VALID
    with pytest.raises(HarnessError, match=r"the verdict valid cannot be written to .*: Read-only"):
        check_run(run.path, write=True)


def test_the_report_shows_whether_the_evidence_is_intact(run: RunDirectory) -> None:
    assert "files with the manifest" in write_report(run.path).read_text()
    assert "EVIDENCE INCOMPLETE" not in write_report(run.path).read_text()
    (run.path / "limits.json").unlink()

    page = write_report(run.path).read_text()

    assert "EVIDENCE INCOMPLETE OR CHANGED" in page
    assert "limits.json is missing" in page


def test_commands_that_judge_refuse_damaged_evidence(run: RunDirectory) -> None:
    (run.histories / "producer-1.jsonl").unlink()

    for command, arguments in (
        (late, [run.path]),
        (verify, ["--bootstrap", "127.0.0.1:1", "--topic", "t", "--ledger", run.path]),
    ):
        result = CliRunner().invoke(command, [str(argument) for argument in arguments])
        assert "producer-1.jsonl is missing" in str(result.exception)
        assert getattr(result.exception, "exit_code", None) == ExitCode.UNKNOWN


def saved(tmp_path: Path, view: Observation) -> Path:
    observation.save(view, tmp_path / "w")
    return tmp_path / "w"


@pytest.mark.parametrize("table", ["words", "origins", "runs"])
def test_a_table_with_fewer_records_than_promised_is_damaged(tmp_path: Path, table: str) -> None:
    run = pipeline_run(tmp_path)
    path = run / "observations" / "reader"
    lines = (path / f"{table}.jsonl").read_bytes().splitlines(keepends=True)
    assert observation.load(path).meta.records == 600
    for damaged in (lines[:-1], [*lines, lines[0]], [] if table != "runs" else lines[1:]):
        (path / f"{table}.jsonl").write_bytes(b"".join(damaged))
        with pytest.raises(UsageError, match=rf"{table}\.jsonl contains \d+ records.*, but meta\.json lists"):
            observation.load(path)


@pytest.mark.parametrize("kept", [0, 1])
def test_a_table_without_a_sum_has_as_many_rows_as_it_was_written_with(tmp_path: Path, kept: int) -> None:
    view = Observation(Meta(witness="w", kind="raw", windows=[Window("t", 0, 0, 0, 0, 0)]))
    view.markers = np.zeros(2, observation.MARKER)
    view.markers["n"] = 1
    path = saved(tmp_path, view)
    whole = observation.load(path)
    assert whole.markers is not None
    assert len(whole.markers) == 2
    lines = (path / "markers.jsonl").read_bytes().splitlines(keepends=True)
    (path / "markers.jsonl").write_bytes(b"".join(lines[:kept]))
    with pytest.raises(UsageError, match=r"markers\.jsonl has other rows than the 2 that meta\.json lists"):
        observation.load(path)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"partition": 9}, "names a window that meta.json does not list"),
        ({"partition": -1}, "names a window that meta.json does not list"),
        ({"n": -5}, "has a count below 1"),
        ({"producer": 2**31}, "has a number that is too large"),
        ({"lo": 2**63}, "OverflowError"),
        ({"lane": [1]}, "is damaged"),
        ({"bits": [1, 2, 3]}, "wrong number of values"),
    ],
)
def test_a_row_that_does_not_fit_is_damaged(run: RunDirectory, change: dict[str, Any], problem: str) -> None:
    path = run.observations / "reader" / "words.jsonl"
    lines = [json.loads(line) | change for line in path.read_bytes().splitlines()]
    path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    with pytest.raises(UsageError, match=problem):
        observation.load(path.parent)


def test_an_observation_of_another_format_is_refused(tmp_path: Path) -> None:
    view = Observation(Meta(witness="w", kind="raw", windows=[Window("t", 0, 0, 0, 0, 0)]))
    path = saved(tmp_path, view)
    assert observation.load(path).meta.windows == view.meta.windows
    rewrite(path / "meta.json", format=2)

    with pytest.raises(UsageError, match="has format 2, but this version reads 1"):
        observation.load(path)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xfe\n",
        b'{"type":"invoke","f":"send","op":0,"mono":1,"wall":1,"sent":[[0,0,%d]]}\n' % 10**30,
        b"[" * 50_000 + b"\n",
        b"\n",
        b'{"type":\n"close","reason":"done","mono":1,"wall":1}\n',
        b'{"type":"close","reason":"done","mono":1,"wall":1}\r{"type":"clo\n',
    ],
    ids=["not UTF-8", "huge number", "deep", "empty line", "break in an object", "carriage return"],
)
def test_a_line_that_cannot_be_decoded_is_named(run: RunDirectory, data: bytes) -> None:
    path = run.histories / "producer-1.jsonl"
    path.write_bytes(path.read_bytes() + data)

    with pytest.raises(UsageError, match=r"producer-1\.jsonl"):
        scan(HistoryFile(path))


def test_a_history_that_is_no_file_is_named(run: RunDirectory) -> None:
    path = run.histories / "producer-9.jsonl"
    path.symlink_to("nowhere")
    with pytest.raises(UsageError, match="producer-9"):
        scan(HistoryFile(path))
    with pytest.raises(UsageError, match="producer-9"):
        _ = HistoryFile(path).size


def test_evidence_without_files_has_no_result_about_files() -> None:
    evidence: Evidence = Tiny("p1 commit ok a:0-4", {"a": "p1:0-4 ."}, expect=Expect()).evidence()

    assert "evidence" not in {result.property for result in judge(evidence).results}


def test_the_steps_of_a_walkthrough_are_part_of_its_verdict(tmp_path: Path) -> None:
    run = RunDirectory(walkthrough_run(tmp_path))
    assert check_run(run.path)[0] == ExitCode.VALID

    (run.path / step_report.FILE).write_text("[]")
    manifest.write(run, "steps001", manifest.read(run).promised)
    code, judgement = check_run(run.path)
    assert code == ExitCode.UNKNOWN
    assert "step 1 was not carried out" in [r for result in judgement.results for r in result.reasons]
