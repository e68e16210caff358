"""`eos late`: the causes of broken transactions are distinguished."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from harness.base.errors import UsageError
from harness.cli.main import cli
from harness.evidence import manifest, observation
from harness.evidence.checkers.model import Expect
from harness.evidence.checkers.promises import promises_of
from harness.evidence.stored_logs import FILE
from harness.report.late_endtxn_audit import BrokenTransaction, find_broken_transactions
from tests.planted.tiny import Tiny
from tests.unit.test_causes import REUSED, STRUCK
from tests.unit.test_run_directory import INFO, make_run
from tests.unit.test_spark_selection import write_histories


def store(tmp_path: Path, case: Tiny, *, logs: bool = True) -> Path:
    """Write a planted case as a finished run, and return its directory."""
    run = make_run(tmp_path)
    (run.histories / "p-1.jsonl").unlink()
    ends = filter(None, map(str.strip, case.history.splitlines()))
    case = replace(case, history="\n".join(f"p1 begin\n {line}" for line in ends))
    write_histories(run.histories, case)
    evidence = case.evidence()
    for view in evidence.observations:
        if view.meta.kind != "client":
            view.meta.run = INFO.run
            view.meta.witness = "reader" if view.meta.kind == "reference" else "raw-log"
            observation.save(view, run.observations / view.meta.witness)
    if logs and evidence.logs is not None:
        run.write(FILE, msgspec.json.encode(msgspec.structs.replace(evidence.logs, run=INFO.run)))
    run.write("expect.json", Expect())
    manifest.write(run, INFO.run, promises_of(run))
    return run.path


@pytest.mark.parametrize(
    ("case", "cause", "visible"), [(STRUCK, "late marker", 1), (REUSED, "reused sequence", 0)]
)
def test_the_stored_logs_prove_the_cause(tmp_path: Path, case: Tiny, cause: str, visible: int) -> None:
    path = store(tmp_path, case)
    broken, compared = find_broken_transactions(path)

    assert [(b.cause, b.visible, b.late_endtxn) for b in broken] == [(cause, visible, False)]
    assert compared > 1
    assert f"a {cause}: t-0: " in broken[0].text
    done = CliRunner().invoke(cli, ["late", str(path)])
    assert f"by a {cause}: 1 of {compared}" in done.output
    assert f"by an unknown cause: 0 of {compared}" in done.output


def test_without_frames_and_logs_no_cause_is_distinguished(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither a frame log nor the coordinators' logs"):
        find_broken_transactions(store(tmp_path, STRUCK, logs=False))


def test_a_proved_cause_wins_over_a_late_endtxn() -> None:
    found = BrokenTransaction(1, 2, "committed", 0, 3, "PrepareAbort", "frame 7")
    assert (found.cause, found.late_endtxn) == ("late EndTxn", True)
    proved = found._replace(proved="late marker", proof="t-0: abort marker at offset 5")
    assert (proved.cause, proved.late_endtxn) == ("late marker", False)
    assert found._replace(overtaken="").cause == "unknown cause"
