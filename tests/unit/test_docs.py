"""The documentation agrees with the files: every link, path, module, command and scenario in it exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from harness.cli.main import cli
from harness.scenario import shipped

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# Leave out the changelog: it names modules, commands and scenarios of earlier releases, which may no longer
# exist.
CURRENT = [page for page in PAGES if page.name != "CHANGELOG.md"]
ROOMS = ("harness", "spark_jobs", "tests", "tools")


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    lines = [line.lstrip("#").strip() for line in page.read_text().splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def missing_links(page: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if "://" not in link and (not target.exists() or (anchor and anchor not in headings(target))):
            yield link


def missing_paths(page: Path) -> Iterator[str]:
    """Yield the paths in backticks that exist neither in the checkout nor in `harness/` or `docs/`."""
    for path in re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|toml|java|sh|json))`", page.read_text()):
        if path.split("/")[0] in ("history", "runs"):
            continue  # this file is in the directory of a run, not in the checkout
        if not any((base / path).exists() for base in (ROOT, ROOT / "harness", ROOT / "docs")):
            yield path


def missing_modules(page: Path) -> Iterator[str]:
    """Yield the dotted names whose module does not exist, or does not define the rest of the name."""
    for name in re.findall(rf"\b((?:{'|'.join(ROOMS)})(?:\.[A-Za-z_]+)+)\b", page.read_text()):
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            path = ROOT.joinpath(*parts[:length])
            source = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
            if source.exists():
                break
        else:
            yield name
            continue
        if length < len(parts) and not re.search(rf"\b{parts[length]}\b", source.read_text()):
            yield name


def missing_commands(page: Path) -> Iterator[str]:
    """Yield unknown commands after `eos`, and unknown scenarios after `eos run` or `eos plan`.

    Only an `eos` at the start of a line or of a code span counts.
    """
    scenarios = {path.stem for path in shipped()}
    for command, name in re.findall(
        r"(?:^ *|`)eos ([a-z]+)(?: ([a-z][a-z-]+)(?= |`|$))?", page.read_text(), re.MULTILINE
    ):
        if command not in cli.commands:
            yield f"eos {command}"
        if command in ("run", "plan") and name and name not in scenarios:
            yield f"eos {command} {name}"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_have_an_existing_target(page: Path) -> None:
    assert list(missing_links(page)) == []


@pytest.mark.parametrize("page", CURRENT, ids=ids)
def test_named_paths_and_modules_exist(page: Path) -> None:
    assert [*missing_paths(page), *missing_modules(page)] == []


@pytest.mark.parametrize("page", CURRENT, ids=ids)
def test_named_commands_and_scenarios_exist(page: Path) -> None:
    assert list(missing_commands(page)) == []


# Leave out CONTRIBUTING.md: tests/cluster/test_contributing.py runs its examples on a cluster.
@pytest.mark.parametrize("page", [page for page in CURRENT if page.name != "CONTRIBUTING.md"], ids=ids)
def test_python_examples_import_names_that_exist(page: Path) -> None:
    for module, names in re.findall(r"^ *from (harness[\w.]*) import (.+)$", page.read_text(), re.MULTILINE):
        for name in names.split(", "):
            assert hasattr(import_module(module), name), f"{module} has no {name}"


def test_the_first_line_of_each_page_is_for_its_reader() -> None:
    pages = [page for page in PAGES if page != ROOT / "README.md"]  # it begins with the problem
    openings = {page.name: page.read_text().split("\n\n")[1] for page in pages}

    assert [name for name, opening in openings.items() if not opening.startswith("For ")] == []


def test_every_page_can_be_reached_from_the_index() -> None:
    reached, waiting = set[Path](), [ROOT / "docs" / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for link in re.findall(r"\]\(([^)\s#]+)[^)\s]*\)", page.read_text()):
            target = (page.parent / link).resolve()
            waiting += [target] if target.suffix == ".md" else target.glob("*.md") if target.is_dir() else []
    assert [str(page) for page in PAGES if ROOT / "docs" in page.parents and page not in reached] == []


def test_pictures_are_small_and_shown_on_a_page() -> None:
    pictures = sorted((ROOT / "docs" / "pictures").glob("*"))
    shown = "".join(page.read_text() for page in PAGES)

    assert pictures
    assert [path.name for path in pictures if path.stat().st_size > 120_000] == []
    assert [path.name for path in pictures if f"pictures/{path.name})" not in shown] == []
