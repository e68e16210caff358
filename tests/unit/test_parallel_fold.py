"""Helper processes fold large histories: the ledger is the same as that of one process."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pytest

from harness.base.errors import UsageError
from harness.evidence.history import HistoryFile, history_files
from harness.evidence.ledger import Ledger, Scan, fold, parallel_fold
from harness.evidence.ledger.parallel_fold import FoldFile
from harness.evidence.ledger.tables import LedgerPart
from tests.property.random_histories import draw_histories

RUNS = 30

# The package exports the function `fold`, which has the same name as its module.
ledger_fold = importlib.import_module("harness.evidence.ledger.fold")


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """All histories count as large ones, and there are processors for three helpers."""
    monkeypatch.setattr(parallel_fold, "WORTH_BYTES", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 4)


def write(folder: Path, *, damaged: int | None = None) -> Path:
    """Write the histories of many random clients; optionally with one that is no history."""
    for seed in range(RUNS):
        for name, data in draw_histories(random.Random(seed)).items():
            (folder / f"{name}-{seed:02d}.jsonl").write_bytes(data)
    if damaged is not None:
        path = sorted(folder.glob("*.jsonl"))[damaged]
        path.write_bytes(path.read_bytes() + b'{"type":"thought"}\n')
    return folder


def alone(folder: Path, monkeypatch: pytest.MonkeyPatch, **known: list[str]) -> Ledger:
    with monkeypatch.context() as patch:
        patch.setattr(parallel_fold, "WORTH_BYTES", 1 << 60)
        patch.setattr("subprocess.Popen", None)  # so no helper can start
        return fold(history_files(folder), **known)


def contents(scan: Scan) -> list[object]:
    return [
        (name, value.dtype, value.shape, value.tolist()) if isinstance(value, np.ndarray) else (name, value)
        for name, value in vars(scan).items()
    ]


def assert_same(one: Ledger, other: Ledger) -> None:
    for name in ("producers", "places", "problems", "with_gaps", "operations"):
        assert getattr(one, name) == getattr(other, name)
    columns = [(*x.groups, *vars(x.intervals).values(), x.lanes, x.acks) for x in (one, other)]
    for mine, theirs in zip(*columns, strict=True):
        assert mine.dtype == theirs.dtype
        assert np.array_equal(mine, theirs)
    assert [contents(scan) for scan in one.clients] == [contents(scan) for scan in other.clients]


def test_helpers_fold_the_same_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path)
    received: list[object] = []
    receive = parallel_fold.receive

    def counted(file: object) -> object:
        received.append(file)
        return receive(file)  # type: ignore[arg-type]

    monkeypatch.setattr(parallel_fold, "receive", counted)
    monkeypatch.setattr(parallel_fold._Work, "take_first", first_files(2))
    ended = [path.stem for path in folder.iterdir()]

    ledger = fold(history_files(folder), finished=ended)

    assert len(received) == len(ended) - 2
    assert any("has no closing line" in problem for problem in ledger.problems)
    assert_same(ledger, alone(folder, monkeypatch, finished=ended))


def first_files(most: int) -> object:
    """Return a method that lets this process take at most `most` files, and the helpers all others."""
    take_first = parallel_fold._Work.take_first

    def limited(work: parallel_fold._Work) -> int | None:
        return take_first(work) if work.first < most else None

    return limited


@pytest.mark.parametrize("damaged", [0, -1])
def test_a_damaged_file_is_named_by_each_process(
    damaged: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path, damaged=damaged)
    monkeypatch.setattr(parallel_fold._Work, "take_first", first_files(2))

    with pytest.raises(UsageError, match="not a history line") as caught:
        fold(history_files(folder))

    with pytest.raises(UsageError) as expected:
        alone(folder, monkeypatch)
    assert (caught.value.message, caught.value.hint) == (expected.value.message, expected.value.hint)


def test_helpers_run_this_program_wherever_they_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version of the program in the working directory must not fold the files."""
    other = tmp_path / "other"
    (other / "harness").mkdir(parents=True)
    (other / "harness" / "__init__.py").touch()
    folder = tmp_path / "history"
    folder.mkdir()
    histories = history_files(write(folder))
    monkeypatch.chdir(other)
    monkeypatch.setattr(parallel_fold._Work, "take_first", first_files(2))
    folded_here: list[str] = []
    fold_file: FoldFile = ledger_fold.fold_file

    def counted(history: HistoryFile, finished: Collection[str] = ()) -> LedgerPart:
        folded_here.append(history.name)
        return fold_file(history, finished)

    monkeypatch.setattr(ledger_fold, "fold_file", counted)
    fold(histories)

    assert len(folded_here) == 2


def test_files_of_a_helper_that_dies_are_folded_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path)
    expected = alone(folder, monkeypatch)
    monkeypatch.setattr(parallel_fold._Work, "take_first", first_files(2))
    monkeypatch.setattr(sys, "executable", "/bin/false")

    assert_same(fold(history_files(folder)), expected)


@pytest.mark.parametrize(("name", "size"), [("WORTH_BYTES", 1 << 30), ("MOST_FILE_BYTES", 100)])
def test_small_histories_and_very_large_files_are_folded_here(
    name: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path)
    monkeypatch.setattr(parallel_fold, name, size)
    monkeypatch.setattr("subprocess.Popen", None)

    assert fold(history_files(folder)).clients
