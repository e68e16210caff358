"""How much memory a node takes, as fairly as the system can tell."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from docker.models.containers import Container


def process_memory(pid: int) -> tuple[int, str]:
    """Bytes of a process, and what they are: its share of what is shared (PSS), else all it maps (RSS)."""
    rollup = Path(f"/proc/{pid}/smaps_rollup")
    if rollup.exists():
        found = re.search(r"^Pss:\s+(\d+) kB", rollup.read_text(), re.MULTILINE)
        if found:
            return int(found[1]) * 1024, "PSS"
    listed = subprocess.run(["ps", "-p", str(pid), "-o", "rss="], capture_output=True, text=True, check=True)
    return int(listed.stdout) * 1024, "RSS"


def container_memory(container: Container) -> int:
    """Bytes that a container is charged for, without the file cache that could be given back at once."""
    usage = cast("dict[str, Any]", container.stats(stream=False))["memory_stats"]
    details = usage.get("stats", {})
    # Named differently by the two versions of control groups.
    return int(usage["usage"]) - int(details.get("inactive_file", details.get("total_inactive_file", 0)))
