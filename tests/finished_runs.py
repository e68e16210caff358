"""Directories of finished runs, made by the writers of the product, and ways to damage their files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.base.errors import ExitCode
from harness.base.units import plain
from harness.evidence import manifest
from harness.evidence.checkers.check_run import check_run
from harness.evidence.checkers.model import Expect, Pipeline, Verdict
from harness.evidence.checkers.promises import promises_of
from harness.evidence.checkers.verdict import Limit
from harness.evidence.client_list import ClientListWriter
from harness.evidence.history import HistoryWriter, Producer, history_files
from harness.evidence.log_line import clock_id
from harness.evidence.observation import Meta, Window, save
from harness.evidence.observation_builder import Records, observe
from harness.evidence.record import Identity, Origin
from harness.evidence.run_directory import RunDirectory, RunInfo
from harness.evidence.step_report import FILE, WalkthroughStep
from harness.run.run_names import Names
from harness.scenario import find, load
from harness.scenario.plan import draw
from harness.tap.coordinator_entries import CoordinatorEntry
from harness.tap.frame_lines import Frame, FrameLogOpened, Line

OUTPUTS: Final = {
    "verdict.json",
    "summary.json",
    "figures.json",
    "report.html",
    "events.jsonl",
    "logs/kafka-1.log",
}
"""Files of the runs that are made here and that are no evidence."""

WRITTEN: Final[dict[str, Any]] = {"clients": True, "counted": True, "lateness": True}
"""What the runs that are made here promise to write."""

RECORDS: Final = 300
"""Records per producer: more than one bit word holds."""

Place = tuple[str, int]
Log = dict[Place, list[Identity]]


def _directory(root: Path, run_id: str, scenario: str, expect: Expect, steps: int = 0) -> RunDirectory:
    info = RunInfo(run=run_id, scenario=scenario, seed=7, started=f"2026-01-02T03:04:05-{run_id}")
    run = RunDirectory.create(root, info)
    drawn = load(find(scenario))
    run.write("scenario.json", msgspec.to_builtins(drawn, enc_hook=plain))
    run.write("plan.json", msgspec.to_builtins(draw(drawn, 7), enc_hook=plain))
    run.write("names.json", Names("", run_id))
    run.write("expect.json", expect)
    run.write("events.jsonl", b'{"type":"phase","at":0.0,"name":"settle"}\n' * 3)
    (run.path / "logs").mkdir()
    run.write("logs/kafka-1.log", "started\n")
    if steps:
        made = [WalkthroughStep(number=n, title=f"step {n} of {run_id}") for n in range(1, steps + 1)]
        for step in made:
            step.compare("a producer has an id", f"id {step.number}", True)
        run.write(FILE, made)
        run.write("frames.jsonl", b"".join(msgspec.json.encode(line) + b"\n" for line in _frames(run_id)))
        entries = [CoordinatorEntry(kind="marker", wall=n, node=1, topic="t", what=run_id) for n in range(5)]
        run.write("logsteps.jsonl", b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries))
    return run


def _frames(run_id: str) -> list[Line]:
    opened = {"cluster": "c", "host": "h", "pid": 1, "exchanges_per_s": 9, "most_bytes": 9}
    lines: list[Line] = [FrameLogOpened(format=1, clock=clock_id(), mono=0, wall=0, **opened)]
    common = {"key": 0, "api": "Produce", "version": 9, "bytes": 100, "client_id": run_id}
    for n in range(1, 9):
        side = "request" if n % 2 else "response"
        correlation = (n + 1) // 2
        lines.append(
            Frame(n=n, conn=1, broker=1, side=side, correlation=correlation, mono=n, wall=n, **common)
        )
    return lines


def _observe(
    run: RunDirectory, witness: str, log: Log, purpose: str = "all", positions: Iterable[Place] = ()
) -> None:
    run_id = run.read("run.json", RunInfo).run
    records, windows = Records(), []
    for index, ((topic, partition), identities) in enumerate(sorted(log.items())):
        for offset, identity in enumerate(identities):
            records.add(index, offset, identity)
        end = len(identities)
        windows.append(Window(topic=topic, partition=partition, start=0, lso=end, hw=end, read_to=end))
    kind = "spark" if witness == "spark" else "reference"
    meta = Meta(witness=witness, kind=kind, run=run_id, complete=True, windows=windows)
    if purpose == "consumed":
        meta.purpose, meta.group = "consumed", "g"
        meta.positions = [(topic, partition, len(log[topic, partition])) for topic, partition in positions]
    save(observe(meta, records, with_runs=kind != "spark"), run.observations / witness)


def _finish(run: RunDirectory, limits: list[Limit]) -> Path:
    run.write("limits.json", limits)
    info = run.read("run.json", RunInfo)
    with HistoryWriter(
        run.histories / "observer.jsonl", run=info.run, client="observer", role="observer", lateness=True
    ) as observer:
        observer.sample([("t", 0, 0, RECORDS, RECORDS)])
    faults = run.histories / "faults.jsonl"
    if not faults.exists():
        HistoryWriter(faults, run=info.run, client="faults", role="faults").close()
    clients = ClientListWriter(run, info.run)
    for file in history_files(run.histories):
        for _, line in file.read():
            if isinstance(line, Producer):
                clients.add(file.name, file.opening().role, line.producer)
                clients.end(file.name, "stopped", exit_code=0)
    manifest.write(run, info.run, promises_of(run))
    check_run(run.path, write=True)
    run.write("report.html", "<html></html>\n")
    return run.path


def _produce(run: RunDirectory, run_id: str, number: int, *, idempotent: bool = True) -> list[Identity]:
    """Write the history of a producer that sent RECORDS records to t-0, and return its records."""
    name = f"producer-{number}"
    with HistoryWriter(run.histories / f"{name}.jsonl", run=run_id, client=name, role="producer") as history:
        history.producer(number, [("t", number - 1)], idempotent=idempotent)
        for first in range(0, RECORDS, 50):
            op = history.invoke("send", producer=number, sent=[(0, first, first + 49)])
            history.ok(op, acked=[(0, first, first + 49, first)])
    return [Identity(run_id, number, 0, seq) for seq in range(RECORDS)]


def valid_run(root: Path, run_id: str = "valid001") -> Path:
    """Make a valid run: two idempotent producers, two witnesses, two faults."""
    run = _directory(root, run_id, "jitter", Expect(**WRITTEN, witnesses=["spark", "reader"], faults=2))
    with HistoryWriter(run.histories / "faults.jsonl", run=run_id, client="faults", role="faults") as faults:
        idents = [faults.fault_intent("jitter", "all", ["kafka-1"]) for _ in range(2)]
        for ident in idents:
            faults.fault_bite(ident, {"ms": 30})
        log: Log = {("t", number - 1): _produce(run, run_id, number) for number in (1, 2)}
        for ident in idents:
            faults.fault_healed(ident)
    for witness in ("spark", "reader"):
        _observe(run, witness, log)
    return _finish(run, [Limit(name="recovery", measured=3.0, limit=60.0, unit="s")])


def invalid_run(root: Path, run_id: str = "invalid1") -> Path:
    """Make an invalid run: its producer is not idempotent, and the log has duplicates."""
    expect = Expect(**WRITTEN, hold_to="exactly_once", witnesses=["reader"])
    run = _directory(root, run_id, "without-idempotence", expect)
    identities = _produce(run, run_id, 1, idempotent=False)
    _observe(run, "reader", {("t", 0): [*identities, *identities[-5:]]})
    return _finish(run, [])


def walkthrough_run(root: Path, run_id: str = "steps001") -> Path:
    """Make a valid run of a walkthrough, with steps, frames and entries of the brokers' logs."""
    run = _directory(
        root,
        run_id,
        "idempotent-walkthrough",
        Expect(**WRITTEN, witnesses=["reader"], walkthrough_steps=3),
        steps=3,
    )
    _observe(run, "reader", {("t", 0): _produce(run, run_id, 1)})
    return _finish(run, [])


def pipeline_run(root: Path, run_id: str = "pipes001") -> Path:
    """Make a valid run of a pipeline that reads t-0 and writes its outputs to out-0."""
    expect = Expect(**WRITTEN, witnesses=["reader"], pipeline=Pipeline(group="g", inputs=["t"]))
    run = _directory(root, run_id, "rebalance-storm", expect)
    inputs = _produce(run, run_id, 1)
    with HistoryWriter(
        run.histories / "pipeline-1.jsonl", run=run_id, client="pipeline-1", role="pipeline"
    ) as h:
        h.producer(2, [("out", 0)], transactional_id="pipeline-1")
        for txn, first in enumerate(range(0, RECORDS, 100), start=1):
            h.ok(h.invoke("poll"), read=[("t", 0, first, 1, 0, first, 100)])
            h.ok(h.invoke("begin", producer=2, txn=txn))
            positions = [("t", 0, first + 100)]
            h.ok(h.invoke("send_offsets", producer=2, txn=txn, group="g", offsets=positions))
            h.ok(h.invoke("commit", producer=2, txn=txn, sent=[(0, first, first + 99)]))
    outputs = [Identity(run_id, 2, 0, seq, origin=Origin(1, 0, seq, 0)) for seq in range(RECORDS)]
    _observe(run, "reader", {("t", 0): inputs, ("out", 0): outputs})
    _observe(run, "consumed", {("t", 0): inputs}, "consumed", [("t", 0)])
    return _finish(run, [])


RUNS: Final[dict[str, Callable[..., Path]]] = {
    "valid": valid_run,
    "invalid": invalid_run,
    "walkthrough": walkthrough_run,
    "pipeline": pipeline_run,
}
"""Makers of finished runs. Each takes a folder and, for another run of the same kind, another run id."""


def _lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


def _without_middle(data: bytes) -> bytes:
    lines = _lines(data)
    return b"".join(lines[: len(lines) // 2] + lines[len(lines) // 2 + 1 :])


def _with_middle_twice(data: bytes) -> bytes:
    lines = _lines(data)
    middle = len(lines) // 2
    return b"".join(lines[: middle + 1] + lines[middle:])


def _garbled(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + b"\xff\x00\x80" + data[middle + 3 :]


DAMAGES: Final[dict[str, Callable[[bytes, bytes], bytes | None]]] = {
    "deleted": lambda _data, _other: None,
    "empty": lambda _data, _other: b"",
    "halved": lambda data, _other: data[: len(data) // 2],
    "torn last line": lambda data, _other: data[: -max(2, len(_lines(data)[-1]) // 2)] if data else data,
    "one line removed": lambda data, _other: _without_middle(data),
    "one line doubled": lambda data, _other: _with_middle_twice(data),
    "garbled bytes": lambda data, _other: _garbled(data),
    "file of another run": lambda _data, other: other,
}
"""Ways to damage a file: functions of its content and of the same file of another run."""


def damage(path: Path, how: str, other: bytes) -> bool:
    """Damage a file. Return False if the content is the same afterwards, as that of an emptied empty file."""
    data = path.read_bytes()
    damaged = DAMAGES[how](data, other)
    if damaged is None:
        path.unlink()
    else:
        path.write_bytes(damaged)
    return damaged != data


def files_of(run: Path) -> list[str]:
    """Return the files of a run directory, as sorted relative paths."""
    return sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file())


def damage_each_file(run: Path, other: Path, how: str) -> int:
    """Damage each evidence file of a finished run in turn, and restore it. Return the number of files.

    Assert that the verdict is unknown, that the damaged file is named, and that nothing is written. `other`
    is another run, with the same files as far as possible.
    """
    before = {name: (run / name).read_bytes() for name in files_of(run)}
    evidence = [*manifest.read(RunDirectory(run)).files, manifest.NAME]
    damaged_files = 0
    for name in evidence:
        source = other / name if (other / name).exists() else other / "run.json"
        if not damage(run / name, how, source.read_bytes()):
            continue
        damaged_files += 1

        code, judgement = check_run(run)

        assert (code, judgement.verdict) == (ExitCode.UNKNOWN, Verdict.UNKNOWN), (name, how)
        assert judgement.names() == []
        assert name in judgement.results[0].reasons[0]
        (run / name).write_bytes(before[name])
    assert {name: (run / name).read_bytes() for name in files_of(run)} == before
    return damaged_files


def damage_in_every_way(run: Path, folder: Path) -> None:
    """Damage each evidence file of a real run in each way. `folder` is a folder for another run."""
    other = valid_run(folder)
    for how in DAMAGES:
        assert damage_each_file(run, other, how) > 5
