"""Every declared dependency is imported, and every imported package is declared."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path

from tests.unit.test_repo import FILES, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Declared dependencies that no module of this project imports. Each value is the package that imports the
# dependency. That package does so only if the dependency is installed.
IMPORTED_BY = {"crc32c": "kafka", "pandas": "pyspark"}
# Dependencies that no code imports: commands of the Makefile, the build back end, and plugins of pytest.
TOOLS = {"import-linter", "mypy", "ruff", "setuptools", "pytest-timeout", "pytest-xdist"}
# Packages that this project imports without declaring them. Each value is the declared dependency that
# exposes the package in its interface. Pytest is an exception: only pytest imports harness/testing, so pytest
# is always installed when that code runs.
PROVIDED_BY = {"markupsafe": "jinja2", "py4j": "pyspark", "pytest": "pytest"}

# Client libraries that only their driver in the client matrix imports. Each has a lock file of its own, and
# is installed when the matrix needs it.
DRIVEN = {"aiokafka"}


def names(requirements: list[str]) -> set[str]:
    """Return the normalised names of the distributions in a list of requirements."""
    matches = (re.match(r"[\w.-]+", requirement) for requirement in requirements)
    return {match[0].lower().replace("_", "-") for match in matches if match}


@cache
def imported(*folders: str) -> set[str]:
    """Return the normalised names of the distributions that the modules in `folders` import."""
    modules: set[str] = set()
    for path in FILES:
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    modules |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    modules.add(node.module.split(".")[0])
    packages = packages_distributions()
    foreign = modules - sys.stdlib_module_names - {"harness", "spark_jobs", "tests", "tools"}
    return {name.lower().replace("_", "-") for module in foreign for name in packages.get(module, [module])}


def test_every_declared_dependency_is_imported() -> None:
    assert names(PROJECT["project"]["dependencies"]) - imported("harness", "spark_jobs") == set(IMPORTED_BY)


def test_a_dependency_that_is_not_imported_here_is_imported_by_another() -> None:
    for module, importer in IMPORTED_BY.items():
        spec = find_spec(importer)
        assert spec is not None
        assert spec.origin is not None
        sources = Path(spec.origin).parent.rglob("*.py")
        assert any(re.search(rf"^\s*(import|from) {module}\b", p.read_text(), re.MULTILINE) for p in sources)


def test_every_imported_package_is_declared() -> None:
    declared = names(PROJECT["project"]["dependencies"])
    undeclared = imported("harness", "spark_jobs") - declared - DRIVEN
    assert {PROVIDED_BY.get(name) for name in undeclared} - declared <= {"pytest"}


def test_a_driven_library_is_pinned_with_its_hashes() -> None:
    for library in DRIVEN:
        lock = (ROOT / "harness" / "provision" / "data" / "clients" / f"{library}.txt").read_text()
        assert re.search(rf"^{library}==[\d.]+ \\\n +--hash=sha256:", lock, re.MULTILINE)


def test_every_development_dependency_is_used() -> None:
    declared = names(PROJECT["dependency-groups"]["dev"])
    stubs = {name for name in declared if name.startswith("types-")}
    assert declared - stubs - TOOLS <= imported("tests", "tools")
    assert {name.removeprefix("types-") for name in stubs} <= imported("harness", "tools", "tests")


def test_the_lock_holds_every_dependency_with_its_requirements() -> None:
    locked = names(re.findall(r"^[\w.-]+(?===)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    declared = names(PROJECT["project"]["dependencies"]) | names(PROJECT["dependency-groups"]["dev"])
    assert declared <= locked
    for name in declared:
        needed = names([r for r in distribution(name).requires or [] if ";" not in r])
        assert needed <= locked, name
