"""Take pictures of reports in a headless Chromium: `python -m tools.report_pictures DIR NAME=PAGE...`.

A picture is named NAME.png. NAME may end in `-dark` (dark colours) and in `-phone` (390 pixels wide). Without
--height the picture shows the whole page. Chromium must be installed (Debian's package `chromium`).
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

DESKTOP: Final = 1100
PHONE: Final = 390
_TIME_LIMIT_S: Final = 60


class Browser:
    """A headless Chromium that is controlled through a pipe, with the DevTools protocol."""

    def __init__(self, executable: str, profile: str) -> None:
        requests, self._out = os.pipe()
        self._in, answers = os.pipe()

        def connect() -> None:
            # Chromium reads requests from descriptor 3 and writes answers to descriptor 4.
            os.dup2(os.dup(requests), 3)
            os.dup2(os.dup(answers), 4)

        self._process = subprocess.Popen(
            [
                executable,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
                f"--user-data-dir={profile}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=connect,  # noqa: PLW1509 - there are no other threads
        )
        os.close(requests)
        os.close(answers)
        self._buffer = b""
        self._number = 0
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def send(self, method: str, **parameters: Any) -> Any:
        """Send a request and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if hasattr(self, "_session"):
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def wait_for(self, event: str) -> None:
        """Wait for an event of the page."""
        while self._receive().get("method") != event:
            pass

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(_TIME_LIMIT_S)
        os.close(self._out)
        os.close(self._in)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._in, 1 << 20)
            if not data:
                raise RuntimeError("the browser ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded


def picture_of(
    browser: Browser,
    page: str,
    *,
    width: int,
    dark: bool,
    height: int = 0,
    scale: float = 1.0,
    anchor: str = "",
) -> bytes:
    """Return a picture of a page as PNG. Without `height` it shows the whole page.

    `anchor` is the id of the element at which the picture begins.
    """
    colours = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.send("Emulation.setEmulatedMedia", features=colours)
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    browser.send("Emulation.setDeviceMetricsOverride", **metrics)
    browser.send("Page.enable")
    browser.send("Page.navigate", url=page)
    browser.wait_for("Page.loadEventFired")
    whole = browser.send("Page.getLayoutMetrics")["cssContentSize"]["height"]
    top = 0.0
    if anchor:
        place = f"document.getElementById({json.dumps(anchor)}).getBoundingClientRect().top + scrollY"
        top = float(browser.send("Runtime.evaluate", expression=place)["result"]["value"])
    clip = {"x": 0, "y": top, "width": width, "height": min(height or whole, whole - top), "scale": scale}
    taken = browser.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
    return base64.b64decode(taken["data"])


def main(arguments: list[str] | None = None) -> int:
    """Take the pictures that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tools.report_pictures", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder for the pictures")
    parser.add_argument(
        "pages", nargs="+", metavar="NAME=PAGE[#ANCHOR]", help="an HTML file, such as a report"
    )
    parser.add_argument("--height", type=int, default=0, help="height in pixels (default: the whole page)")
    parser.add_argument("--scale", type=float, default=1.0, help="scale of the pictures (default: 1)")
    given = parser.parse_args(arguments)
    executable = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if executable is None:
        parser.error("no Chromium is installed; on Debian: apt-get install chromium")
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(executable, profile)
        try:
            for name, _, place in (page.partition("=") for page in given.pages):
                path, _, anchor = place.partition("#")
                taken = picture_of(
                    browser,
                    Path(path).resolve().as_uri(),
                    width=PHONE if "-phone" in name else DESKTOP,
                    dark="-dark" in name,
                    height=given.height,
                    scale=given.scale,
                    anchor=anchor,
                )
                file = given.folder / f"{name}.png"
                file.write_bytes(taken)
                print(f"{file}: {len(taken)} bytes")
        finally:
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
