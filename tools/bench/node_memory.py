"""Memory of a node that runs as a process or in a container."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import psutil

if TYPE_CHECKING:
    from docker.models.containers import Container


def process_memory(pid: int) -> tuple[int, str]:
    """Return the memory of a process in bytes, and the kind of memory that was counted.

    The kind is PSS or, on systems without PSS, RSS. PSS divides shared pages among the processes that share
    them.
    """
    process = psutil.Process(pid)
    if psutil.LINUX:
        return process.memory_full_info().pss, "PSS"
    return process.memory_info().rss, "RSS"


def container_memory(container: Container) -> int:
    """Return the memory of a container in bytes, without the file cache that the kernel can free at once."""
    usage = cast("dict[str, Any]", container.stats(stream=False))["memory_stats"]
    details = usage.get("stats", {})
    # Versions 1 and 2 of cgroups have different names for the inactive file cache.
    return int(usage["usage"]) - int(details.get("inactive_file", details.get("total_inactive_file", 0)))
