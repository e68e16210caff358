"""The directory of a run: it is readable after a crash, and a second check writes identical files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import jsonschema
import msgspec
import pytest

from harness.base.errors import ExitCode, UsageError
from harness.base.units import plain
from harness.evidence import manifest
from harness.evidence.checkers.check_run import check_run, describe
from harness.evidence.checkers.model import Expect
from harness.evidence.checkers.promises import promises_of
from harness.evidence.checkers.verdict import Limit
from harness.evidence.history import HistoryWriter
from harness.evidence.history.file_reader import Block
from harness.evidence.observation import Meta, Window, load, save
from harness.evidence.observation_builder import Records, observe
from harness.evidence.record import Identity
from harness.evidence.run_directory import RunDirectory, RunInfo, schema_text
from harness.run.run_names import Names
from harness.scenario import find
from harness.scenario import load as load_scenario
from harness.scenario.plan import draw

INFO = RunInfo(run="r7k2m9qa", scenario="demo", seed=7, started="2026-01-02T03:04:05")


def make_run(root: Path, shown: int = 10, limits: list[Limit] | None = None) -> RunDirectory:
    run = RunDirectory.create(root, INFO)
    with HistoryWriter(run.histories / "p-1.jsonl", run="r7k2m9qa", client="p-1", role="producer") as history:
        history.producer(1, [("t", 0)])
        history.ok(history.invoke("send", producer=1, sent=[(0, 0, 9)]), acked=[(0, 0, 9, 0)])
    records = Records()
    for seq in range(shown):
        records.add(0, seq, Identity("r7k2m9qa", 1, 0, seq))
    window = Window(topic="t", partition=0, start=0, lso=10, hw=10, read_to=10)
    meta = Meta(witness="reader", kind="reference", complete=True, windows=[window])
    save(observe(meta, records), run.observations / "reader")
    run.write("expect.json", Expect(witnesses=["reader"]))
    run.write("limits.json", limits or [])
    drawn = load_scenario(find(INFO.scenario))
    run.write("scenario.json", msgspec.to_builtins(drawn, enc_hook=plain))
    run.write("plan.json", msgspec.to_builtins(draw(drawn, INFO.seed), enc_hook=plain))
    run.write("names.json", Names("", INFO.run))
    manifest.write(run, INFO.run, promises_of(run))
    return run


def seal(run: RunDirectory) -> None:
    """Write the manifest again, so that it fits files that were changed. Keep its promises."""
    manifest.write(run, INFO.run, manifest.read(run).promised)


def test_checking_a_run_again_gives_the_same_bytes(tmp_path: Path) -> None:
    run = make_run(tmp_path, shown=9)
    code, judgement = check_run(run.path)
    first = {name: (run.path / name).read_bytes() for name in ("verdict.json", "summary.json")}

    again, _ = check_run(tmp_path / "demo" / "latest", write=True)

    assert code is again is ExitCode.ANOMALY
    assert judgement.names() == ["lost"]
    assert first == {name: (run.path / name).read_bytes() for name in first}


def test_another_process_with_another_hash_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    run = make_run(tmp_path, shown=9)
    script = (
        "import sys; from pathlib import Path; from harness.evidence.checkers.check_run import check_run\n"
        "check_run(Path(sys.argv[1]), write=True)"
    )
    seen = set()
    for seed in ("1", "2"):
        command = [sys.executable, "-c", script, str(run.path)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed}, timeout=60)
        seen.add((run.path / "verdict.json").read_bytes() + (run.path / "summary.json").read_bytes())

    assert len(seen) == 1


def test_the_summary_fits_its_published_schema(tmp_path: Path) -> None:
    limit = Limit(name="recovery", measured=3.0, limit=2.0, unit="s")
    run = make_run(tmp_path, limits=[limit])

    code, judgement = check_run(run.path)
    text = resources.files("harness.evidence.schemas").joinpath("summary.schema.json").read_text()
    summary = json.loads((run.path / "summary.json").read_bytes())

    assert text == schema_text()
    jsonschema.Draft202012Validator(json.loads(text)).validate(summary)
    assert code is ExitCode.LIMIT
    assert (summary["verdict"], summary["anomalies"], summary["limits"]["recovery"]["held"]) == (
        "valid",
        {},
        False,
    )
    assert "limit recovery: breached, 3 of 2 s\n  because after the faults" in describe(judgement)


def test_the_text_names_lines_and_offsets(tmp_path: Path) -> None:
    _, judgement = check_run(make_run(tmp_path, shown=9).path)

    text = describe(judgement)

    assert "lost: 1 records" in text
    assert "history/p-1.jsonl:3, history/p-1.jsonl:4" in text
    assert "t-0 offsets 0-8" in text
    assert text.endswith("verdict: invalid\n")


def test_a_witness_that_died_half_way_is_unknown(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run.observations / "reader" / "meta.json").unlink()
    seal(run)

    code, judgement = check_run(run.path)

    assert code is ExitCode.UNKNOWN
    assert "observations/reader has no meta.json" in judgement.results[0].reasons[0]


def test_a_run_that_crashed_before_its_end_is_unknown(tmp_path: Path) -> None:
    # A run that crashed has no manifest, so nothing proves that its evidence is complete.
    run = make_run(tmp_path)
    path = run.histories / "p-1.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    (run.path / "expect.json").unlink()
    (run.path / manifest.NAME).unlink()

    code, judgement = check_run(run.path)

    assert code is ExitCode.UNKNOWN
    assert (
        judgement.results[0].reasons[0]
        == "the run did not finish, or it is still running: it has no manifest.json"
    )
    assert any("expect.json" in reason for reason in judgement.results[0].reasons)
    assert any("incomplete" in note for note in judgement.notes)


def test_two_runs_never_share_a_directory_and_latest_points_to_the_newest(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path, INFO)
    with pytest.raises(UsageError, match="already exists"):
        RunDirectory.create(tmp_path, INFO)
    newer = RunInfo(run="r7k2m9qb", scenario="demo", seed=8, started="2026-01-02T03:04:06")
    run = RunDirectory.create(tmp_path, newer)

    assert (tmp_path / "demo" / "latest").resolve() == run.path.resolve()
    with pytest.raises(UsageError, match="is not the directory of a run"):
        RunDirectory.open(tmp_path)


def test_a_file_of_the_run_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run.path / "limits.json").write_text("[{")

    with pytest.raises(UsageError, match=r"limits\.json cannot be read"):
        run.read("limits.json", list[Limit])
    seal(run)
    code, judgement = check_run(run.path)

    assert code is ExitCode.UNKNOWN
    assert "limits.json cannot be read" in judgement.results[0].reasons[0]


def test_an_observation_is_read_back_as_it_was(tmp_path: Path) -> None:
    records = Records()
    for seq in (0, 63, 64, 255, 256, 1000):
        records.add(0, seq, Identity("r7k2m9qa", 1, 0, seq))
    window = Window(topic="t", partition=0, start=0, lso=10, hw=10, read_to=10)
    meta = Meta(witness="reader", kind="reference", windows=[window])
    made = observe(meta, records)

    save(made, tmp_path / "reader")
    read = load(tmp_path / "reader")

    assert read.meta == made.meta
    assert read.words.tobytes() == made.words.tobytes()
    assert read.runs is not None
    assert made.runs is not None
    assert read.runs.tobytes() == made.runs.tobytes()
    assert read.words.dtype == made.words.dtype
    assert made.words["bits"].tolist()[0][0] == (1 << 63) + 1


def test_only_a_newline_ends_a_line_of_a_history() -> None:
    assert Block(1, b"a\rb\nc\x0bd\x85\n").lines() == [b"a\rb", b"c\x0bd\x85"]
