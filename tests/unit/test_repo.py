"""Rules for all files of the checkout: short functions, no package registries, no forbidden names."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.provision.paths import checkout_dir

ROOT = checkout_dir()
MOST_FUNCTION_LINES = 70
# File names that may occur in several packages, because each package has its own such file: package files,
# errors, a data model, a catalogue of names.
PARALLEL = ("__init__.py", "__main__.py", "errors.py", "model.py", "catalogue.py")
# Hosts that serve packages of Python, Java, Go, Debian or npm, and hosts that mirror them.
REGISTRIES = re.compile(
    r"pypi\.(org|python)|pythonhosted|maven\.(org|apache|google)|repo\d?\.maven|sonatype|jcenter|jfrog"
    r"|artifactory|nexus[.-]|proxy\.golang|sum\.golang|goproxy\.|deb\.debian|security\.debian|archive\.ubuntu"
    r"|npmjs|index-url|registry-1\.docker|download\.docker"
)
# Names of tools and places that do not belong to the project. Each name is written in parts, so that this
# file does not contain it.
FOREIGN = re.compile(
    "|".join(
        (
            "cla" + "ude",
            "anthr" + "opic",
            "chat" + "gpt",
            "co" + "pilot",
            r"\bll" + r"m\b",
            r"language m" + "odel",
            r"\bsub-?ag" + "ent",
            "/wor" + "k/",
            r"/tmp/\w/",
            r"\bissue\s*#?\d",
            r"\bissues? sh" + "ow",
            "as an a" + "i",
        )
    ),
    re.IGNORECASE,
)


def tracked() -> list[Path]:
    """Return the files of the checkout that git tracks."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True, timeout=60, check=False
    )
    if listed.returncode != 0:
        pytest.fail(f"git does not list the files of {ROOT}: {listed.stderr}")
    names = [name for name in listed.stdout.split("\0") if name]
    return [path for name in names if (path := ROOT / name).is_file()]


FILES = tracked()
CODE = ("harness", "spark_jobs")
MODULES = [path for path in FILES if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in CODE]


def found(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    """Return `file:line: text` of each line that contains the pattern."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in files
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_registry_is_named() -> None:
    here = Path(__file__)
    assert found(REGISTRIES, [path for path in FILES if path != here]) == []


def test_no_file_contains_a_foreign_name() -> None:
    assert found(FOREIGN, FILES) == []


def test_no_secret_and_no_conflict_is_left() -> None:
    assert found(re.compile(r"BEGIN [A-Z ]*PRIVATE KEY|^<{7} |^>{7} "), FILES) == []


def test_functions_are_short() -> None:
    long = {
        f"{path.relative_to(ROOT)}: {name}": node.end_lineno - node.lineno + 1
        for path, name, node in definitions()
        if not isinstance(node, ast.ClassDef) and node.end_lineno is not None
    }
    assert {name: lines for name, lines in long.items() if lines > MOST_FUNCTION_LINES} == {}


def test_a_file_name_means_one_thing() -> None:
    by_name: dict[str, list[str]] = {}
    for path in MODULES:
        by_name.setdefault(path.name, []).append(str(path.relative_to(ROOT)))
    repeated = {name: paths for name, paths in by_name.items() if len(paths) > 1 and name not in PARALLEL}
    assert repeated == {}


def test_the_top_level_of_the_package_has_rooms_only() -> None:
    modules = {path.name for path in MODULES if path.parent == ROOT / "harness"}
    assert modules == {"__init__.py", "__main__.py"}


def test_every_room_states_its_purpose() -> None:
    rooms = [
        path for path in MODULES if path.name == "__init__.py" and path.parent.parent == ROOT / "harness"
    ]
    assert len(rooms) <= 16
    assert [str(path) for path in rooms if not ast.get_docstring(ast.parse(path.read_text()))] == []


def test_the_formatter_is_never_switched_off() -> None:
    here = Path(__file__)
    code = [path for path in FILES if path.suffix == ".py" and path != here]
    assert found(re.compile(r"# fmt: (skip|off)"), code) == []


def definitions() -> Iterator[tuple[Path, str, Definition]]:
    """Yield file, name and definition of every function and class of every module."""
    for path in MODULES:
        for name, node in functions_and_classes(ast.parse(path.read_text())):
            yield path, name, node


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def functions_and_classes(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, Definition]]:
    """Yield functions and classes with dotted names, except those defined inside a function."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Definition):
            yield f"{inside}{node.name}", node
            if isinstance(node, ast.ClassDef):
                yield from functions_and_classes(node, f"{inside}{node.name}.")


def test_tests_neither_sleep_nor_skip_nor_expect_to_fail() -> None:
    tests = [path for path in FILES if path.relative_to(ROOT).parts[0] == "tests"]
    assert found(re.compile(r"pytest\.sk[i]p|mark\.sk[i]p|mark\.xf[a]il|importorsk[i]p"), tests) == []
    pauses = [f"{path.relative_to(ROOT)}:{line}" for path in tests for line in unexplained_pauses(path)]
    assert pauses == []


def unexplained_pauses(path: Path) -> Iterator[int]:
    """Yield the numbers of the lines that call `sleep`, except lines with the comment `not a wait`."""
    if path.suffix != ".py":
        return
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in ("time.sleep", "sleep")
            and "# not a wait" not in text.splitlines()[node.lineno - 1]
        ):
            yield node.lineno


def test_scripts_are_executable_and_strict() -> None:
    scripts = [path for path in FILES if path.read_bytes()[:2] == b"#!"]
    assert scripts
    for script in scripts:
        assert script.stat().st_mode & 0o111, f"{script} is not executable"
        if b"bash" in script.read_bytes()[:30]:
            assert re.search(r"^set -[eu]*uo pipefail", script.read_text(), re.MULTILINE), script


def test_pinned_python_packages_have_hashes() -> None:
    text = (ROOT / "requirements.lock").read_text()
    entries = [entry for entry in re.split(r"\n(?=\S)", text) if re.match(r"[\w.-]+(\[[\w,-]+\])?==", entry)]
    assert len(entries) > 20
    for entry in entries:
        assert "--hash=sha256:" in entry, entry.splitlines()[0]
    # requirements.lock may contain a package twice only if the two versions have different environment
    # markers.
    pinned = [(entry.split("==")[0].lower(), entry.splitlines()[0].partition(";")[2]) for entry in entries]
    assert len(pinned) == len(set(pinned))
