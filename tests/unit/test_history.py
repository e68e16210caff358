"""History files: intents are on disk before actions, lines can be read back, damage is reported."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from importlib import resources
from pathlib import Path

import jsonschema
import msgspec
import pytest

from harness.base.errors import UsageError
from harness.evidence.history import (
    Error,
    Fail,
    FaultLine,
    HistoryFile,
    HistoryOpened,
    HistoryWriter,
    Info,
    Invoke,
    Line,
    Ok,
    history_files,
    schema_text,
)
from harness.evidence.ledger import scan

UNCLEAR = Error(code=-185, name="_TIMED_OUT", flags=["retriable"], message="timed out")


def write_one_of_everything(path: Path) -> None:
    with HistoryWriter(path, run="r7k2m9qa", client="p-1", role="producer", lateness=True) as history:
        history.producer(1, [("t", 0), ("t", 1)], transactional_id="tx", timeout_ms=60_000)
        init = history.invoke("init", producer=1)
        history.ok(init, pid=1000, epoch=0)
        history.invoke("begin", producer=1, txn=1)
        history.ok(history.invoke("commit", producer=1, txn=1, sent=[(0, 0, 9), (1, 0, 4)]))
        send = history.invoke("send", producer=1, sent=[(0, 10, 19)])
        history.info(send, UNCLEAR, acked=[(0, 10, 14, 100)], failed=[(0, 19, 19)])
        history.invoke("abort", producer=1, txn=2)
        history.ok(history.invoke("poll"), read=[("t", 0, 0, 1, 0, 0, 10)])
        history.invoke("send_offsets", producer=1, txn=3, group="g", offsets=[("in", 0, 7)], limit_ms=500)
        history.sample([("t", 0, 0, 11, 11)], group="g", positions=[("in", 0, 7)])
        fault = history.fault_intent("kill", "leader_of(t,0)", ["broker-1"], undo={"start": "broker-1"})
        history.fault_no_bite(fault, "it answered all the time")
        history.fault_bite(fault, {"exit": 137})
        history.fault_heal_failed(fault, "not back within 30 s")
        history.fault_healed(fault, {"isr": 3})


def lines_of(path: Path) -> list[Line]:
    return [line for _, line in HistoryFile(path).read()]


def test_written_lines_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "p-1.jsonl"
    write_one_of_everything(path)

    lines = lines_of(path)

    assert isinstance(lines[0], HistoryOpened)
    assert lines[0].client == "p-1"
    info = next(line for line in lines if isinstance(line, Info))
    assert (info.f, info.acked, info.failed, info.error) == (
        "send",
        [(0, 10, 14, 100)],
        [(0, 19, 19)],
        UNCLEAR,
    )
    assert [line.stage for line in lines if isinstance(line, FaultLine)] == [
        "intent",
        "no_bite",
        "bite",
        "heal_failed",
        "healed",
    ]
    assert all(a.mono <= b.mono for a, b in itertools.pairwise(lines))


def test_every_line_fits_the_published_schema_and_the_schema_is_current(tmp_path: Path) -> None:
    path = tmp_path / "p-1.jsonl"
    write_one_of_everything(path)
    text = resources.files("harness.evidence.schemas").joinpath("history.schema.json").read_text()
    validator = jsonschema.Draft202012Validator(json.loads(text))

    assert text == schema_text()
    for line in path.read_text().splitlines():
        validator.validate(json.loads(line))
    assert not validator.is_valid({"type": "ok", "f": "commit", "op": 1})


def test_a_fail_line_and_an_operation_of_another_name_are_read_and_fit_the_schema(tmp_path: Path) -> None:
    """The harness itself writes neither of these lines, but other programs may.

    The operation in this test is `await`, which older versions of the harness wrote.
    """
    path = tmp_path / "p-1.jsonl"
    write_one_of_everything(path)
    clocks = {"mono": 1, "wall": 1}
    extra: list[Line] = [
        Invoke(f="await", op=90, limit_ms=500, **clocks),
        Fail(f="await", op=90, error=UNCLEAR, **clocks),
    ]
    with path.open("ab") as file:
        file.write(msgspec.json.Encoder().encode_lines(extra))
    validator = jsonschema.Draft202012Validator(json.loads(schema_text()))

    for line in path.read_text().splitlines():
        validator.validate(json.loads(line))
    assert lines_of(path)[-2:] == extra
    assert [line for _, line in scan(HistoryFile(path)).completions() if isinstance(line, Fail)] == extra[1:]


def test_a_transaction_writes_the_same_number_of_lines_whatever_its_size(tmp_path: Path) -> None:
    counts = []
    for size in (1, 1_000_000):
        path = tmp_path / f"p-{size}.jsonl"
        with HistoryWriter(path, run="r7k2m9qa", client="p", role="producer") as history:
            history.invoke("begin", producer=1, txn=1)
            history.ok(history.invoke("commit", producer=1, txn=1, sent=[(0, 0, size - 1)]))
        counts.append(len(lines_of(path)))

    assert counts[0] == counts[1]


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_an_incomplete_last_line_is_tolerated_and_reported(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "p-1.jsonl"
    write_one_of_everything(path)
    data = path.read_bytes()
    path.write_bytes(data[:-cut])

    history = HistoryFile(path)
    read = list(history.read())

    assert len(read) == data.count(b"\n") - 1
    assert history.torn == data.splitlines(keepends=True)[-1][:-cut]


def test_a_damaged_line_is_reported_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "p-1.jsonl"
    write_one_of_everything(path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[4] = b'{"type":"ok"\n'
    path.write_bytes(b"".join(lines))

    with pytest.raises(UsageError, match=r"p-1\.jsonl:5: not a history line"):
        list(HistoryFile(path).read())


def test_blocks_are_whole_lines_whatever_the_block_size(tmp_path: Path) -> None:
    path = tmp_path / "p-1.jsonl"
    write_one_of_everything(path)
    whole = path.read_bytes()

    for size in (1, 7, 100, 1_000, 1 << 20):
        blocks = list(HistoryFile(path).blocks(size))
        assert b"".join(block.data for block in blocks) == whole
        numbers = [block.first_line for block in blocks]
        assert numbers == [1 + whole[: whole.find(block.data)].count(b"\n") for block in blocks]


def test_a_client_killed_between_intent_and_action_leaves_the_intent(tmp_path: Path) -> None:
    path = tmp_path / "victim.jsonl"
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from harness.evidence.history import HistoryWriter\n"
        "h = HistoryWriter(Path(sys.argv[1]), run='r7k2m9qa', client='victim', role='producer')\n"
        "h.invoke('commit', producer=1, txn=1, sent=[(0, 0, 9)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False, timeout=60)

    last = lines_of(path)[-1]

    assert done.returncode == -signal.SIGKILL
    assert isinstance(last, Invoke)
    assert (last.f, last.sent) == ("commit", [(0, 0, 9)])


def test_a_history_is_never_continued_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "p-1.jsonl"
    write_one_of_everything(path)

    with pytest.raises(UsageError, match="already exists"):
        HistoryWriter(path, run="r7k2m9qa", client="p-1", role="producer")


def test_an_operation_completes_once(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "p.jsonl", run="r7k2m9qa", client="p", role="producer") as history:
        op = history.invoke("commit", producer=1, txn=1)
        history.ok(op)
        with pytest.raises(ValueError, match="already complete"):
            history.info(op, UNCLEAR)


def test_a_file_without_its_opening_line_is_refused_with_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"")

    with pytest.raises(UsageError, match="not an opening line"):
        history_files(tmp_path)[0].opening()


def test_the_file_closes_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    with pytest.raises(RuntimeError), HistoryWriter(path, run="r7k2m9qa", client="p", role="producer"):
        raise RuntimeError

    assert b"raised RuntimeError" in path.read_bytes()
    assert not any(isinstance(line, Ok) for line in lines_of(path))
