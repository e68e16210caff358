"""The rounds of a canary: counters, alerts, and what stays on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from harness.base.errors import ExitCode, RefusedError
from harness.cli.watch_command import _report_rounds
from harness.evidence.run_directory import Summary
from harness.run import Outcome, watch_process
from harness.run.watch import MakeRound, Round, Watch, make_round

CODES = {"valid": ExitCode.VALID, "unknown": ExitCode.UNKNOWN, "invalid": ExitCode.ANOMALY}


@pytest.fixture
def runs(tmp_path: Path) -> Callable[..., MakeRound]:
    """Return a function that makes rounds with these verdicts, in order."""

    def make(*verdicts: str) -> MakeRound:
        left = list(verdicts)

        def carry_out(seed: int) -> Outcome:
            verdict = left.pop(0)
            if verdict == "refused":
                raise RefusedError("the cluster is not healthy", "eos heal")
            directory = tmp_path / f"{seed}"
            directory.mkdir()
            (directory / "run.json").write_text("{}")
            summary = Summary(
                run="r",
                scenario="canary",
                seed=seed,
                started="",
                verdict=verdict,
                exit_code=int(CODES[verdict]),
                operations=1,
                records=100,
                witnesses=["reader"],
                anomalies={"lost": 2} if verdict == "invalid" else {},
                permitted={},
                properties={},
                limits={},
                reasons=["a witness is missing"] if verdict == "unknown" else [],
                notes=[],
            )

            (directory / "summary.json").write_bytes(msgspec.json.encode(summary))
            judgement = SimpleNamespace()
            return Outcome("canary", CODES[verdict], judgement, directory, False, verdict == "valid")  # type: ignore[arg-type]

        return lambda number, seed: make_round(number, seed, carry_out)

    return make


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_first_round_that_is_not_valid_ends_the_watch_with_its_code(
    runs: Callable[..., MakeRound], capsys: pytest.CaptureFixture[str]
) -> None:
    watch = Watch(runs("valid", "invalid", "valid"), first_seed=7, kept=5, metrics=None)
    assert _report_rounds(watch, None, keep_going=False) == ExitCode.ANOMALY
    assert [(line["round"], line["seed"], line["verdict"]) for line in lines(capsys)] == [
        (1, 7, "valid"),
        (2, 8, "invalid"),
    ]


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (("valid", "valid"), ExitCode.VALID),
        (("invalid", "valid", "unknown"), ExitCode.ANOMALY),
        (("unknown", "valid"), ExitCode.UNKNOWN),
        (("refused", "invalid"), ExitCode.ANOMALY),
        (("valid", "refused", "unknown"), ExitCode.REFUSED),
    ],
)
def test_a_watch_that_keeps_going_ends_with_the_worst_code(
    runs: Callable[..., MakeRound],
    capsys: pytest.CaptureFixture[str],
    verdicts: tuple[str, ...],
    code: ExitCode,
) -> None:
    watch = Watch(runs(*verdicts), first_seed=1, kept=5, metrics=None)
    assert _report_rounds(watch, len(verdicts), keep_going=True) == code
    assert len(lines(capsys)) == len(verdicts)


def test_only_the_last_valid_runs_stay_on_disk_and_every_other_one(
    runs: Callable[..., MakeRound], tmp_path: Path
) -> None:
    watch = Watch(runs("valid", "invalid", "valid", "unknown", "valid"), first_seed=1, kept=1, metrics=None)
    _report_rounds(watch, 5, keep_going=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "4", "5"]


def test_metrics_count_all_rounds_and_show_the_last_one(
    runs: Callable[..., MakeRound], tmp_path: Path
) -> None:
    file = tmp_path / "eos.prom"
    watch = Watch(runs("invalid", "refused", "valid"), first_seed=1, kept=1, metrics=file)
    _report_rounds(watch, 3, keep_going=True)
    text = file.read_text().splitlines()
    for line in (
        'eos_watch_rounds_total{verdict="valid"} 1',
        'eos_watch_rounds_total{verdict="unknown"} 1',
        'eos_watch_rounds_total{verdict="invalid"} 1',
        "eos_watch_records_total 200",
        'eos_watch_anomalies_total{name="lost"} 2',
        'eos_watch_last_verdict{verdict="valid"} 1',
        'eos_watch_last_verdict{verdict="invalid"} 0',
        "# TYPE eos_watch_rounds_total counter",
    ):
        assert line in text


def interrupted(make: MakeRound, last: int) -> MakeRound:
    """Return the same rounds; the one with this number was stopped by a signal."""

    def made(number: int, seed: int) -> Round:
        done = make(number, seed)
        done.interrupted = number == last
        return done

    return made


@pytest.mark.parametrize(
    ("verdicts", "code", "counted"),
    [
        (("valid", "unknown"), ExitCode.INTERRUPTED, "valid"),
        (("valid", "valid"), ExitCode.INTERRUPTED, "valid"),
        (("valid", "invalid"), ExitCode.ANOMALY, "valid invalid"),
        (("invalid", "unknown"), ExitCode.ANOMALY, "invalid"),
        (("unknown", "unknown"), ExitCode.INTERRUPTED, "unknown"),
    ],
)
def test_a_round_that_is_stopped_raises_no_alarm_and_hides_none(
    runs: Callable[..., MakeRound], tmp_path: Path, verdicts: tuple[str, str], code: ExitCode, counted: str
) -> None:
    file = tmp_path / "eos.prom"
    watch = Watch(interrupted(runs(*verdicts), 2), first_seed=1, kept=2, metrics=file)

    assert _report_rounds(watch, None, keep_going=True) == code
    for verdict in ("valid", "unknown", "invalid"):
        assert f'rounds_total{{verdict="{verdict}"}} {counted.split().count(verdict)}\n' in file.read_text()


@pytest.mark.parametrize(
    ("output", "code", "reported"),
    [
        ("", ExitCode.REFUSED, ExitCode.REFUSED),
        ("", -9, ExitCode.UNKNOWN),
        ("no JSON", ExitCode.VALID, ExitCode.UNKNOWN),
        ('{"round": 1}', ExitCode.VALID, ExitCode.UNKNOWN),
    ],
)
def test_a_round_whose_process_printed_no_result_is_not_valid(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, output: str, code: int, reported: ExitCode
) -> None:
    program = tmp_path / "python"
    end = "kill -9 $$" if code < 0 else f"exit {int(code)}"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{output}'\n{end}\n")
    program.chmod(0o755)
    monkeypatch.setattr(watch_process.sys, "executable", str(program))

    done = watch_process.make_round_in_process([], 3, 7)

    assert (done.round, done.seed, done.verdict, done.exit_code) == (3, 7, "unknown", reported)
    assert done.reasons == [f"the process of the round ended with exit code {int(code)} and without a result"]
