"""Planted client bugs against a scripted client library: the checkers find the damage of each."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import TopicPartition

from harness.base.errors import UsageError
from harness.clients import group_consumer, idempotent, producer_lifecycle, reader
from harness.clients.bug_log import BugLog
from harness.clients.client import Deadline
from harness.clients.client_spec import (
    BaseSpec,
    IdempotentSpec,
    PipelineSpec,
    ReaderSpec,
    TransactionalSpec,
    load_spec,
)
from harness.clients.idempotent import BurstProducer
from harness.clients.pipeline import PipelineClient
from harness.clients.planted_bugs import BUGS, occasions, plant, replacements
from harness.clients.progress import ClientProgress
from harness.clients.reader import ReaderClient
from harness.clients.transactor import Transactor
from harness.evidence.checkers.model import Evidence, Verdict
from harness.evidence.checkers.verdict import Judgement, judge
from harness.evidence.history import HistoryFile, HistoryWriter, Ok
from harness.evidence.ledger import fold
from harness.evidence.observation import Meta, Window
from harness.evidence.observation_builder import Records, observe
from harness.evidence.record import ABORT, COMMIT, Identity, LaneEncoder, decode, encode
from harness.scenario import find, load
from tests.unit.scripted_library import Message, Script, ScriptedConsumer, ScriptedProducer

RUN = "abcd1234"
COMMON: dict[str, Any] = {
    "run": RUN,
    "client": "c-1",
    "number": 3,
    "bootstrap": "b:1",
    "history": "h.jsonl",
    "seconds": 60.0,
}
TRANSACTIONS = 120
BURSTS = 60


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Provide the script of a client library that the clients use instead of confluent-kafka."""
    used = Script()

    class Producer(ScriptedProducer):
        def __init__(self, config: dict[str, Any]) -> None:
            super().__init__(config, used)

    class Consumer(ScriptedConsumer):
        def __init__(self, config: dict[str, Any]) -> None:
            super().__init__(config, used)

    for module in (idempotent, producer_lifecycle):
        monkeypatch.setattr(module, "Producer", Producer)
    for consuming in (group_consumer, reader):
        monkeypatch.setattr(consuming, "Consumer", Consumer)
    return used


def put_in(bug: str, monkeypatch: pytest.MonkeyPatch) -> BugLog:
    """Plant a bug until the end of the test, and return its record."""
    log = BugLog()
    for owner, attribute, value in replacements(bug, log) if bug else ():
        monkeypatch.setattr(owner, attribute, value)
    return log


def judge_logs(path: Path, script: Script) -> Judgement:
    """Return the verdict on a client's history and the library's logs."""
    records, windows = Records(), []
    for partition, log in sorted(script.logs.items()):
        for offset, value in enumerate(log):
            if value is not None:
                records.add(partition, offset, decode(value))
        end = len(log)
        windows.append(Window(topic="t", partition=partition, start=0, lso=end, hw=end, read_to=end))
    meta = Meta(witness="log", kind="reference", complete=True, windows=windows)
    return judge(Evidence(fold([HistoryFile(path)]), [observe(meta, records)]))


def check_record(bug: str, log: BugLog, judgement: Judgement) -> None:
    """Check that the record of a bug that did harm agrees with the verdict and with the table of bugs."""
    if not bug:
        assert log.counts == {}
        return
    assert log.counts["fired"] >= log.counts["harmful"] > 0
    planted, names = BUGS[bug], set(judgement.names())
    assert names <= {*planted.shows, *planted.also}
    assert bool(names & {*planted.shows}) is bool(planted.shows)


def run_transactions(folder: Path) -> Path:
    """Run transactions that commit and abort in turn, each with records in two lanes."""
    path = folder / "c-1.jsonl"
    spec = TransactionalSpec(**COMMON, topic="t", partitions=2, transactional_id="x")
    with HistoryWriter(path, run=RUN, client="c-1", role="transactional") as history:
        transactor = Transactor(spec, history, ClientProgress(), Deadline(60))
        encoders = [LaneEncoder(RUN, 3, lane) for lane in range(2)]
        for number in range(TRANSACTIONS):
            outcome = ABORT if number % 3 == 2 else COMMIT
            transactor.begin()
            for lane, encoder in enumerate(encoders):
                first = transactor.next_of(lane)
                transactor.send(lane, encoder.batch(first, 4, transactor.txn, outcome))
            transactor.abort() if outcome == ABORT else transactor.commit()
    return path


def run_bursts(folder: Path) -> Path:
    """Send bursts in two lanes."""
    path = folder / "c-1.jsonl"
    spec = IdempotentSpec(**COMMON, topic="t", partitions=2)
    with HistoryWriter(path, run=RUN, client="c-1", role="idempotent") as history:
        producer = BurstProducer(spec, "t", history, ClientProgress(), idempotence=True)
        encoders = [LaneEncoder(RUN, 3, lane) for lane in range(2)]
        for number in range(BURSTS):
            lane = number % 2
            producer.send(lane, encoders[lane].batch(producer.next_of(lane), 10))
            producer.flush(1)
            producer.complete()
            producer.serve(0)
        producer.complete(final=True)
    return path


@pytest.mark.parametrize(
    ("bug", "found"),
    [
        ("", set()),
        ("wrong-sequence", set()),
        ("unrecorded-send", {"phantom"}),
        ("forgotten-send", {"lost"}),
        ("double-send", {"duplicate"}),
        ("commit-that-aborts", {"lost"}),
        ("abort-that-commits", {"aborted_read"}),
    ],
)
def test_the_damage_of_a_transactional_client_is_found(
    bug: str, found: set[str], tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = put_in(bug, monkeypatch)
    judgement = judge_logs(run_transactions(tmp_path), script)
    assert (judgement.verdict is Verdict.VALID) is (not bug)
    assert found <= set(judgement.names())
    check_record(bug, log, judgement)


@pytest.mark.parametrize(
    ("bug", "found"),
    [
        ("", set()),
        ("wrong-sequence", set()),
        ("unrecorded-send", {"phantom"}),
        ("forgotten-send", {"lost"}),
        ("double-send", {"duplicate"}),
        ("ok-without-waiting", {"lost"}),
    ],
)
def test_the_damage_of_an_idempotent_client_is_found(
    bug: str, found: set[str], tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = put_in(bug, monkeypatch)
    judgement = judge_logs(run_bursts(tmp_path), script)
    assert (judgement.verdict is Verdict.VALID) is (not bug)
    assert found <= set(judgement.names())
    check_record(bug, log, judgement)


def inputs(first: int, count: int) -> list[Message]:
    sequences = range(first, first + count)
    return [Message(encode(Identity(RUN, 1, 0, seq)), 100 + seq, topic="in") for seq in sequences]


def run_pipeline(folder: Path, script: Script, abort_share: float = 0.0) -> Counter[int]:
    """Let a worker process 20 batches of 3 inputs; return how often it processed each input."""
    script.inputs = [inputs(3 * batch, 3) for batch in range(20)]
    spec = PipelineSpec(
        **COMMON,
        source="in",
        group="g",
        sink="t",
        partitions=1,
        transactional_id="x",
        records=(3, 3),
        abort_share=abort_share,
        linger=0.01,
    )
    with HistoryWriter(folder / "c-1.jsonl", run=RUN, client="c-1", role="pipeline") as history:
        worker = PipelineClient(spec, history, ClientProgress(), Deadline(60))
        worker._outputs.settle()
        worker._source.open()
        for _ in range(20):
            worker._batch()
    identities = [decode(value) for value in script.logs[0] if value is not None]
    return Counter(identity.origin.seq for identity in identities if identity.origin is not None)


@pytest.mark.parametrize(
    ("bug", "times"),
    [("", {1}), ("skipped-input", {0, 1}), ("input-processed-twice", {1, 2}), ("dropped-record", {0, 1})],
)
def test_a_worker_processes_an_input_never_or_twice(
    bug: str, times: set[int], tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(bug, monkeypatch)
    processed = run_pipeline(tmp_path, script)
    assert {processed[seq] for seq in range(60)} == times
    assert script.positions[-1].offset == 160


def test_a_worker_commits_positions_although_it_aborts(
    tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in("offsets-outside-transaction", monkeypatch)
    assert not run_pipeline(tmp_path, script, abort_share=1.0)
    committed = [place.offset for place in script.positions if place.offset >= 0]
    assert max(committed) == 160
    assert "send_offsets" not in script.calls
    assert "commit_offsets" in script.calls


def run_reader(folder: Path, script: Script) -> list[int]:
    """Let a reader poll 20 times; return the input sequences that its history lists, in order."""
    script.inputs = [inputs(3 * batch, 3) for batch in range(20)]
    spec = ReaderSpec(**COMMON, topics=["in"], group="g")
    path = folder / "c-1.jsonl"
    with HistoryWriter(path, run=RUN, client="c-1", role="reader") as history:
        client = ReaderClient(spec, history, ClientProgress(), Deadline(60))
        for _ in range(20):
            client._poll()
    lines = [line for _, line in HistoryFile(path).read()]
    reads = [read for line in lines if isinstance(line, Ok) and line.f == "poll" for read in line.read]
    return [seq for *_, first, count in reads for seq in range(first, first + count)]


@pytest.mark.parametrize(("bug", "missing"), [("", 0), ("dropped-record", 2)])
def test_a_reader_loses_records_between_library_and_history(
    bug: str, missing: int, tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(bug, monkeypatch)
    read = run_reader(tmp_path, script)
    assert len(set(range(60)) - set(read)) == missing


def test_a_reader_goes_back_and_records_no_reason(
    tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in("unrecorded-rewind", monkeypatch)
    run_reader(tmp_path, script)
    assert script.positions == [TopicPartition("in", 0, 98), TopicPartition("in", 0, 128)]


@pytest.mark.parametrize(("rebalanced", "harmful"), [(2, 1), (3, 0), (4, 0), (5, 1)])
def test_going_back_is_certain_only_without_a_rebalance(
    rebalanced: int, harmful: int, tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = put_in("unrecorded-rewind", monkeypatch)
    # The bug goes back after the third poll, so the fourth one returns earlier records again.
    script.steps["consume"] = [*[None] * (rebalanced - 1), lambda: "revoked"]
    script.inputs = [inputs(0, 3), inputs(3, 3), inputs(6, 3), inputs(0, 9), inputs(9, 3)]
    spec = ReaderSpec(**COMMON, topics=["in"], group="g")
    with HistoryWriter(tmp_path / "c-1.jsonl", run=RUN, client="c-1", role="reader") as history:
        client = ReaderClient(spec, history, ClientProgress(), Deadline(60))
        client._consumer.subscribe(["in"], on_assign=client._assigned, on_revoke=client._revoked)
        for _ in range(5):
            client._poll()
    assert (log.counts["fired"], log.counts["harmful"]) == (1, harmful)


def test_a_bug_appears_now_and_then() -> None:
    due = occasions(3, 4)
    assert [due() for _ in range(12)] == [n in (3, 7, 11) for n in range(1, 13)]


def test_planting_replaces_the_attributes_for_the_whole_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, attribute, _ in replacements("ok-without-waiting", BugLog()):
        monkeypatch.setattr(owner, attribute, getattr(owner, attribute))
    before = BurstProducer.send
    plant("ok-without-waiting", BugLog())
    assert BurstProducer.send is not before


@pytest.mark.parametrize("bug", BUGS)
def test_every_bug_can_be_planted_in_a_scenario(bug: str, tmp_path: Path) -> None:
    scenario = load(find("everything"))
    for kind in BUGS[bug].kinds:
        indices = [i for i, workload in enumerate(scenario.workload) if workload.kind == kind]
        for index in indices[:1]:
            changed = load(find("everything"), {f"workload.{index}.planted_bug": bug})
            assert changed.workload[index].planted_bug == bug
    spec: BaseSpec = msgspec.structs.replace(ReaderSpec(**COMMON, topics=["t"]), planted_bug=bug)
    spec.save(tmp_path / "spec.json")
    assert load_spec(tmp_path / "spec.json").planted_bug == bug


def test_a_bug_of_another_kind_of_client_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(
        '[scenario]\nname = "s"\nshows = "a bug"\n'
        '[[workload]]\nkind = "reader"\nplanted_bug = "double-sent"\n'
    )
    with pytest.raises(UsageError, match="reader clients have no planted bug 'double-sent'") as refused:
        load(path)
    assert "dropped-record, unrecorded-rewind" in refused.value.hint


def test_the_page_on_workloads_lists_every_bug() -> None:
    page = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text()
    for name, bug in BUGS.items():
        shows = " or ".join(bug.shows) or "unknown"
        assert f"| `{name}` | {', '.join(bug.kinds)} | {bug.does} | {shows} |" in page
        assert {*bug.shows, *bug.also} <= set(re.findall(r"^\*\*(\w+)\*\*", anomalies_page(), re.MULTILINE))


def anomalies_page() -> str:
    return (Path(__file__).parents[2] / "docs" / "anomalies.md").read_text()
