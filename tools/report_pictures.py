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

    def open(self, address: str, *, width: int = DESKTOP, dark: bool = False) -> None:
        """Load a page in a window of this width, and wait until it is loaded."""
        colours = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", features=colours)
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
        self.send("Emulation.setDeviceMetricsOverride", **metrics)
        self.send("Page.enable")
        self.send("Page.navigate", url="about:blank")  # a page that differs in its anchor only is not loaded
        self._wait_for("Page.loadEventFired")
        self.send("Page.navigate", url=address)
        self._wait_for("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        return self.send("Runtime.evaluate", expression=expression, returnByValue=True)["result"]["value"]

    def take_picture(self, *, height: int = 0, scale: float = 1.0, anchor: str = "") -> bytes:
        """Return a picture of the page as PNG. Without `height` it shows the whole page.

        `anchor` is the id of the element at which the picture begins.
        """
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        top = 0.0
        if anchor:
            place = f"document.getElementById({json.dumps(anchor)}).getBoundingClientRect().top + scrollY"
            top = float(self.evaluate(place))
        shown = min(height or size["height"], size["height"] - top)
        clip = {"x": 0, "y": top, "width": size["width"], "height": shown, "scale": scale}
        taken = self.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(taken["data"])

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait(_TIME_LIMIT_S)
        os.close(self._out)
        os.close(self._in)

    def _wait_for(self, event: str) -> None:
        while self._receive().get("method") != event:
            pass

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._in, 1 << 20)
            if not data:
                raise RuntimeError("the browser ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        decoded: dict[str, Any] = json.loads(message)
        return decoded


def find_browser() -> str | None:
    """Return the path of a Chromium, or None if none is installed."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


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
    # Helper processes of the browser may still write to its profile when it has ended.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(executable, profile)
        try:
            for name, _, place in (page.partition("=") for page in given.pages):
                path, _, anchor = place.partition("#")
                width = PHONE if "-phone" in name else DESKTOP
                browser.open(Path(path).resolve().as_uri(), width=width, dark="-dark" in name)
                taken = browser.take_picture(height=given.height, scale=given.scale, anchor=anchor)
                file = given.folder / f"{name}.png"
                file.write_bytes(taken)
                print(f"{file}: {len(taken)} bytes")
        finally:
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
