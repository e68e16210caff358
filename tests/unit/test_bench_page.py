"""The page of all benchmarks: figures with targets, and the comparison with earlier runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.base.errors import ExitCode, HarnessError
from tools.bench import page
from tools.bench.figure import Figure, Part, show


@pytest.mark.parametrize(
    ("figure", "held", "target"),
    [
        (Figure("a", "s", [1.0, 3.0, 2.0], most=2), True, "at most 2 s"),
        (Figure("a", "s", [1.0, 3.0, 2.1], most=2), False, "at most 2 s"),
        (Figure("a", "", [0.7], least=0.7), True, "at least 0.7"),
        (Figure("a", "", [0.69], least=0.7), False, "at least 0.7"),
        (Figure("a", "GB", [9.0]), True, ""),
    ],
)
def test_a_figure_is_held_by_its_median(figure: Figure, held: bool, target: str) -> None:
    assert (figure.held, figure.target) == (held, target)
    assert figure.cells()[3] == ("" if not target else "held" if held else "missed")
    assert Figure.of(json.loads(json.dumps(figure.plain()))) == figure


def test_a_figure_of_one_value_has_no_quartiles() -> None:
    assert Figure("a", "s", [2.0]).measured == "2 s"
    assert Figure("a", "s", [1.0, 2.0, 3.0]).measured == "2 s (1.5 to 2.5 of 3)"


def test_figures_are_printed_as_json_or_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    part = Part(["a line"], [Figure("a", "s", [2.0], most=1)])
    show([part], as_json=True)
    (plain,) = json.loads(capsys.readouterr().out)["figures"]
    assert plain["name"] == "a"
    assert plain["held"] is False
    show([part], as_json=False)
    printed = capsys.readouterr().out
    assert "a line" in printed
    assert "missed" in printed


@pytest.mark.parametrize(
    ("figure", "earlier", "change"),
    [
        (Figure("a", "s", [1.3], most=9), [1.0, 1.0, 1.0], "+30%, WORSE"),
        (Figure("a", "s", [1.1], most=9), [1.0], "+10%"),
        (Figure("a", "s", [0.5], most=9), [1.0], "-50%"),
        (Figure("a", "", [0.5], least=0.1), [1.0], "-50%, WORSE"),
        (Figure("a", "", [2.0], least=0.1), [1.0], "+100%"),
        (Figure("a", "", [2.0]), [1.0], "+100%"),
        (Figure("a", "", [2.0]), [], ""),
    ],
)
def test_a_figure_is_worse_in_the_direction_of_its_target(
    figure: Figure, earlier: list[float], change: str
) -> None:
    assert page.change_of(figure, earlier) == change


def test_earlier_runs_count_only_on_the_same_machine_and_only_the_latest() -> None:
    def entry(machine: str, value: float) -> page.Entry:
        return page.Entry("", machine, 0, [Figure("a", "s", [value]).plain()])

    history = [entry("here", float(n)) for n in range(9)] + [entry("there", 99.0)]
    assert page.recent_medians(history, "here") == {("a", "s"): [4.0, 5.0, 6.0, 7.0, 8.0]}


def test_the_page_is_printed_and_kept_in_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = 1.0

    def measured(name: str, backend: str) -> list[Figure]:
        return [Figure(f"{name} on {backend}", "s", [value], most=1.5)]

    monkeypatch.setattr(page, "run_benchmark", measured)
    arguments = ["--only", "checker", "--backend", "process", "--history", str(tmp_path / "h.jsonl")]
    assert CliRunner().invoke(page.main, arguments).exit_code == 0
    value = 2.0
    second = CliRunner().invoke(page.main, arguments)
    assert second.exit_code == 1
    assert "checker on process  2 s" in second.output
    assert "missed  +100%, WORSE" in second.output
    entries = [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]
    assert [entry["figures"][0]["median"] for entry in entries] == [1.0, 2.0]


def test_a_benchmark_without_figures_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(name: str, backend: str) -> list[Figure]:
        if name == "producers":
            raise HarnessError("it printed no figures", "read its messages above")
        return [Figure(f"{name} on {backend}", "s", [1.0])]

    monkeypatch.setattr(page, "run_benchmark", measured)
    names = [f"--only={name}" for name in ("checker", "producers", "tap")]
    arguments = [*names, "--backend", "process", "--history", str(tmp_path / "h.jsonl")]
    result = CliRunner().invoke(page.main, arguments)
    assert result.exit_code == 1
    assert (
        "it printed no figures: read its messages above, and repeat it with --only producers" in result.output
    )
    entries = [json.loads(line) for line in (tmp_path / "h.jsonl").read_text().splitlines()]
    assert [entry["figures"][0]["name"] for entry in entries] == ["checker on process", "tap on process"]


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"machine": "here"}', '{"machine": 1, "figures": []}'])
def test_a_file_that_is_no_history_is_refused_before_anything_is_measured(tmp_path: Path, text: str) -> None:
    (tmp_path / "h").write_text(text)
    result = CliRunner().invoke(page.main, ["--history", str(tmp_path / "h")])
    assert result.exit_code == ExitCode.USAGE
    assert "is no history of benchmarks" in result.stderr


def test_a_benchmark_without_figures_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(page.BENCHMARKS, "checker", ("--transactions", "none"))
    with pytest.raises(HarnessError, match="`checker` ended with exit code 2 and printed no figures"):
        page.run_benchmark("checker", "process")
