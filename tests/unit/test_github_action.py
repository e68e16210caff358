"""The GitHub Action for applications: its script counts verdicts, and fails on those that the user names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness.provision.jars import LOCK_FILE

ACTION = Path(__file__).parents[2] / ".github" / "actions" / "application"
EOS = """#!/bin/sh
echo "$@" >>"$CALLS"
[ "$1" = run ] || exit 0
exit "$(echo "$CODES" | cut -d, -f"$4")"
"""


@pytest.mark.parametrize(
    ("codes", "fail_on", "exit_code", "counts"),
    [
        pytest.param("0,0", "invalid,unknown,limit", 0, "valid=2 invalid=0 unknown=0 limit=0", id="valid"),
        pytest.param("0,1", "invalid,unknown", 1, "valid=1 invalid=1 unknown=0 limit=0", id="invalid"),
        pytest.param("2,0", "invalid,unknown", 1, "valid=1 invalid=0 unknown=1 limit=0", id="unknown"),
        pytest.param("2,3", "invalid", 0, "valid=0 invalid=0 unknown=1 limit=1", id="permitted"),
        pytest.param("0,5", "invalid", 5, "", id="refused"),
    ],
)
def test_the_outcomes_are_counted_apart(
    tmp_path: Path, codes: str, fail_on: str, exit_code: int, counts: str
) -> None:
    stub = tmp_path / "eos"
    stub.write_text(EOS)
    stub.chmod(0o755)
    given = {"SCENARIO": "eos/orders.toml", "SEEDS": "2", "FAIL_ON": fail_on, "CODES": codes}
    given |= {"CALLS": str(tmp_path / "calls"), "GITHUB_OUTPUT": str(tmp_path / "output"), "DURATION": "9s"}
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [str(ACTION / "run.sh")], env=given | path, capture_output=True, timeout=60, check=False
    )

    assert done.returncode == exit_code, done.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[1] == "run eos/orders.toml --seed 2 --backend process --keep --duration 9s"
    output = tmp_path / "output"
    assert " ".join(output.read_text().split() if output.exists() else []) == counts


def test_the_cache_depends_on_the_pinned_jars() -> None:
    lock = LOCK_FILE.resolve().relative_to(ACTION.parents[2])
    action = (ACTION / "action.yml").read_text()
    assert f"/{lock}'" in action
    assert f"/{lock.parent}/kafka/*.lock'" in action
