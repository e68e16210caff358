"""The commands of the benchmarks: each one has help with an example, and prints an error with its hint."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

import tools.bench
from harness.base.errors import ExitCode, UsageError
from tools.bench import producers

NAMES = sorted(
    path.stem
    for path in Path(tools.bench.__file__).parent.glob("*.py")
    if 'if __name__ == "__main__":' in path.read_text()
)


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_has_help_and_an_example(name: str) -> None:
    shown = CliRunner().invoke(import_module(f"tools.bench.{name}").main, ["--help"])
    assert shown.exit_code == 0
    assert f"Example:  python -m tools.bench.{name}" in shown.output
    options = [line.split()[0] for line in shown.output.splitlines() if line.startswith("  --")]
    assert len(options) > 1
    assert len(NAMES) == 9


def test_an_expected_error_has_a_hint_and_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise UsageError("no cluster", "start one")

    monkeypatch.setattr(producers, "cluster_up", fail)
    result = CliRunner().invoke(producers.main, [])
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr == "error: no cluster\n\nhint: start one\n"


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--seconds", "-1"], ["--part", "unknown"]])
def test_an_option_out_of_its_range_is_refused(arguments: list[str]) -> None:
    assert CliRunner().invoke(producers.main, arguments).exit_code == 2
