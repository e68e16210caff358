"""The command line: help, errors and exit codes."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from harness.base.errors import (
    CapabilityError,
    ExitCode,
    HarnessError,
    HealError,
    NoBiteError,
    RefusedError,
    UsageError,
    WaitTimeoutError,
)
from harness.cli import main as command_line
from harness.cli import run_commands as runs
from harness.cli.main import SECTIONS, cli, main
from harness.cli.options import RUNS
from harness.cli.run_commands import ExternalOptions, RunOptions, demo_exit_code
from harness.cli.scenario_commands import PlanOptions
from harness.cluster import lifecycle
from harness.kafka.errors import KafkaAnswerError

EOS = Path(sys.executable).with_name("eos")
HEAVY = (
    "confluent_kafka",
    "docker",
    "kafka",
    "numpy",
    "pandas",
    "pyspark",
    "requests",
    "rich",
    "testcontainers",
)
COMMANDS = sorted(cli.commands)


def eos(*arguments: str, state: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [EOS, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={
            "PATH": "/usr/bin:/bin",
            "EOS_STATE": str(state),
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        },
    )


def exit_code_of(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the exit code of a command that raises this error."""

    def raises() -> None:
        raise error

    monkeypatch.setattr(command_line, "cli", click.command(raises))
    monkeypatch.setattr(sys, "argv", ["eos"])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def shown(*arguments: str) -> str:
    """Return the help of a command, formatted for a terminal of 80 columns."""
    from click.testing import CliRunner

    return CliRunner().invoke(cli, [*arguments, "--help"], terminal_width=80).output


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_command_has_a_description_and_an_example(name: str) -> None:
    text = shown(name)
    assert f"Example:  eos {name}" in text
    assert cli.commands[name].help
    described = [option for option in cli.commands[name].params if isinstance(option, click.Option)]
    assert all(option.help for option in described)


def test_the_help_lists_every_command_and_every_exit_code() -> None:
    text = shown()
    assert all(f"\n  {name} " in text for name in COMMANDS)
    listed = {int(line.split()[0]) for line in text.partition("Exit codes")[2].splitlines()[1:] if line}
    assert listed == set(ExitCode)


def test_the_help_fits_80_columns_and_cuts_no_description() -> None:
    for arguments in ((), *((name,) for name in COMMANDS)):
        text = shown(*arguments)
        assert max(map(len, text.splitlines())) <= 80
        assert "..." not in "\n".join(text.splitlines()[1:]), "only the usage may repeat an argument"


def test_every_command_is_in_one_section_of_the_help() -> None:
    listed = [command.name for _, commands in SECTIONS for command in commands]
    assert sorted(str(name) for name in listed) == COMMANDS


WRONG = [
    ("vrify", "there is no command 'vrify'", "did you mean verify? `eos --help` lists the commands"),
    ("qqq", "there is no command 'qqq'", "`eos --help` lists the commands"),
    (
        "x" * 5000,
        f"there is no command {'x' * 80 + '... (5000 characters)'!r}",
        "`eos --help` lists the commands",
    ),
    (
        "run --sed 4 jitter",
        "eos run has no option --sed",
        "did you mean --seed? `eos run --help` shows the options",
    ),
    ("run jitter --seed abc", "--seed: 'abc' is not a whole number", "`eos run --help` shows the options"),
    (
        "run jitter --seed \N{ARABIC-INDIC DIGIT FIVE}",
        "--seed: '\N{ARABIC-INDIC DIGIT FIVE}' is not a whole number",
        "`eos run --help` shows the options",
    ),
    (
        "run jitter --seed -1",
        "--seed: -1 is not between 0 and 1000000000",
        "`eos run --help` shows the options",
    ),
    (
        f"run jitter --seed {'9' * 5000}",
        f"--seed: {'9' * 80}... (5000 characters) is not between 0 and 1000000000",
        "`eos run --help` shows the options",
    ),
    (
        "logs kafka-1 --lines 99999999999999999999",
        "--lines: 99999999999999999999 is not between 1 and 1000000000",
        "",
    ),
    ("plan", "SCENARIO is missing", "`eos plan --help` shows the options"),
    ("verify --bootstrap b:1", "--topic is missing", "`eos verify --help` shows the options"),
    (
        "verify --master sparkk://x --bootstrap b:1 --topic x",
        "--master 'sparkk://x' is no Spark master",
        "write spark://host:7077",
    ),
    (
        "verify --reader plain --master local --bootstrap b:1 --topic x",
        "--reader plain and --master exclude each other",
        "use one of them",
    ),
    ("verify --topic x", "--bootstrap is missing", "name brokers, such as --bootstrap localhost:9092"),
    ("up --backend k8s", "--backend: 'k8s' is not one of 'auto', 'compose', 'process'", ""),
    ("run jitter jitter", "got unexpected extra argument (jitter)", "`eos run --help` shows the options"),
    ("run jitter --seed", "option '--seed' requires an argument", ""),
]


@pytest.mark.parametrize(("line", "message", "hint"), WRONG, ids=[line[:30] for line, *_ in WRONG])
def test_a_wrong_command_line_has_a_message_and_a_hint(
    line: str, message: str, hint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["eos", *line.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == ExitCode.USAGE
    output = capsys.readouterr()
    assert output.out == ""
    shown_message, shown_hint = output.err.split("\n\nhint: ")
    assert shown_message == f"error: {message}"
    assert hint in shown_hint


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("help", "Usage: eos [OPTIONS] COMMAND [ARGS]..."),
        ("help run", "Usage: eos run [OPTIONS] SCENARIO"),
        ("-V", "eos, version 0.1.0"),
        ("version", "eos              0.1.0"),
    ],
)
def test_words_that_users_of_other_tools_type_work(
    line: str, first: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["eos", *line.split()])
    with contextlib.suppress(SystemExit):
        main()
    assert capsys.readouterr().out.splitlines()[0] == first


def completed(words: str, folder: Path) -> list[str]:
    """Return what bash offers for a command line whose last word is incomplete."""
    count = len(words.split(" ")) - 1
    done = subprocess.run(
        [EOS],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "_EOS_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(count),
        },
    )
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_a_shell_completes_commands_options_scenarios_and_runs(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "demo" / "2026-11-19T100000-7"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    assert completed("eos ver", tmp_path) == ["verify", "version"]
    assert completed("eos run --exp", tmp_path) == ["--expected"]
    assert completed("eos run jit", tmp_path) == ["jitter"]
    assert completed("eos check runs/d", tmp_path) == ["runs/demo/2026-11-19T100000-7"]
    script = eos("completion", "bash", state=tmp_path)
    assert script.returncode == 0
    assert "_EOS_COMPLETE=bash_complete" in script.stdout


def imported(statements: str) -> list[str]:
    """Return the heavy packages that a new interpreter has imported after these statements."""
    script = (
        "import contextlib, io, sys\nfrom harness.cli.main import cli\n"
        f"with contextlib.redirect_stdout(io.StringIO()):\n    {statements}\n"
        f"print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.split()


def test_no_help_imports_anything_heavy() -> None:
    every = [["--help"], *([name, "--help"] for name in COMMANDS)]
    assert imported(f"[cli.main(words, standalone_mode=False) for words in {every!r}]") == []


def test_a_completion_imports_nothing_heavy() -> None:
    words = "from harness.cli.options import complete_run, complete_scenario"
    assert (
        imported(f"{words}; assert complete_scenario(None, None, 'de'); complete_run(None, None, '')") == []
    )


@pytest.mark.parametrize(
    ("arguments", "packages"),
    [("list", ["rich"]), ("list --json", []), ("show demo", []), ("version", []), ("completion bash", [])],
)
def test_a_command_imports_only_what_it_shows(arguments: str, packages: list[str]) -> None:
    assert imported(f"cli.main({arguments.split()!r}, standalone_mode=False)") == packages


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("m", "h"), 4),
        (RefusedError("m", "h"), 5),
        (CapabilityError("m", "h"), 5),
        (HarnessError("m", "h"), 2),
        (WaitTimeoutError("m", "h"), 2),
        (NoBiteError("m", "h"), 2),
        (HealError("m", "h"), 2),
        (click.BadParameter("m"), 4),
        (click.FileError("f"), 4),
        (EOFError("the peer closed"), 2),
        (socket.gaierror(-2, "Name or service not known"), 2),
        (ssl.SSLError(1, "wrong version number"), 2),
        (OSError(errno.EHOSTUNREACH, "No route to host"), 2),
        (KafkaAnswerError("topic orders", 3), 2),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 2),
        (FileNotFoundError(errno.ENOENT, "our own file"), 70),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (KeyError("x"), 70),
        (AssertionError(), 70),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_each_error_has_its_exit_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert exit_code_of(error, monkeypatch) == code


def test_an_error_is_a_message_an_empty_line_and_a_hint_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code_of(RefusedError("no cluster is up", "`eos up` starts one"), monkeypatch)
    output = capsys.readouterr()
    assert output.err == "error: no cluster is up\n\nhint: `eos up` starts one\n"
    assert output.out == ""


def test_a_bug_shows_a_traceback_and_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code_of(KeyError("x"), monkeypatch)
    output = capsys.readouterr().err
    assert "Traceback" in output
    assert "KeyError: 'x'" in output
    assert "error: this is a bug of the harness\n" in output
    assert "hint: " in output
    assert "eos heal" in output


def test_an_interrupt_prints_how_to_heal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code_of(KeyboardInterrupt(), monkeypatch)
    assert capsys.readouterr().err == "interrupted\n", "nothing was injected"

    monkeypatch.setattr(cli.commands["run"], "callback", interrupted)
    monkeypatch.setattr(command_line, "cli", cli)
    monkeypatch.setattr(sys, "argv", ["eos", "run", "jitter"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == ExitCode.INTERRUPTED
    assert "eos heal" in capsys.readouterr().err


def interrupted(**_: object) -> None:
    raise KeyboardInterrupt


def test_a_refused_connection_is_not_reported_as_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(ConnectionRefusedError(111, "Connection refused"), monkeypatch) == 2
    output = capsys.readouterr().err
    assert "error: a node did not answer: [Errno 111] Connection refused" in output
    assert "hint: `eos status`" in output


def test_a_missing_right_is_reported_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(KafkaAnswerError("producers of payments-0", 29), monkeypatch) == 2
    output = capsys.readouterr().err
    assert "producers of payments-0: TOPIC_AUTHORIZATION_FAILED (29)" in output
    assert "hint: grant the right to this user, or name topics that it may read" in output


def test_wrong_arguments_exit_with_the_usage_code(tmp_path: Path) -> None:
    unknown = eos("frobnicate", state=tmp_path)
    assert unknown.returncode == 4
    assert "there is no command 'frobnicate'" in unknown.stderr
    choice = eos("up", "--backend", "podman", state=tmp_path)
    assert choice.returncode == 4
    assert "'podman' is not one of 'auto', 'compose', 'process'" in choice.stderr
    assert unknown.stdout == choice.stdout == ""


def test_a_command_that_needs_a_cluster_is_refused_without_one(tmp_path: Path) -> None:
    refused = eos("status", state=tmp_path / "nowhere")
    assert refused.returncode == 5
    assert refused.stderr == (f"error: no cluster is up in {tmp_path}/nowhere\n\nhint: `eos up` starts one\n")
    assert refused.stdout == ""


def test_a_closed_pipe_is_not_reported_as_a_bug(tmp_path: Path) -> None:
    command = f"'{EOS}' tool nothing 2>&1 | true; '{EOS}' --help | head -1"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", "EOS_STATE": str(tmp_path)},
    )
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("Usage: eos")


@pytest.mark.parametrize("argument", ["list", "--help"])
def test_a_closed_pipe_does_not_exit_with_the_code_of_an_anomaly(argument: str) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", "from harness.cli.main import main; main()", argument]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(write)
    assert done.returncode == 141
    assert done.stderr == b""


def unknown(*_: object, **__: object) -> None:
    raise socket.gaierror(-2, "Name or service not known")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "demo", "--junit", "nowhere/junit.xml"], "--junit nowhere/junit.xml cannot be written"),
        (["run", "demo", "--junit", "."], "cannot be written"),
        (["run", "demo", "--runs", "file/below/it"], "file is a file"),
        (["hanging", "--bootstrap", "localhost"], "'localhost' is not \"host:port\""),
        (["hanging", "--bootstrap", "localhost:kafka"], 'is not "host:port"'),
        (["hanging", "--bootstrap", "no-such-host.invalid:9092"], "unknown host no-such-host.invalid"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_started(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "argv", ["eos", *arguments])
    monkeypatch.setattr(lifecycle, "up", lambda *_: pytest.fail("a cluster was started"))
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(SystemExit) as ended:
        main()
    output = capsys.readouterr().err
    assert (ended.value.code, message in output, "hint: " in output) == (ExitCode.USAGE, True, True), output


def test_the_replay_command_has_the_options_that_were_given(tmp_path: Path) -> None:
    options = RunOptions("process", True, tmp_path / "runs", tmp_path / "state")
    replay = PlanOptions(duration=1234567.0).replay_command("demo", 7, options.command_line_args())
    assert replay == (
        f"eos run demo --seed 7 --duration 1234567s --backend process --runs {tmp_path}/runs "
        f"--state {tmp_path}/state --keep"
    )
    defaults = RunOptions("auto", False, RUNS, None).command_line_args()
    assert PlanOptions(duration=0.25).replay_command("demo", 7, defaults) == (
        "eos run demo --seed 7 --duration 0.25s"
    )


def outcome(code: int, *, expected: bool, interrupted: bool = False) -> Any:
    judgement = SimpleNamespace(names=list, verdict="valid")
    return SimpleNamespace(
        scenario="s",
        exit_code=ExitCode(code),
        expected=expected,
        interrupted=interrupted,
        judgement=judgement,
        directory="d",
    )


@pytest.mark.parametrize(
    ("shown", "code"),
    [
        ([outcome(0, expected=True), outcome(1, expected=True)], 0),
        ([outcome(0, expected=True), outcome(0, expected=False)], 1),
        ([outcome(2, expected=False), outcome(1, expected=True)], 2),
        ([outcome(130, expected=True, interrupted=True)], 130),
    ],
    ids=["as expected", "the planted fault was not found", "unknown", "interrupted"],
)
def test_a_demo_succeeds_if_each_run_ends_as_expected(shown: list[Any], code: int) -> None:
    assert demo_exit_code(shown) == code


def test_an_interrupted_demo_starts_no_second_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    started: list[str] = []

    def execute(name: str, *_: object) -> Any:
        started.append(name)
        return outcome(130, expected=True, interrupted=True)

    monkeypatch.setattr(runs, "execute", execute)
    monkeypatch.setattr(lifecycle, "down", lambda *_: True)
    assert CliRunner().invoke(cli, ["demo"]).exit_code == ExitCode.INTERRUPTED
    assert started == ["demo"]


def test_late_is_unknown_for_runs_without_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from harness.report import late_endtxn_audit

    monkeypatch.setattr(late_endtxn_audit, "find_broken_transactions", lambda _: ([], 0))
    done = CliRunner().invoke(cli, ["late", "runs/mine/latest"])
    assert done.exit_code == ExitCode.UNKNOWN
    assert "nothing was checked" in done.output


def test_the_replay_command_of_an_external_run_has_its_consent(tmp_path: Path) -> None:
    file = tmp_path / "two words.toml"
    external = ExternalOptions(file, "4L6g3nShT-eMCtK--X86sw", moves_foreign=True, dry_run=False)
    options = PlanOptions(changes=("plan.steady=1s",), duration=90.0)
    assert options.replay_command("jitter", 7, external.command_line_args()) == (
        f"eos run jitter --seed 7 --set plan.steady=1s --duration 90s --cluster '{file}' "
        "--i-understand 4L6g3nShT-eMCtK--X86sw --move-foreign"
    )
    plain = ExternalOptions(file, "", moves_foreign=False, dry_run=False)
    assert plain.command_line_args() == ["--cluster", str(file)]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_is_one_line_of_help_and_no_line_is_longer_than_a_terminal(name: str) -> None:
    text = shown(name)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    options = text.partition("Options:\n")[2].partition("\n\n")[0].splitlines()
    assert [line for line in options if not line.startswith("  -")] == []
