"""The commands of the documentation hold as they are printed: each one parses, and a test runs it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest

from harness.base.errors import UsageError
from harness.cli.main import cli
from harness.cluster.external.cluster_file_loader import load_cluster_file
from harness.faults.catalogue import external_faults
from harness.scenario import find, load, new_scenario, shipped
from tests import finished_runs
from tests.doc_commands import HERE, HOW, ROOT, Command, commands, commands_to_run, how, unknown_lines

BIN = Path(sys.executable).parent
SCENARIOS = {path.stem for path in shipped()}
VALUES = {
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "HOST:PORT": "localhost:9092",
    "NAME": "jitter",
    "SCENARIO": "jitter",
    "N": "7",
    "S": "3",
}
"""Values for the words in capitals that stand for a value of the reader."""
_TARGETS = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
_VARIABLES = re.findall(r"^([A-Z_]+) [?:]=", (ROOT / "Makefile").read_text(), re.MULTILINE)
_PYTEST_OPTIONS = ("--backend", "--soak", "--repeats", "-k", "-m", "--keep")


def eos_problem(words: list[str]) -> str:
    """Parse a command line of `eos` without running it; return what is wrong with it."""
    piped = next((i for i, word in enumerate(words) if word in ("|", ">")), len(words))
    name, arguments = words[0], [VALUES.get(word, word) for word in words[1:piped]]
    if name in ("--help", "--version"):
        return ""
    if name not in cli.commands:
        return f"there is no command {name}"
    command = cli.commands[name]
    # A page may name a command without its arguments, or with an option without its value.
    valued = [p.opts[0] for p in command.params if isinstance(p, click.Option) and not p.is_flag]
    arguments = arguments[:-1] if arguments[-1:] and arguments[-1] in valued else arguments
    given = [word for word in arguments if not word.startswith("--")]
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.required and parameter.opts[0] not in arguments:
            arguments += [parameter.opts[0], "orders"]
        if isinstance(parameter, click.Argument) and parameter.required and not given:
            return ""
    try:
        context = command.make_context(name, arguments)
    except click.ClickException as error:
        return error.format_message()
    return scenario_problem(str(context.params.get("scenario", "jitter")), context.params.get("changes", ()))


def scenario_problem(scenario: str, changes: Sequence[str]) -> str:
    """Return what is wrong with a scenario and its --set options. Files of the reader are left out."""
    if scenario in ("mine.toml", "first.toml", "FILE"):
        return ""
    if scenario not in SCENARIOS and not (ROOT / scenario).exists():
        return f"there is no scenario {scenario}"
    try:
        load(
            find(scenario if scenario in SCENARIOS else str(ROOT / scenario)),
            dict(change.split("=", 1) for change in changes),
        )
    except UsageError as error:
        return error.message
    return ""


def make_problem(words: list[str]) -> str:
    """Return the targets and variables of a `make` command that the Makefile does not have."""
    unknown = [
        word
        for word in words
        if (word.split("=")[0] not in _VARIABLES if "=" in word else word not in _TARGETS)
    ]
    return f"the Makefile has no {', '.join(unknown)}" if unknown else ""


def module_problem(words: list[str]) -> str:
    """Return the module or the options of a `python -m` command that do not exist."""
    if words[:1] != ["-m"]:
        return f"python {words[0]} is not known here"
    source = ROOT.joinpath(*words[1].split(".")).with_suffix(".py")
    if not source.exists():
        source = ROOT.joinpath(*words[1].split("."), "__main__.py")
    if not source.exists():
        return f"there is no module {words[1]}"
    files = [source, *(ROOT / "tools" / "bench").glob("command.py"), ROOT / "harness" / "cli" / "options.py"]
    strings = {
        node.value
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    unknown = [word for word in words[2:] if word.startswith("--") and word not in strings]
    return f"{words[1]} has no option {', '.join(unknown)}" if unknown else ""


def pytest_problem(words: list[str]) -> str:
    """Return the paths and options of a `pytest` command that do not exist."""
    for word in words:
        if word.startswith("-") and word not in _PYTEST_OPTIONS:
            return f"pytest has no option {word}"
        if word.startswith("tests/") and "..." not in word and not (ROOT / word).exists():
            return f"there is no {word}"
    return ""


def problem(text: str) -> str:
    """Return what is wrong with a command; an empty string if it can be run."""
    words = Command("", text, in_block=False).words
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words = words[1:]
    match words[0], words[1:]:
        case (("eos" | ".venv/bin/eos" | "eos-harness/.venv/bin/eos"), rest):
            return eos_problem(rest)
        case "make", rest:
            return make_problem(rest[2:] if rest[:1] == ["-C"] else rest)
        case "python", rest:
            return module_problem(rest)
        case "pytest", rest:
            return pytest_problem(rest)
        case "for", _:
            parts = [part.strip().removeprefix("do ") for part in text.split(";")[1:]]
            found = [problem(part.replace("$seed", "1")) for part in parts if part != "done"]
            return "; ".join(filter(None, found))
    return ""


@pytest.mark.parametrize("page", sorted({command.page for command in commands()}))
def test_every_command_of_a_page_parses(page: str) -> None:
    texts = dict.fromkeys(command.text for command in commands() if command.page == page)

    assert {text: found for text in texts if (found := problem(text))} == {}


@pytest.mark.parametrize("page", sorted({command.page for command in commands()}))
def test_every_file_that_a_page_prints_can_be_loaded(page: str, tmp_path: Path) -> None:
    """Whole scenarios and cluster files; a block without their first table is a part of a file."""
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    (tmp_path / "staging-ca.pem").touch()
    for number, block in enumerate(blocks):
        file = tmp_path / f"{number}.toml"
        file.write_text(block)
        if "[scenario]\n" in block:
            load(file)
        elif "[cluster]\nid = " in block:
            # The example file for commands that only read has no limits.
            load_cluster_file(file, external_faults(), only_reads="[limits]\n" not in block)


def test_every_line_in_a_block_of_commands_is_a_command() -> None:
    assert unknown_lines() == []


def test_every_command_in_a_block_is_run_or_has_a_reason() -> None:
    in_blocks = [command for command in commands() if command.in_block]

    assert [str(command) for command in in_blocks if how(command) is None] == []
    assert sorted(HOW.keys() - {command.text for command in in_blocks}) == []


@pytest.mark.parametrize(
    "text",
    [
        "eos rnu jitter",
        "eos run jittr --seed 7",
        "eos run jitter --sed 7",
        "eos plan jitter --seed many",
        "eos run jitter --set workload.0.idempotent=false",
        "eos verify --bootstrap localhost:9092 --topc orders",
        "make tset",
        "make demo BACKND=process",
        "python -m tools.nothing",
        "python -m tools.campaign --rnus 3",
        "pytest tests/nowhere",
        "for seed in 1 2; do eos run jittr --seed $seed; done",
    ],
)
def test_a_command_with_a_mistake_is_found(text: str) -> None:
    assert problem(text)


def examples_of(command: click.Command) -> list[str]:
    """Return the examples in the help of a command; a backslash joins two lines."""
    text = (command.epilog or "").replace("\\\n", " ").replace("-- \n", "-- ")
    lines = [" ".join(line.split()) for line in text.replace("Example:", "").splitlines()]
    joined: list[str] = []
    for line in filter(None, (line.replace("\b", "") for line in lines)):
        if line.startswith("eos "):
            joined.append(line)
        else:
            joined[-1] += f" {line}"
    return joined


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_the_help_of_a_command_has_examples_that_parse(name: str) -> None:
    command = cli.commands[name]
    examples = examples_of(command)

    assert len(examples) >= (4 if any(isinstance(p, click.Option) for p in command.params) else 1)
    known = {"runs", "FILE"}
    problems = {text: problem(text) for text in examples if not known & set(text.split())}
    assert {text: found for text, found in problems.items() if found} == {}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the commands find the runs and the file that the pages made before them."""
    folder = tmp_path_factory.mktemp("reader")
    made = {
        "leader-kills": finished_runs.valid_run(folder / "made"),
        "without-idempotence": finished_runs.invalid_run(folder / "made"),
        "idempotent-walkthrough": finished_runs.walkthrough_run(folder / "made"),
    }
    for name, run in made.items():
        (folder / "runs" / name).mkdir(parents=True)
        run.rename(folder / "runs" / name / "2026-01-02T030405-7")
        (folder / "runs" / name / "latest").symlink_to("2026-01-02T030405-7")
    (folder / "runs" / "results.jsonl").write_bytes(
        (ROOT / "docs" / "evidence" / "results.jsonl").read_bytes()
    )
    (folder / ".venv").symlink_to(BIN.parent)
    return folder


EXPECTED = {
    # 5 means that this machine lacks something.
    "eos doctor": (0, 5),
    "eos check runs/without-idempotence/latest": (1,),
}


@pytest.mark.parametrize("text", commands_to_run(HERE))
def test_a_command_without_a_cluster_runs_as_printed(desk: Path, text: str) -> None:
    if "mine.toml" in text and not text.startswith("eos new "):
        (desk / "mine.toml").write_text(new_scenario.text_of("mine"))
    elif text == "eos new mine.toml":
        (desk / "mine.toml").unlink(missing_ok=True)

    done = subprocess.run(
        ["/bin/sh", "-c", text],
        cwd=desk,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PATH": f"{BIN}:/usr/bin:/bin", "EOS_STATE": str(desk / "state")},
    )

    assert done.returncode in EXPECTED.get(text, (0,)), done.stderr
    assert "Traceback" not in done.stderr
    if text.startswith("eos plan "):
        assert "with faults" in done.stdout
    elif text.startswith("eos new "):
        assert (desk / text.rsplit(maxsplit=1)[-1]).exists()
    elif text.startswith("eos "):
        assert done.stdout.strip()
