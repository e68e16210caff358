"""Damaged run directories: the verdict is unknown and names the file; no command crashes."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.base.errors import ExitCode, HarnessError
from harness.evidence import manifest
from harness.evidence.checkers.check_run import check_run
from harness.evidence.checkers.model import Verdict
from harness.evidence.run_directory import RunDirectory
from harness.report.compare import compare_facts
from harness.report.diagram import diagram_file
from harness.report.index import write as write_index
from harness.report.late_endtxn_audit import find_broken_transactions
from harness.report.outputs import write_report
from harness.run.shrink import failed_run
from harness.walkthroughs.walkthrough_page import document
from tests.finished_runs import DAMAGES, OUTPUTS, RUNS, damage, damage_each_file, files_of

SEED = 18
COMMANDS: dict[str, Callable[[Path], object]] = {
    "report": write_report,
    "compare": lambda path: compare_facts(path, path),
    "index": lambda path: write_index(path.parent.parent),
    "diagram": diagram_file.write,
    "late": find_broken_transactions,
    "walkthrough": document,
    "shrink": failed_run,
}


@pytest.fixture(params=RUNS, scope="module")
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a finished run, and another run of the same kind. Each test restores what it damages."""
    make, folder = RUNS[request.param], tmp_path_factory.mktemp(request.param)
    return make(folder / "this"), make(folder / "other", run_id="another1")


def test_finished_runs_have_the_verdicts_that_they_are_named_after(tmp_path: Path) -> None:
    verdicts = {name: check_run(make(tmp_path / name))[1].verdict for name, make in RUNS.items()}

    assert verdicts == {
        "valid": Verdict.VALID,
        "invalid": Verdict.INVALID,
        "walkthrough": Verdict.VALID,
        "pipeline": Verdict.VALID,
    }


@pytest.mark.parametrize("how", DAMAGES)
def test_each_damaged_file_is_named_and_makes_the_verdict_unknown(
    finished: tuple[Path, Path], how: str
) -> None:
    run, other = finished
    assert damage_each_file(run, other, how) > 5


def test_a_file_removed_together_with_its_line_in_the_manifest_never_gives_another_verdict(
    finished: tuple[Path, Path],
) -> None:
    run, _ = finished
    listed = manifest.read(RunDirectory(run))
    whole = (run / manifest.NAME).read_bytes()
    recorded = check_run(run)[1].verdict
    verdicts = {}
    for name in listed.files:
        original = (run / name).read_bytes()
        (run / name).unlink()
        manifest.write(RunDirectory(run), listed.run, listed.promised)

        verdicts[name] = check_run(run)[1].verdict

        (run / name).write_bytes(original)
    (run / manifest.NAME).write_bytes(whole)
    assert {name for name, verdict in verdicts.items() if verdict not in (Verdict.UNKNOWN, recorded)} == set()
    noticed = {name for name, verdict in verdicts.items() if verdict is Verdict.UNKNOWN}
    assert {*manifest.REQUIRED, "clients.json"} <= noticed
    assert {name for name in listed.files if name.startswith("observations/")} <= noticed
    clients = {f"history/{client}.jsonl" for client in listed.promised.clients}
    assert clients
    assert clients <= noticed


def test_a_line_removed_from_a_history_or_added_to_it_is_noticed_by_the_history_itself(
    finished: tuple[Path, Path],
) -> None:
    run, _ = finished
    listed = manifest.read(RunDirectory(run))
    whole = (run / manifest.NAME).read_bytes()
    recorded = check_run(run)[1]
    damaged = 0
    for path in sorted((run / "history").glob("*.jsonl")):
        original = path.read_bytes()
        lines = original.splitlines(keepends=True)
        for number, line in enumerate(lines):
            for kept in ([], [line, line])[: 2 if number == len(lines) // 2 else 1]:
                path.write_bytes(b"".join([*lines[:number], *kept, *lines[number + 1 :]]))
                manifest.write(RunDirectory(run), listed.run, listed.promised)

                judgement = check_run(run)[1]

                where = (path.name, number + 1, len(kept))
                assert judgement.verdict in (Verdict.UNKNOWN, recorded.verdict), where
                assert judgement.verdict is not Verdict.VALID, where
                assert set(judgement.names()) <= set(recorded.names()), where
                reasons = " ".join(reason for result in judgement.results for reason in result.reasons)
                assert path.stem in reasons, where
                damaged += 1
        path.write_bytes(original)
    (run / manifest.NAME).write_bytes(whole)
    assert damaged > 20


def test_hidden_files_are_no_evidence_and_no_checker_reads_them(finished: tuple[Path, Path]) -> None:
    run, other = finished
    judgement = check_run(run)[1].encode()
    shutil.copytree(other / "observations" / "reader", run / "observations" / ".reader")
    shutil.copy(other / "history" / "producer-1.jsonl", run / "history" / "._producer-1.jsonl")
    shutil.copy(
        other / "observations" / "reader" / "meta.json", run / "observations" / "reader" / "._meta.json"
    )

    assert check_run(run)[1].encode() == judgement

    shutil.rmtree(run / "observations" / ".reader")
    (run / "history" / "._producer-1.jsonl").unlink()
    (run / "observations" / "reader" / "._meta.json").unlink()


@pytest.mark.parametrize("how", DAMAGES)
def test_the_verdict_does_not_depend_on_outputs(finished: tuple[Path, Path], how: str) -> None:
    run, other = finished
    judgement = check_run(run)[1].encode()
    for name in sorted(OUTPUTS):
        path = run / name
        original = path.read_bytes()
        damage(path, how, (other / name).read_bytes())

        assert check_run(run)[1].encode() == judgement, name
        path.write_bytes(original)


def test_a_file_that_the_run_did_not_write_is_named(finished: tuple[Path, Path]) -> None:
    run, other = finished
    for name in ("history/producer-9.jsonl", "observations/second/words.jsonl", "clients.json"):
        if (run / name).exists():
            continue
        source = other / name.replace("producer-9", "producer-1").replace("second", "reader")
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_bytes(source.read_bytes() if source.exists() else b"{}")

        code, judgement = check_run(run)

        assert code is ExitCode.UNKNOWN
        assert judgement.results[0].reasons == [
            f"{name} is not in manifest.json: it is not evidence of this run"
        ]
        (run / name).unlink()


@pytest.mark.parametrize("how", ["a folder", "a link to nothing", "a link to itself"])
def test_a_file_that_is_no_regular_file_is_named(finished: tuple[Path, Path], how: str) -> None:
    run, _ = finished
    for name in files_of(run):
        path = run / name
        original = path.read_bytes()
        path.unlink()
        if how == "a folder":
            path.mkdir()
        else:
            path.symlink_to("nothing" if how == "a link to nothing" else path.name)

        code, judgement = check_run(run)

        if name not in OUTPUTS:
            assert code is ExitCode.UNKNOWN, name
            assert name in judgement.results[0].reasons[0]
        path.rmdir() if how == "a folder" else path.unlink()
        path.write_bytes(original)


STRANGE: list[Any] = [10**30, 2**63, 2**63 - 1, -1, -(2**63), 0.5, True, None, "", "x" * 300, [], {}, [[1]]]


def strange_json(rng: random.Random, data: bytes) -> bytes:
    """Replace one value of a JSON document, or of one of its lines, by a strange one."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    try:
        value = json.loads(data)
        lines, at = [data], 0
    except ValueError:
        try:
            value = json.loads(lines[at])
        except ValueError:
            return data + b"NaN"
    top: Any = value
    holder: Any = None
    while isinstance(value, dict | list) and value and (holder is None or rng.random() < 0.7):
        holder = value
        key: Any = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        value = holder[key]
    if holder is None:
        return data + b"[" * 5000
    if rng.random() < 0.2:
        del holder[key]
    else:
        holder[key] = rng.choice(STRANGE)
    lines[at] = json.dumps(top).encode()
    return b"\n".join(lines)


def random_bytes(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return rng.choice(
        [
            data[:at],
            data[at:],
            data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at + rng.randrange(9) :],
            data[:at] + b"\r\n\x00" + data[at:],
            b"\xef\xbb\xbf" + data,
            data.replace(b"1", b"9" * 25, 1),
            b"[" * 20_000,
            b"{}",
            b"[]",
            data * 2,
        ]
    )


@pytest.mark.parametrize("sealed", [False, True], ids=["after the run", "before the manifest"])
def test_random_damage_is_unknown_and_crashes_no_command(
    finished: tuple[Path, Path], sealed: bool, tmp_path: Path
) -> None:
    run, _ = finished
    code, _ = check_run(run)
    names = [name for name in files_of(run) if name != manifest.NAME]
    for number in range(40):
        rng = random.Random(f"{SEED} {number} {run.parent.name}")
        copy = tmp_path / "copies" / str(number) / "scenario" / "run"
        shutil.copytree(run, copy)
        name = rng.choice(names)
        data = (copy / name).read_bytes()
        damaged = rng.choice([strange_json, random_bytes])(rng, data)
        (copy / name).write_bytes(damaged)
        if sealed:
            listed = manifest.read(RunDirectory(copy))
            manifest.write(RunDirectory(copy), listed.run, listed.promised)

        code_then, judgement = check_run(copy)

        if not sealed:
            same = damaged == data or name in OUTPUTS
            assert code_then is (code if same else ExitCode.UNKNOWN), (number, name)
        assert judgement.results
        for command, carry_out in COMMANDS.items():
            try:
                carry_out(copy)
            except HarnessError:
                pass
            except Exception as error:
                raise AssertionError(f"{command} crashes after damage {number} of {name}") from error
