from __future__ import annotations

import random
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.base.errors import ExitCode, HarnessError
from harness.evidence.checkers.model import Verdict
from harness.evidence.checkers.verdict import Judgement
from harness.evidence.observation import Findings, Meta, Observation, Reading, Window
from harness.run.spark_stream import describe_progress
from harness.witness.spark import frozen_offsets, spark_session, topic_verification
from harness.witness.spark.spark_session import DEFAULT_MASTER
from harness.witness.spark.stream_supervisor import Lag, StreamProgress
from harness.witness.spark.topic_verification import (
    ReaderChoice,
    RunWithoutLedger,
    Verified,
    check_without_ledger,
)
from harness.witness.spark.verify_report import exit_code_of, format_verification
from tests.spark.generated import RUN, by_words, draw_flaws, draw_shape, generate, ours


def result(**given: object) -> RunWithoutLedger:
    fields: dict[str, object] = {
        "run": RUN,
        "records": 5,
        "lanes": 1,
        "missing": 0,
        "aborted_intent": 0,
        "gaps": [],
    }
    fields |= {"duplicates": Findings(), "reordered": Findings(), "foreign": Findings()}
    return RunWithoutLedger(**{**fields, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(10))
def test_density_is_that_of_the_distinct_sequences(seed: int) -> None:
    rng = random.Random(seed)
    log = generate(rng, draw_shape(rng), draw_flaws(rng))
    found = check_without_ledger(RUN, by_words(log, 100), 0)
    lanes: dict[tuple[int, int], set[int]] = {}
    offsets = set()
    for partition, offset, value in log.rows:
        identity = ours(value)
        if identity and (partition, offset) not in offsets:
            offsets.add((partition, offset))
            lanes.setdefault((identity.producer, identity.lane), set()).add(identity.seq)
    assert found.lanes == len(lanes)
    assert found.missing == sum(max(seqs) + 1 - len(seqs) for seqs in lanes.values())
    assert sum(gap.missing for gap in found.gaps) == found.missing


@pytest.mark.parametrize(
    ("one", "code"),
    [
        (result(), ExitCode.VALID),
        (result(missing=1), ExitCode.UNKNOWN),
        (result(records=0), ExitCode.UNKNOWN),
        (result(aborted_intent=1), ExitCode.ANOMALY),
        (result(duplicates=Findings(count=1), missing=4), ExitCode.ANOMALY),
        (result(reordered=Findings(count=1)), ExitCode.ANOMALY),
    ],
)
def test_exit_codes_without_a_ledger(one: RunWithoutLedger, code: ExitCode) -> None:
    found = Verified([], [], without_ledger=[one])
    assert exit_code_of(found) == code
    assert any("not checked: " in line for line in format_verification(found))


@pytest.mark.parametrize(
    ("runs", "last"),
    [
        ([result()], "VALID: no anomaly in 5 records"),
        ([result(missing=2)], "UNKNOWN: 2 sequences missing, of records that were lost or aborted"),
        ([result(records=0)], "UNKNOWN: no record carries the harness's identity, so nothing was checked"),
        ([result(duplicates=Findings(count=3), aborted_intent=1)], "INVALID: 3 duplicate, 1 intended to be"),
    ],
)
def test_the_last_line_is_the_verdict_with_its_reason(runs: list[RunWithoutLedger], last: str) -> None:
    assert format_verification(Verified([], [], without_ledger=runs))[-1].startswith(last)


def test_a_hanging_transaction_is_an_anomaly_and_named() -> None:
    window = Window("t", 3, 0, 7, 9, 7)
    found = Verified([window], [window], without_ledger=[result()])
    assert exit_code_of(found) == ExitCode.ANOMALY
    assert "hanging_transaction: t-3 is stable only to offset 7 of 9" in format_verification(found)


def test_a_transaction_hangs_only_if_the_last_stable_offset_does_not_advance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = iter(range(1000))

    def freeze(*_: object) -> list[Window]:
        at = next(looks)
        return [
            Window("t", 0, 0, 5, 9 + at, 5),
            Window("t", 1, 0, at, at + 3, at),
            Window("t", 2, 0, 4, 4, 4),
        ]

    monkeypatch.setattr(frozen_offsets, "freeze", freeze)
    frozen = frozen_offsets.freeze_ends("b:1", ["t"], limit=0.5)
    assert [window.partition for window in frozen.windows] == [0, 1, 2]
    assert [window.partition for window in frozen.hanging] == [0]


def test_a_verification_without_results_is_unknown() -> None:
    assert exit_code_of(Verified([], [])) == ExitCode.UNKNOWN


def judged(verdict: Verdict, code: ExitCode) -> Judgement:
    return Judgement(verdict=verdict, exit_code=int(code), operations=1, results=[])


@pytest.mark.parametrize(
    ("verdict", "code", "agree", "wanted"),
    [
        (Verdict.VALID, ExitCode.VALID, True, ExitCode.VALID),
        (Verdict.VALID, ExitCode.VALID, False, ExitCode.UNKNOWN),
        (Verdict.UNKNOWN, ExitCode.UNKNOWN, False, ExitCode.UNKNOWN),
        (Verdict.INVALID, ExitCode.ANOMALY, False, ExitCode.ANOMALY),
    ],
)
def test_a_disagreement_of_spark_and_the_checkers_is_never_valid(
    verdict: Verdict, code: ExitCode, agree: bool, wanted: ExitCode
) -> None:
    differences = [] if agree else ["lost: Spark counts 1, the checkers count 0"]
    found = Verified([], [], judgement=judged(verdict, code), disagreements=differences)
    assert exit_code_of(found) == wanted
    text = "\n".join(format_verification(found))
    assert ("Spark and the checkers disagree: lost" in text) is not agree


def test_a_difference_between_sparks_readers_is_never_valid() -> None:
    found = Verified([], [], judgement=judged(Verdict.VALID, ExitCode.VALID))
    meta = Meta(witness="spark-batch", kind="spark", reading=Reading(reader="a consumer", sampled=5))
    found.add(Observation(meta))
    found.add(Observation(meta))
    assert exit_code_of(found) == ExitCode.VALID
    text = "Spark read with a consumer; Spark's Kafka source read 5 of the offsets too, with equal results"
    assert format_verification(found).count(text) == 1
    slower = Reading(reader="a consumer", reason="fetch requests failed: no leader", sampled=7)
    found.add(Observation(Meta(witness="spark-batch", kind="spark", reading=slower)))
    assert exit_code_of(found) == ExitCode.VALID
    text = (
        "Spark read with a consumer, because fetch requests failed: no leader; Spark's Kafka source read 7 of"
    )
    assert text in "\n".join(format_verification(found))
    other = Reading(reader="Spark's Kafka source", difference="one read 5, the other 6")
    found.add(Observation(Meta(witness="spark-batch", kind="spark", reading=other)))
    assert exit_code_of(found) == ExitCode.UNKNOWN
    assert "because its two readers disagree: one read 5, the other 6" in "\n".join(
        format_verification(found)
    )


def test_what_was_not_checked_is_listed_after_the_verdict() -> None:
    found = Verified(
        [], [], judgement=judged(Verdict.VALID, ExitCode.VALID), unchecked=["topic t: it was not named"]
    )
    lines = format_verification(found)
    assert lines.index("not checked: topic t: it was not named") > lines.index("verdict: valid")


@pytest.mark.parametrize(
    ("restarts", "silent_s", "lag", "text"),
    [
        (0, 1.0, Lag(7, 0), "50 read (20/s), 7 behind, 2 duplicates, 1 aborted"),
        (0, 40.0, Lag(0, 0), "50 read (20/s), 0 behind, 2 duplicates, 1 aborted"),
        (0, 40.0, Lag(7, 0), "50 read (20/s), nothing new for 40 s, 7 behind, 2 duplicates, 1 aborted"),
        (0, 90.0, None, "50 read (20/s), nothing new for 90 s, 2 duplicates, 1 aborted"),
        (
            3,
            1.0,
            Lag(7, 0),
            "50 read (20/s), 7 behind, 2 duplicates, 1 aborted, restarted 3 times from its checkpoint",
        ),
    ],
    ids=["reading", "idle", "stuck", "brokers away", "restarted"],
)
def test_the_progress_of_spark_shows_outages_and_restarts(
    restarts: int, silent_s: float, lag: Lag | None, text: str
) -> None:
    progress = StreamProgress(
        batch=3,
        rows=10,
        rows_per_s=20.0,
        records=50,
        duplicates=2,
        aborted_intent=1,
        restarts=restarts,
        silent_s=silent_s,
        lag=lag,
    )
    assert describe_progress(progress) == text


@pytest.mark.parametrize(
    ("offsets", "asked", "master", "used"),
    [
        (topic_verification.SMALL - 1, "auto", DEFAULT_MASTER, "plain"),
        (topic_verification.SMALL, "auto", DEFAULT_MASTER, "spark"),
        (topic_verification.QUICK_START_OFFSETS - 1, "auto", DEFAULT_MASTER, "spark"),
        (topic_verification.QUICK_START_OFFSETS, "auto", DEFAULT_MASTER, "spark"),
        (10, "auto", "spark://host:7077", "spark"),
        (10, "spark", DEFAULT_MASTER, "spark"),
        (topic_verification.SMALL, "plain", DEFAULT_MASTER, "plain"),
    ],
)
def test_the_reader_follows_the_number_of_offsets_unless_it_is_named(
    monkeypatch: pytest.MonkeyPatch, offsets: int, asked: ReaderChoice, master: str, used: str
) -> None:
    window = Window("t", 0, 5, 5 + offsets, 5 + offsets, 5 + offsets)

    def started(*_: object, quiet: bool, quick_start: bool) -> object:
        assert quiet
        assert quick_start == (offsets < topic_verification.QUICK_START_OFFSETS)
        return SimpleNamespace(stop=lambda: None)

    stand_ins: dict[str, object] = {
        "reach_cluster": lambda *_, **__: None,
        "existing_topics": lambda *_, **__: ["t"],
        "freeze_ends": lambda *_, **__: frozen_offsets.Frozen([window], []),
        "verify_plainly": lambda *_, **__: None,
        "start_session": started,
        "observe_without_ledger": lambda *_, **__: [],
    }
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(topic_verification, name, stand_in)

    found = topic_verification.verify_topics("b:1", ["t"], reader=asked, master=master)

    assert found.reader == used
    assert f"read by {'a plain consumer' if used == 'plain' else 'Spark'}" in format_verification(found)[1]


def test_a_session_that_does_not_start_shows_the_last_lines_of_its_jvm(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        subprocess.run(["/bin/sh", "-c", "echo WARN noise >&2; echo the cause >&2"], check=True)
        raise RuntimeError("the gateway exited")

    monkeypatch.setattr(spark_session, "build_session", fail)
    monkeypatch.setattr(spark_session, "ensure_jars", lambda *_: [])

    with pytest.raises(HarnessError, match=r"Spark did not start: .*the gateway exited") as caught:
        spark_session.start_session("test", "spark://host:7077", quiet=True)
    assert "the cause" in caught.value.hint
    assert capfd.readouterr().err == ""
    with pytest.raises(RuntimeError):
        spark_session.start_session("test", "spark://host:7077")
    assert "the cause" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("master", "quick_start", "first_compiler_only"),
    [(DEFAULT_MASTER, True, True), (DEFAULT_MASTER, False, False), ("spark://host:7077", True, False)],
)
def test_a_quick_start_uses_only_the_first_compiler_of_a_jvm_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, master: str, quick_start: bool, first_compiler_only: bool
) -> None:
    built: list[Mapping[str, str]] = []
    monkeypatch.setattr(spark_session, "build_session", lambda _, settings, __: built.append(settings))
    monkeypatch.setattr(spark_session, "ensure_jars", lambda *_: [])

    spark_session.start_session("test", master, quick_start=quick_start, scratch=tmp_path)

    options = built[0]["spark.driver.extraJavaOptions"].split()
    assert ("-XX:TieredStopAtLevel=1" in options) == first_compiler_only
