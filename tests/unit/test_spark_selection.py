"""`eos verify --ledger RUN` checks the named topics with the expectations of the run, and lists the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from harness.base.errors import ExitCode, HarnessError, UsageError
from harness.evidence import manifest
from harness.evidence.checkers.model import Evidence, Expect, Pipeline
from harness.evidence.checkers.verdict import CHECKERS, Judgement, judge
from harness.evidence.observation import Observation
from harness.evidence.run_directory import RunDirectory
from harness.witness.spark.ledger_selection import (
    _ONLY_CHECK,
    OF_TOPICS,
    Selection,
    open_run,
    restrict,
    select_topics,
)
from tests.planted.tiny import LANES, Tiny, _Writers
from tests.unit.test_run_directory import INFO, make_run

RUN = "r7k2m9qa"
HELD = Expect(hold_to="exactly_once", witnesses=["spark", "spark-batch", "reader"])
PLAIN = {"p2": {"transactional_id": None, "idempotent": False}}
IDEMPOTENT = {"p2": {"transactional_id": None}}
PIPELINE = Expect(pipeline=Pipeline(group="g", inputs=["in"]))
TOPICS = ["in", "out", "t"]


def write_histories(folder: Path, case: Tiny) -> Path:
    writers = _Writers(case.settings, [LANES[name] for name in "abio"])
    for number, line in enumerate(filter(None, map(str.strip, case.history.splitlines())), start=1):
        writers.event(number, line)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in writers.files():
        (folder / f"{name}.jsonl").write_bytes(data)
    return folder


def select(tmp_path: Path, case: Tiny, topics: list[str], expect: Expect | None = HELD) -> Selection:
    return select_topics(write_histories(tmp_path / "history", case), expect, topics, RUN)


def observe(case: Tiny, topics: list[str]) -> Observation:
    """Return the observation of a Spark that read only these topics."""
    log = {name: text for name, text in case.log.items() if LANES[name][0] in topics}
    observation = Tiny(case.history, log, case.settings).evidence().observations[0]
    observation.meta.kind = "spark"
    return observation


def verdict(tmp_path: Path, case: Tiny, topics: list[str], expect: Expect | None = HELD) -> Judgement:
    selection = select(tmp_path, case, topics, expect)
    return judge(Evidence(selection.ledger, [observe(case, topics)], selection.expect))


DUPLICATES = Tiny(
    "p1 commit ok a:0-9\n p2 send ok b:0-9>0", {"a": "p1:0-9", "b": "p2:0-9 p2:4"}, settings=PLAIN
)


def test_a_run_that_is_held_to_exactly_once_is_held_to_it_again(tmp_path: Path) -> None:
    found = verdict(tmp_path, DUPLICATES, ["t"])
    assert (found.exit_code, found.names()) == (1, ["duplicate"])


def test_a_run_that_is_held_to_its_settings_permits_what_they_permit(tmp_path: Path) -> None:
    for expect in (msgspec.structs.replace(HELD, hold_to="settings"), None):
        found = verdict(tmp_path, DUPLICATES, ["t"], expect)
        assert (found.exit_code, found.names()) == (0, [])


def test_a_run_without_transactions_can_be_valid(tmp_path: Path) -> None:
    case = Tiny("p2 send ok a:0-9>0", {"a": "p2:0-9"}, settings=IDEMPOTENT)
    selection = select(tmp_path, case, ["t"])
    assert "atomicity" not in selection.expect.properties
    for expect in (HELD, None):
        found = verdict(tmp_path, case, ["t"], expect)
        assert found.exit_code == 0, found.encode().decode()


def test_a_run_with_transactions_is_checked_for_atomicity(tmp_path: Path) -> None:
    case = Tiny("p1 commit ok a:0-9>0 b:0-9>0", {"a": "p1:0-9", "b": "p1:0-9"})
    assert "atomicity" in select(tmp_path, case, ["t"]).expect.properties
    assert verdict(tmp_path, case, ["t"]).exit_code == 0
    torn = Tiny(case.history, {"a": "p1:0-9", "b": ""})
    assert "torn_transaction" in verdict(tmp_path, torn, ["t"]).names()


def test_reasons_that_the_run_recorded_keep_the_verdict_unknown(tmp_path: Path) -> None:
    case = Tiny("p2 send ok a:0-9>0", {"a": "p2:0-9"}, settings=IDEMPOTENT)
    doubtful = msgspec.structs.replace(HELD, caveats=["the cluster has other users"])
    found = verdict(tmp_path, case, ["t"], doubtful)
    assert found.exit_code == 2
    assert any("other users" in reason for result in found.results for reason in result.reasons)


def test_faults_that_were_planned_and_not_injected_keep_the_verdict_unknown(tmp_path: Path) -> None:
    case = Tiny("p2 send ok a:0-9>0", {"a": "p2:0-9"}, settings=IDEMPOTENT)
    assert verdict(tmp_path, case, ["t"], msgspec.structs.replace(HELD, faults=1)).exit_code == 2


def test_everything_that_only_eos_check_can_check_is_listed(tmp_path: Path) -> None:
    case = Tiny("p1 commit ok a:0-9", {"a": "p1:0-9"})
    expect = msgspec.structs.replace(
        HELD,
        witnesses=["spark", "spark-batch", "reader", "raw-log"],
        pipeline=Pipeline(group="g", inputs=["in"], changelog="log"),
        walkthrough_steps=3,
    )
    selection = select(tmp_path, case, TOPICS, expect)
    for text in (
        "liveness",
        "second_opinion",
        "aggregates",
        "walkthrough",
        "fencing",
        "reader, raw-log",
        "consumers",
        "log_ends",
        "limits",
    ):
        assert any(text in line for line in selection.unchecked), text
    assert not any("not named" in line for line in selection.unchecked)
    assert "pipeline" in selection.expect.properties
    assert selection.expect.witnesses == []


def test_topics_that_were_not_named_are_not_checked_and_listed(tmp_path: Path) -> None:
    case = Tiny(
        "p1 commit ok a:0-4>0 o:0-4>0\n p2 commit ok i:0-4>0",
        {"a": "p1:0-4", "i": "p2:0-4", "o": ""},  # all records of the topic `out` are lost
    )
    for topics, names in ((["t"], set()), (["t", "in"], set()), (["out"], {"lost"})):
        found = verdict(tmp_path, case, topics)
        assert set(found.names()) == names, topics
        assert found.exit_code == bool(names)
        unchecked = select(tmp_path, case, topics).unchecked
        left_out = [topic for topic in TOPICS if topic not in topics]
        assert unchecked[: len(left_out)] == [
            f"topic {topic} of the ledger: it was not named" for topic in left_out
        ]
    assert set(verdict(tmp_path, case, TOPICS).names()) == {"lost", "torn_transaction"}


def test_a_transaction_is_torn_only_if_it_is_torn_in_the_named_topics(tmp_path: Path) -> None:
    case = Tiny("p1 commit info a:0-4 b:0-4 i:0-4", {"a": "p1:0-4", "b": "", "i": ""})
    assert verdict(tmp_path, case, ["t"]).names() == ["torn_transaction"]
    whole = Tiny(case.history, {"a": "p1:0-4", "b": "p1:0-4", "i": ""})
    assert "torn_transaction" not in verdict(tmp_path, whole, ["t"]).names()
    assert "torn_transaction" in verdict(tmp_path, whole, ["t", "in"]).names()


def test_an_offset_is_compared_only_in_the_named_topics(tmp_path: Path) -> None:
    case = Tiny(
        "p2 send ok a:0-4>0\n p2 send ok i:0-4>7", {"a": "p2:0-4", "i": "p2:0-4"}, settings=IDEMPOTENT
    )
    assert verdict(tmp_path, case, ["t"]).exit_code == 0
    assert verdict(tmp_path, case, ["in"]).names() == ["inconsistent_offset"]
    assert verdict(tmp_path, case, ["t", "in"]).names() == ["inconsistent_offset"]


def test_a_record_of_a_topic_that_was_not_named_is_a_phantom_in_a_named_one(tmp_path: Path) -> None:
    case = Tiny("p1 commit ok a:0-4>0 i:0-4", {"a": "p1:0-4 p1i:3", "i": "p1:0-4"})
    assert verdict(tmp_path, case, ["t"]).names() == ["phantom"]


def test_a_pipeline_is_checked_only_if_the_topics_of_its_outputs_are_named(tmp_path: Path) -> None:
    case = Tiny("p1 commit ok i:0-4\n p9 commit ok o:0-4", {"i": "p1:0-4", "o": "p9:0<p1:0"})
    for topics in (["in"], ["in", "t"]):
        selection = select(tmp_path, case, topics, PIPELINE)
        assert selection.expect.pipeline is None
        assert "pipeline" not in selection.expect.properties
        assert any(line.startswith("pipeline: its outputs are in out") for line in selection.unchecked)
    selection = select(tmp_path, case, TOPICS, PIPELINE)
    assert selection.expect.pipeline == PIPELINE.pipeline
    assert "pipeline" in selection.expect.properties


def test_the_outputs_of_a_pipeline_are_in_the_topics_of_its_workers(tmp_path: Path) -> None:
    case = Tiny("p1 commit ok i:0-4\n p9 commit ok o:0-4", {"i": "p1:0-4", "o": "p9:0<p1:0"})
    history = write_histories(tmp_path / "history", case)
    worker = history / "p9.jsonl"
    lines = worker.read_text().replace('"role":"producer"', '"role":"pipeline"')
    worker.write_text(lines.replace('["t",0],["t",1],["in",0],', ""))
    assert select_topics(history, PIPELINE, ["out"]).expect.pipeline == PIPELINE.pipeline
    assert select_topics(history, PIPELINE, ["in"]).expect.pipeline is None


def test_a_topic_that_is_not_in_the_ledger_is_refused(tmp_path: Path) -> None:
    case = Tiny("p1 commit ok a:0-9", {"a": "p1:0-9"})
    with pytest.raises(UsageError, match="topic 'foreign' is not in the ledger of run r7k2m9qa") as refused:
        select(tmp_path, case, ["t", "foreign"])
    assert refused.value.hint == "the ledger has the topics in, out, t"


def test_a_producer_that_does_not_write_to_a_named_topic_adds_no_property(tmp_path: Path) -> None:
    case = Tiny("p1 commit ok a:0-4\n p2 send ok i:0-4>0", {"a": "p1:0-4", "i": "p2:0-4"}, IDEMPOTENT)
    history = write_histories(tmp_path / "history", case)
    for name, lanes in (("p1", '[["t",0]]'), ("p2", '[["out",0],["out",1],["in",0]]')):
        path = history / f"{name}.jsonl"
        path.write_text(path.read_text().replace('[["t",0],["t",1],["in",0],["out",0]]', lanes))
    assert "atomicity" in select_topics(history, HELD, ["t"]).expect.properties
    assert "atomicity" not in select_topics(history, HELD, ["in"]).expect.properties
    ledger = select_topics(history, HELD, ["in"]).ledger
    found = judge(Evidence(ledger, [observe(case, ["in"])], select_topics(history, HELD, ["in"]).expect))
    assert "lost" not in found.names()


def test_offsets_are_checked_only_if_a_second_source_reports_them(tmp_path: Path) -> None:
    log = {"a": "p2:0-4", "i": "p2:0-4"}
    silent, acked = (Tiny(f"p2 send ok a:0-4{ack} i:0-4{ack}", log, IDEMPOTENT) for ack in ("", ">0"))
    demanded = msgspec.structs.replace(HELD, properties=["exactly_once", "offsets"])

    assert "offsets" not in select(tmp_path / "1", silent, ["t"]).expect.properties
    assert "offsets" in select(tmp_path / "2", acked, ["t"]).expect.properties
    assert "offsets" in select(tmp_path / "3", silent, ["t"], demanded).expect.properties
    assert "offsets" in select(tmp_path / "4", silent, TOPICS, PIPELINE).expect.properties


def test_a_restricted_ledger_renumbers_its_lanes(tmp_path: Path) -> None:
    case = Tiny("p1 commit ok a:0-4>0 i:0-2>5 o:0-1>9", {"a": "p1:0-4"})
    whole = select(tmp_path, case, TOPICS).ledger
    part = restrict(whole, ["in", "out"])
    assert part.places == [("in", 0), ("out", 0)]
    assert part.intervals.lane.tolist() == [0, 1]
    assert part.intervals.last.tolist() == [2, 1]
    assert part.intervals.lane.dtype == whole.intervals.lane.dtype
    assert sorted(part.acks[:, 3].tolist()) == [5, 9]
    assert part.acks[:, 0].tolist() == [0, 1]
    assert (len(whole.places), len(whole.intervals.lane), len(whole.acks)) == (4, 3, 3)
    assert len(restrict(whole, []).lanes) == 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda history: history.joinpath("p1.jsonl").unlink(), "contains no history"),
        (lambda history: history.joinpath("p1.jsonl").write_text(""), "belong to 0 runs"),
        (lambda history: history.joinpath("p1.jsonl").write_text("{}\n{}\n"), "not a history line"),
        (lambda history: history.joinpath("p1.jsonl").write_bytes(b"\xff\xfe\n"), "not a history line"),
        (lambda history: history.joinpath("p2.jsonl").mkdir(), "Is a directory"),
    ],
    ids=["deleted", "empty", "garbled", "not UTF-8", "a folder"],
)
def test_damaged_histories_are_refused(tmp_path: Path, damage: object, message: str) -> None:
    history = write_histories(tmp_path / "history", Tiny("p1 commit ok a:0-9", {"a": "p1:0-9"}))
    damage(history)  # type: ignore[operator]
    with pytest.raises(UsageError, match=message):
        select_topics(history, HELD, ["t"], RUN)


def test_histories_of_another_run_are_refused(tmp_path: Path) -> None:
    history = write_histories(tmp_path / "history", Tiny("p1 commit ok a:0-9", {"a": "p1:0-9"}))
    with pytest.raises(UsageError, match=r"belong to run r7k2m9qa, but run\.json names run other"):
        select_topics(history, HELD, ["t"], "other")


def test_every_property_is_checked_or_listed_with_the_reason_why_not() -> None:
    assert set(CHECKERS) - set(OF_TOPICS) == set(_ONLY_CHECK) - set(OF_TOPICS)


def reseal_without_witness(run: RunDirectory) -> None:
    run.write("expect.json", Expect())
    manifest.write(run, INFO.run, manifest.read(run).promised)


DAMAGES: dict[str, Callable[[RunDirectory], object]] = {
    "witness no longer promised": reseal_without_witness,
    "manifest deleted": lambda run: (run.path / manifest.NAME).unlink(),
    "expect deleted": lambda run: (run.path / "expect.json").unlink(),
    "expect emptied": lambda run: (run.path / "expect.json").write_text("{}"),
    "history deleted": lambda run: (run.histories / "p-1.jsonl").unlink(),
    "history halved": lambda run: halve(run.histories / "p-1.jsonl"),
    "history added": lambda run: (run.histories / "p-9.jsonl").write_text(""),
    "run.json garbled": lambda run: (run.path / "run.json").write_bytes(b"\xff"),
}


def halve(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_unknown_before_spark_starts(tmp_path: Path, damage: str) -> None:
    run = make_run(tmp_path)
    DAMAGES[damage](run)
    with pytest.raises(HarnessError, match="is damaged, so the result is unknown") as error:
        open_run(run.path)
    assert error.value.exit_code == ExitCode.UNKNOWN


def test_an_undamaged_run_is_opened_with_its_expectations(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    recorded = open_run(tmp_path / "demo" / "latest")
    assert (recorded.run, recorded.expect) == (INFO.run, run.read("expect.json", Expect))
    assert select_topics(recorded.history, recorded.expect, ["t"], recorded.run).run == INFO.run


def test_a_folder_that_is_no_run_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the directory of a run"):
        open_run(tmp_path)
