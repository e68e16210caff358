"""Take the picture of a report for README.md: the top of report.html of a real run, in headless Chromium.

Needs Chromium (Debian: apt-get install chromium). No test and no target needs it.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import click

from harness.report.outputs import write_report

FILE: Final = Path(__file__).parents[1] / "docs" / "report.png"
MOST_BYTES: Final = 150_000
WIDTH: Final = 1180
HEIGHT: Final = 680
_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")


@click.command(epilog="Example:  python -m tools.picture runs/demo/latest")
@click.argument("directory", type=click.Path(path_type=Path, exists=True))
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", default=FILE, help="PNG to write.")
@click.option("--height", metavar="PIXELS", default=HEIGHT, show_default=True, help="Height of the picture.")
def main(directory: Path, out: Path, height: int) -> None:
    """Write the report of a run again, and take a picture of its top."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise click.ClickException("no Chromium is installed (Debian: apt-get install chromium)")
    page = write_report(directory.resolve())
    with tempfile.TemporaryDirectory(prefix="eos-picture-") as folder:
        picture = Path(folder) / "report.png"
        command = [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *(f"--user-data-dir={folder}/profile", f"--window-size={WIDTH},{height}"),
            *(f"--screenshot={picture}", page.as_uri()),
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        size = picture.stat().st_size
        if size > MOST_BYTES:
            raise click.ClickException(f"the picture has {size} bytes, more than {MOST_BYTES}: use --height")
        shutil.copyfile(picture, out)
    click.echo(f"{out}: {size} bytes")


if __name__ == "__main__":
    main()
