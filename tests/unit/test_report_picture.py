"""The report in a real browser: no element is wider than the window, and dark mode works."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.report import page
from tests.conftest import browser
from tests.unit.test_report import judged

PROBE = """<script>
addEventListener("load", () => {
  const root = document.documentElement, wide = [...document.querySelectorAll("body *")].filter(
    (el) => el.getBoundingClientRect().right > root.clientWidth + 1 && !el.closest(".scroll, pre, svg"));
  const named = wide.map((item) => item.outerHTML.slice(0, 80));
  document.title = JSON.stringify([root.clientWidth, root.scrollWidth, named]);
});
</script>"""


def probed(report: Path, probe: str, width: int, *settings: str) -> Any:
    """Load a copy of a report with the script `probe` in a browser; return the title that the script sets."""
    page_file = report.with_name("probed.html")
    page_file.write_text(report.read_text().replace("</title>", f"</title>{probe}", 1))
    assert "<script" in page_file.read_text(), "the probe is in the copy, and only there"
    executable = browser()
    assert executable is not None, "without a browser this test is not collected"
    command = [
        executable,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--dump-dom",
        f"--user-data-dir={page_file.parent / 'profile'}",
        f"--window-size={width},1200",
        *settings,
        str(page_file),
    ]
    done = subprocess.run(command, check=True, capture_output=True, timeout=60)
    match = re.search(r"<title>(.*?)</title>", done.stdout.decode(), re.DOTALL)
    return json.loads(html.unescape(match[1]) if match else "")


@pytest.mark.browser
@pytest.mark.parametrize("width", [500, 1200])
@pytest.mark.parametrize("shown", [9, 10], ids=["invalid", "valid"])
def test_the_report_fits_its_window(tmp_path: Path, shown: int, width: int) -> None:
    """The narrow width is 500 pixels, because a headless window cannot be narrower."""
    report = page.write(judged(tmp_path, shown=shown).path)

    client, scroll, wide = probed(report, PROBE, width)

    assert client == width
    assert scroll <= client, f"{scroll - client} pixels are outside the window"
    assert wide == []


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_the_report_follows_the_colour_scheme_of_the_desktop(tmp_path: Path, scheme: str) -> None:
    report = page.write(judged(tmp_path, shown=9).path)
    colours = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    script = f"<script>addEventListener('load', () => document.title = JSON.stringify({colours}))</script>"
    setting = f"--blink-settings=preferredColorScheme={['dark', 'light'].index(scheme)}"
    paper, ink = (
        sum(int(part) for part in re.findall(r"\d+", colour))
        for colour in probed(report, script, 1200, setting)
    )

    assert (ink > 600 and paper < 100) if scheme == "dark" else (ink < 100 and paper > 600)
