"""The version number is in one place only, and the changelog has a dated section for it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from harness import __version__

ROOT = Path(__file__).resolve().parents[2]


def test_the_package_takes_its_version_from_the_module() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert "version" not in project["project"]
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "harness.__version__"}


def test_the_changelog_has_the_version_as_its_newest_release_with_a_date() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    releases = [heading for heading in headings if heading != "Unreleased"]
    assert re.fullmatch(rf"{re.escape(__version__)} \(\d{{4}}-\d\d-\d\d\)", releases[0])
    assert "Unreleased" not in headings[1:]
