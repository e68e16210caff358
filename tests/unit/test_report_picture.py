"""Report and index in a real browser: widths, dark mode, filters without scripts, and pictures."""

from __future__ import annotations

import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.report import index, page
from tests.unit.test_report import judged
from tools.report_pictures import DESKTOP, PHONE, Browser, find_browser

OUTSIDE = """
[...document.querySelectorAll("body *")].filter(el =>
  el.getBoundingClientRect().right > document.documentElement.clientWidth + 1
  && !el.closest(".scroll, pre, svg")
).map(el => el.outerHTML.slice(0, 80))
"""
"""Elements that are wider than the window, except in containers that scroll."""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    executable = find_browser()
    assert executable is not None, "without a browser these tests are not collected"
    started = Browser(executable, str(tmp_path_factory.mktemp("chromium")))
    yield started
    started.close()


@pytest.mark.browser
@pytest.mark.parametrize("width", [PHONE, 500, DESKTOP])
@pytest.mark.parametrize("shown", [9, 10], ids=["invalid", "valid"])
def test_the_report_fits_its_window(chromium: Browser, tmp_path: Path, shown: int, width: int) -> None:
    run = judged(tmp_path, shown=shown)
    for address in (page.write(run.path).as_uri(), index.write(tmp_path).as_uri()):
        chromium.open(address, width=width)

        assert chromium.evaluate("innerWidth") == width
        assert chromium.evaluate("document.documentElement.scrollWidth") <= width
        assert chromium.evaluate(OUTSIDE) == []


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_the_report_follows_the_colour_scheme_of_the_desktop(
    chromium: Browser, tmp_path: Path, scheme: str
) -> None:
    chromium.open(page.write(judged(tmp_path, shown=9).path).as_uri(), dark=scheme == "dark")
    paper, ink = (
        sum(map(int, re.findall(r"\d+", chromium.evaluate(f"getComputedStyle(document.body).{colour}"))))
        for colour in ("backgroundColor", "color")
    )

    assert (ink > 600 and paper < 100) if scheme == "dark" else (ink < 100 and paper > 600)


@pytest.mark.browser
def test_a_diagram_in_a_report_keeps_its_colours(chromium: Browser, tmp_path: Path) -> None:
    run = judged(tmp_path)
    stroke = '<path class="plain" stroke="#1f2937" d="M0 0L9 9"/>'
    (run.path / "diagram.svg").write_text(f'<svg class="sequence" viewBox="0 0 9 9">{stroke}</svg>')
    chromium.open(page.write(run.path).as_uri())

    assert (
        chromium.evaluate("getComputedStyle(document.querySelector('.steps path')).stroke")
        == "rgb(31, 41, 55)"
    )


@pytest.mark.browser
def test_the_filters_of_the_index_need_no_scripts(tmp_path: Path, chromium: Browser) -> None:
    judged(tmp_path / "a", shown=9)
    judged(tmp_path / "b", shown=10)
    for number, folder in enumerate(("a", "b")):
        run = next((tmp_path / folder).glob("*/2026-*"))
        shutil.copytree(run, tmp_path / "runs" / "demo" / f"2026-01-0{number + 1}T030405-7")
    address = index.write(tmp_path / "runs").as_uri()
    verdicts = "[...document.querySelectorAll('tr')].slice(1).filter(row => row.offsetHeight)"
    verdicts += ".map(row => row.querySelector('.verdict').textContent)"

    def shown(anchor: str) -> list[str]:
        chromium.open(f"{address}#{anchor}")
        found: list[str] = chromium.evaluate(verdicts)
        return found

    assert sorted(shown("")) == ["invalid", "valid"]
    assert shown("invalid") == ["invalid"]
    assert shown("valid") == ["valid"]
    assert sorted(shown("scenario-demo")) == ["invalid", "valid"]


@pytest.mark.browser
def test_a_picture_has_the_width_of_the_window(tmp_path: Path, chromium: Browser) -> None:
    report = page.write(judged(tmp_path, shown=9).path)
    chromium.open(report.as_uri(), width=PHONE)
    taken = chromium.take_picture(height=300)

    assert taken.startswith(b"\x89PNG")
    assert struct.unpack(">II", taken[16:24]) == (PHONE, 300)
    chromium.open(report.as_uri(), width=PHONE, dark=True)
    assert chromium.take_picture(height=300) != taken
